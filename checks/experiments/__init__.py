"""Experiments: one question each, answered by the functions of the reference itself (EXP-1).

This room may import `reference`, like targets do, since an experiment is only worth something if it runs the product:
a copy of the rule beside the rule could answer otherwise.
"""
