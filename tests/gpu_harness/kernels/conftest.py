"""Kernels in triton's interpreter, on the CPU. Without triton these tests are skipped; `make kernels` installs it."""

from __future__ import annotations

import os

# Read when a kernel is defined; in this process kernels are only ever interpreted.
os.environ["TRITON_INTERPRET"] = "1"
