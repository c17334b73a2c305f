"""Random histories of a cache manager, judged from outside by laws (TGT-1).

A manager hands out pages by its own rules, so nothing is compared with a table step by step. Every law is a statement
about what an observer can see: where the pages are, what each request was told, and which tokens were written where.
"""
