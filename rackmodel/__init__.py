"""rackmodel: a mapping and cost model for rack-scale AI systems.

An architecture tree, an einsum workload and a mapper go in; the best mapping, a ledger of every joule and second it
costs, its carbon and a certificate come out. Start at `rackmodel.api`.
"""

__version__ = "0.1.0"
