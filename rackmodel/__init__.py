"""rackmodel: a mapping and cost model for rack-scale AI systems.

An architecture tree, an einsum workload and a mapper go in; the best mapping, a ledger of every joule and second it
costs, its carbon and a certificate come out.

    import rackmodel as rm
    best = rm.search("rack_paper", "ffn", "auto", set={"accelerators": 8}).result

Everything is loaded where it is first used; see `rackmodel.face` for what is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rackmodel.version import __version__ as __version__

__all__ = [
    "Answer",
    "Architecture",
    "InfeasibleError",
    "InputError",
    "Ledger",
    "Mapper",
    "MappingSpec",
    "OutputError",
    "Points",
    "Prices",
    "RackmodelError",
    "Result",
    "Workload",
    "compare",
    "evaluate",
    "price",
    "read",
    "search",
    "sweep",
]

if TYPE_CHECKING:
    from rackmodel.face import (
        Answer,
        Architecture,
        InfeasibleError,
        InputError,
        Ledger,
        Mapper,
        MappingSpec,
        OutputError,
        Points,
        Prices,
        RackmodelError,
        Result,
        Workload,
        compare,
        evaluate,
        price,
        read,
        search,
        sweep,
    )


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rackmodel import face

        return getattr(face, name)
    raise AttributeError(f"module 'rackmodel' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
