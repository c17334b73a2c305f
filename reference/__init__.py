"""The implementation that the specification judges: admission, pages, scheduling, grading.

Of kvescrow it may import `kvescrow.spec.vocabulary` alone: the oracle shares no code with its subject.
"""
