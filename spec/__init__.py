"""What must hold: tables, invariants and pure functions over them.

This folder does no I/O and imports nothing else of the project. `vocabulary` is the part that implementations
share; everything else (`language`, `tables`, `world`, `render`) belongs to the oracle and its readers.
"""
