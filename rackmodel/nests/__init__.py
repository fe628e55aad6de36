"""The accelerator's loop nest, searched exactly: `solve_nest`; and `solve_fused` for a pair of einsums.

What is asked and answered: problem, constraints, objective, home_rules → mapping, solution. What a mapping costs: evaluate
(the definition, over split_chains and tile_counts). Who searches: searchers/, behind one contract (searchers/contract).
The space: per memory level an order of storage nodes with a tile each, spatial vectors per fanout, stored tensors where
free. Theory: docs/loop_nests.md.

The searchers are loaded where they are first used: most searches of mappings price operations without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["FusedSolution", "NestCertificate", "NestSolution", "solve_fused", "solve_nest"]

if TYPE_CHECKING:
    from rackmodel.nests.searchers.fusion import FusedSolution, solve_fused
    from rackmodel.nests.solution import NestCertificate, NestSolution
    from rackmodel.nests.solve import solve_nest


def __getattr__(name: str) -> Any:
    if name == "solve_nest":
        from rackmodel.nests import solve

        return solve.solve_nest
    if name in ("FusedSolution", "solve_fused"):
        from rackmodel.nests.searchers import fusion

        return getattr(fusion, name)
    if name in __all__:
        from rackmodel.nests import solution

        return getattr(solution, name)
    raise AttributeError(f"module 'rackmodel.nests' has no attribute '{name}'")
