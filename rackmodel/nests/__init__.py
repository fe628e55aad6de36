"""The accelerator's loop nest, searched exactly: `solve_nest`; and `solve_region` for einsums that run together.

What is asked and answered: problem, constraints, objective, home_rules → mapping, solution. What a mapping costs: evaluate
(the definition, over split_chains and tile_counts). Who searches: searchers/, behind one contract (searchers/contract).
The space: per memory level an order of storage nodes with a tile each, spatial vectors per fanout, stored tensors where
free. Theory: docs/nest_theory.md.

The searchers are loaded where they are first used: most searches of mappings price operations without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["NestCertificate", "NestSolution", "Region", "RegionSolution", "solve_nest", "solve_region"]

if TYPE_CHECKING:
    from rackmodel.nests.region import Region
    from rackmodel.nests.searchers.regions.fusion import RegionSolution, solve_region
    from rackmodel.nests.solution import NestCertificate, NestSolution
    from rackmodel.nests.solve import solve_nest


def __getattr__(name: str) -> Any:
    if name == "solve_nest":
        from rackmodel.nests import solve

        return solve.solve_nest
    if name == "Region":
        from rackmodel.nests import region

        return region.Region
    if name in ("RegionSolution", "solve_region"):
        from rackmodel.nests.searchers.regions import fusion

        return getattr(fusion, name)
    if name in __all__:
        from rackmodel.nests import solution

        return getattr(solution, name)
    raise AttributeError(f"module 'rackmodel.nests' has no attribute '{name}'")
