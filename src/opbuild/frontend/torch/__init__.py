"""Programs of ATen operators in: ``capture`` reads an FX graph, ``build_graph`` makes the graph of all front ends.

Only ``capture`` imports torch: a program that was read is plain data, which is bound to sizes, and stored, without it.
"""
