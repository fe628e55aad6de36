"""The searchers of one einsum, in the order they are asked: the exact ones first."""

from rackmodel.nests.searchers import ceil_deep, cpsat, perfect
from rackmodel.nests.searchers.homes import home
from rackmodel.nests.searchers.two_level import ceil_two_level

SEARCHERS = (perfect.SEARCHER, ceil_two_level.SEARCHER, ceil_deep.SEARCHER, home.SEARCHER, cpsat.SEARCHER)
SOLVERS = ("auto", *dict.fromkeys(s.solver for s in SEARCHERS))
