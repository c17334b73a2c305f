"""The table language: typed expressions, rows, tables, and the two ways to run them."""
