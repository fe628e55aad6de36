"""Options that `serve` and `serve-trace` share: the model, the engine, the caches, and what drafts tokens; and what both say of a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rackmodel.carbon.costing import JobMoney
    from rackmodel.carbon.job import JobCarbon

ModelArg = Annotated[
    str, typer.Argument(metavar="MODEL", help="Model to serve: a workload with `serving` (NAME_decoder), by name or YAML file.")
]
EngineOption = Annotated[
    str, typer.Option("--engine", metavar="NAME", help="Inference engine, a profile with `engine`: vllm, trtllm, sglang, wafer, lpu.")
]
CacheOption = Annotated[str, typer.Option("--kv", metavar="FORMAT", help="Format of the KV cache, such as fp8; absent: as activations.")]
PromptOption = Annotated[float, typer.Option("--isl", metavar="TOKENS", min=1, help="Input sequence length: mean prompt tokens.")]
OutputOption = Annotated[float, typer.Option("--osl", metavar="TOKENS", min=1, help="Output sequence length: mean output tokens.")]
LeastOption = Annotated[
    float, typer.Option("--least", metavar="SHARE", min=0, max=1, help="Shortest length over the longest (1: all alike); uniform between.")
]
DraftsOption = Annotated[
    int, typer.Option("--drafts", metavar="K", min=0, max=64, help="Speculative decoding: tokens drafted a step (MTP or a draft model).")
]
DraftModelOption = Annotated[
    str,
    typer.Option(
        "--draft-model",
        metavar="MODEL",
        help="Draft model; absent: the model's MTP module (without one: no time); free: no time.",
    ),
]
AcceptOption = Annotated[
    float, typer.Option("--accept", metavar="P", min=0, max=1, help="Probability that a draft is accepted if all before it were.")
]


def formats(words: Sequence[str], option: str) -> tuple[str, ...]:
    """The same words. Raises InputError for one that is no format of numbers."""
    from rackmodel.errors import InputError
    from rackmodel.model.resources import width

    for word in words:
        try:
            width(word)
        except ValueError as problem:
            raise InputError(str(problem), path=option)
    return tuple(words)


def drafted(count: int, accepted: float, model: str) -> dict[str, Any]:
    """Fields of a service. Raises InputError where one is missing."""
    if (count > 0) != (accepted > 0):
        raise InputError("drafts want both: how many, and how probably one is kept, such as --drafts 3 --accept 0.8", path="--drafts")
    if model and not count:
        raise InputError("a draft model wants --drafts, the tokens that it makes a step", path="--draft-model")
    return {"drafted": count, "accepted": accepted, "draft_model": model}


def per_token_lines(emitted: JobCarbon | None, paid: JobMoney | None) -> list[str]:
    """What an output token emits (g) and a million of them cost (usd), a line each where it is known."""
    from rackmodel.report.carbon import carbon_words
    from rackmodel.report.money import money_words

    grams = [carbon_words(emitted.to_dict(), " of an output token (g/token)")] if emitted else []
    return grams + ([money_words((paid * 1e6).to_dict(), " of a million output tokens")] if paid else [])
