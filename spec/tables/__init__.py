"""The transition tables and decision tables. One table is read by everything."""
