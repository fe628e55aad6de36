"""`rackmodel compare ... --samples N`: how sure the ranking is over the ranges that the files state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli.printing import echo
from rackmodel.errors import InputError

if TYPE_CHECKING:
    from rackmodel.studies.ranking import RangedNumber, RankedPair

SamplesOption = Annotated[
    int | None,
    typer.Option("--samples", metavar="N", min=1, max=100_000, help="Rank again in N samples of the ranges that the input files state."),
]
SeedOption = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Seed of the samples; default: 1.")]

OF_THE_TABLES = ("carbon", "total_carbon", "tcdp", "cdp", "cep", "c2ep", "ce2p")
OF_ITS_LIFE = ("total_carbon", "tcdp", "money")


def seed_of(seed: int | None, samples: int | None) -> int:
    """The first number of random samples. Raises InputError where none are asked for."""
    if seed is not None and samples is None:
        raise InputError("there are no samples to choose: it goes with --samples", path="--seed")
    return 1 if seed is None else seed


def at_their_middles(goal: str) -> list[str]:
    """What an objective rests on whose ranges no sample draws, in words."""
    tables = ["the carbon tables"] if goal in OF_THE_TABLES else []
    return tables + (["the machine's life", "its share at work"] if goal in OF_ITS_LIFE else [])


def ranking_data(pairs: Sequence[RankedPair], numbers: Sequence[RangedNumber], goal: str, seed: int) -> dict[str, Any]:
    """Plain data for JSON."""
    varied = [{"name": one.name, "low": str(one.low), "mid": str(one.mid), "high": str(one.high), "status": one.status} for one in numbers]
    return {"seed": seed, "numbers": varied, "at_their_middles": at_their_middles(goal), "pairs": [pair.to_dict() for pair in pairs]}


def print_ranking(pairs: Sequence[RankedPair], numbers: Sequence[RangedNumber], goal: str, seed: int) -> None:
    """A line a pair, and one a number that alone turns it."""
    samples = pairs[0].won + pairs[0].even + pairs[0].lost
    echo("")
    echo(f"{goal} over {len(numbers)} ranges of the files, each number shared by all that read it, {samples} samples (seed {seed}):")
    if kept := at_their_middles(goal):
        echo(f"  (at their middles: {', '.join(kept)})")
    for pair in pairs:
        even = f", equal in {100 * pair.even / samples:.3g} %" if pair.even else ""
        echo(f"{pair.first} before {pair.second} in {100 * pair.share:.3g} % of the samples{even}")
        for one in pair.flips:
            echo(f"  turns where {one.words()}")
        if not pair.flips:
            echo("  no number alone turns it inside its range")
