"""What ties an implementation to the specification: proofs, search, fuzzing, journals, mutation.

May import `kvescrow.spec`; the subjects, `kvescrow.reference` and `kvescrow.gpu_harness`, only in `targets` and
`cli`. z3 is imported in `prove` alone.
"""
