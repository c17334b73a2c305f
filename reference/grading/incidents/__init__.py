"""Incidents with known causes, as recipes: a small worker is simulated before and after one change of it."""
