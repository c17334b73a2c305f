"""A paged-KV decoder on cuda or cpu, and the physical evidence that its memory was used as the tables say.

The device half is `model`, `arithmetic`, `pages`, `plan`, `decoder` (what runs), `oracle`, `probe` (what it
is compared with), `device`, `tickets` (streams, events, launches) and `evidence` (what was seen).
On cuda `kernels` are what touches pages, and `replays` are steps of fixed sizes, captured once. `run` is a script that
needs nothing installed but torch and attrs; `everything` and `floor` are what it asks a device lent for minutes.
Requirements CON-1 to CON-3.
"""
