"""A paged-KV decoder on a GPU or a CPU, run under the reference's control and watched physically.

May import `kvescrow.spec`, `kvescrow.reference`, `kvescrow.checks.monitor` and torch.
"""
