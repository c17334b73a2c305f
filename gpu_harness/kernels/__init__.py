"""Triton kernels of the decoder on cuda: attention over the block table, the writes of keys and values, products.

Three rules hold in every kernel. The order of a sum depends on nothing but the row itself: tiles and splits have
fixed sizes in rows and tokens, and partial results are joined in order, so a row has the same bits whatever else is
in the batch, however its prompt was cut into chunks, and wherever its pages lie. A page is checked by the program
that reads or writes it, against the generation, owner, scope and logical index that the step was launched with, and
what is wrong is counted in memory that the step gives back (CON-2). Nothing beyond a context is loaded, so the poison
there cannot reach a sum.

`attention`, `writes`, `looks` and `products` are the kernels and what launches them; `contiguous` is the attention of
the independent decode, which knows no pages. They import triton, which other parts of the package never do.
`compilation` builds every kernel for a device that is not here.
"""
