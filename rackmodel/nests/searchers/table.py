"""The searchers of one einsum, in the order they are asked: the exact ones first."""

from rackmodel.nests.searchers import ceil_deep, ceil_two_level, cpsat, home, perfect

SEARCHERS = (perfect.SEARCHER, ceil_two_level.SEARCHER, ceil_deep.SEARCHER, home.SEARCHER, cpsat.SEARCHER)
SOLVERS = ("auto", *dict.fromkeys(s.solver for s in SEARCHERS))
