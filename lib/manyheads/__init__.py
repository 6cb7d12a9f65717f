"""The capacity and the synergy of multi-head attention.

Two parts that do not know each other: `manyheads.capacity` (what the
key-query channels of h heads can store) and `manyheads.synergy` (what h heads
do together as one graph). `manyheads.figures` is the one look of all figures.
"""
