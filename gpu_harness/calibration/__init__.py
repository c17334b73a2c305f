"""The cost model on the real decoder: steps measured over a designed grid, the fit, and the chunk rule at work.

`workbench` runs steps and times them, `grid` says which, `serve` lets prompts arrive beside decodes, `run` puts them
together. Requirements CHK-1 to CHK-5.
"""
