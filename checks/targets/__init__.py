"""Implementations under test, each behind a small protocol (`protocols`) and found by name (`registry`).

This folder alone among the checks may import the reference and other people's packages. A target holds no decision of
its own: it only translates.
"""
