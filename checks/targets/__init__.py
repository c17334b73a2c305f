"""Implementations under test, each behind a small protocol (`protocols`), described as a `subject` and found
by name (`registry`).

This folder alone among the checks may import the reference and other people's packages. A target holds no decision of
its own: it only translates.
"""
