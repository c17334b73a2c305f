"""The tables at work: a whole ledger and a whole page pool, moved by rows alone.

A world keeps plain records, builds the local view of one event, fires the table and writes the row's effects back.
It decides nothing itself. Implementations are compared with it step by step, and journals are replayed in it.
"""
