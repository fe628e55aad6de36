"""Dynamic programming over tiles: prices of nodes, tables of least costs, the way back, slices of equal parallelism."""
