"""Who finds the best mapping: the searchers, and what they share; a room an idea, from the ground up.

effort, contract    how much a search may do; a question, its features, which searcher is asked
mapspace            the declared space by number: tiles, spatial vectors, stored tensors, orders; what a word costs
tables              dynamic programming over tiles, and slices of equal parallelism
bounds              convex programs, relaxed tables: what no mapping is below
ragged, chains      tiles of any size: better mappings by draws and steps; every chain of tiles of every rank
registers           a matrix product on a memory, a buffer and an array of register files
two_level, homes    one buffer above an array; tensors at home in the cores
perfect, ceil_deep  the searchers of perfect factors and of tiles of any size, which ask those rooms · cpsat: the oracle
table               the searchers in the order they are asked
regions             einsums fused, which stand on all of them
"""
