"""`rackmodel serve ARCH MODEL`: the deployment that serves a model best, with proof, and the front of throughput against interactivity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rackmodel.cli.options import ArchitectureArg, JsonOption, SetOption, echo, limits, print_json, print_table

if TYPE_CHECKING:
    from rackmodel.serving.offers import Offer
    from rackmodel.serving.search import ServingAnswer

ModelArg = Annotated[str, typer.Argument(metavar="MODEL", help="A decoder's step: a workload with `serving`, by name or YAML file.")]
EngineOption = Annotated[str, typer.Option("--engine", metavar="NAME", help="A profile with `engine`: vllm, trtllm, sglang.")]
DegreesOption = typer.Option(metavar="N[,N]", help="Degrees to try; none: every power of two that divides the accelerators.")
WeightOption = Annotated[str, typer.Option("--precision", metavar="FORMAT[,..]", help="Formats of the weights: bf16, fp8, nvfp4, ...")]
CacheOption = Annotated[str, typer.Option("--kv", metavar="FORMAT", help="Format of the caches: fp8; none: as activations.")]


def serve(
    architecture: ArchitectureArg,
    model: ModelArg,
    engine: EngineOption = "vllm",
    isl: Annotated[float, typer.Option("--isl", metavar="TOKENS", min=1, help="Mean prompt tokens.")] = 1024,
    osl: Annotated[float, typer.Option("--osl", metavar="TOKENS", min=1, help="Mean output tokens.")] = 1024,
    reuse: Annotated[float, typer.Option("--reuse", metavar="SHARE", min=0, max=1, help="Share of a prompt found in the cache.")] = 0.0,
    concurrency: Annotated[
        str, typer.Option("--concurrency", metavar="N[,N]", help="Clients of all replicas together; none: every power of two of each.")
    ] = "",
    tensor: Annotated[str, DegreesOption] = "",
    pipeline: Annotated[str, DegreesOption] = "",
    attention_data: Annotated[str, typer.Option(metavar="N[,N]", help="Ranks of attention data parallelism to try.")] = "1",
    expert: Annotated[str, typer.Option(metavar="N[,N]", help="Degrees of expert parallelism to try.")] = "1",
    chunk: Annotated[str, typer.Option("--chunk", metavar="TOKENS[,..]", help="Token budgets of a step; none: the engine's.")] = "",
    precision: WeightOption = "",
    kv: CacheOption = "",
    minimize: Annotated[
        str, typer.Option("--minimize", metavar="OBJ", help="throughput (the most), energy, carbon, ttft or tpot.")
    ] = "throughput",
    limit: Annotated[
        list[str] | None, typer.Option("--limit", metavar="NAME=TIME", help="What may not be exceeded: ttft='1 s', tpot='30 ms'.")
    ] = None,
    sets: SetOption = None,
    flags: Annotated[str | None, typer.Option("--flags", metavar="ENGINE", help="Print what starts it: vllm, trtllm or sglang.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a model: every deployment of the space is priced; the best within the limits, and the front, are exact."""
    from rackmodel.cli.options import quantity
    from rackmodel.inputs import read_profile
    from rackmodel.report.carbon import carbon_words
    from rackmodel.serving.ask import service_of
    from rackmodel.serving.launch import serving_launch
    from rackmodel.serving.offers import Widths, token_carbon
    from rackmodel.serving.search import ServingSpace, search_service

    most = {name: quantity(value, "second", "--limit") for name, value in limits(limit).items()}
    service = service_of(architecture, model, sets or (), read_profile(engine), (isl, osl, reuse))
    space = ServingSpace(
        tensor=whole(tensor, "--tensor"),
        pipeline=whole(pipeline, "--pipeline"),
        attention_data=whole(attention_data, "--attention-data"),
        expert=whole(expert, "--expert"),
        widths=tuple(Widths(word.strip(), kv) for word in precision.split(",")),
        clients=tuple(float(one) for one in whole(concurrency, "--concurrency")) or None,
        budgets=whole(chunk, "--chunk"),
    )
    answer = search_service(service, space, minimize, most)
    launch = serving_launch(flags, model, answer.best, isl + osl) if flags else None
    emitted = token_carbon(service, answer.best)
    if as_json:
        carbon = {"carbon_per_token": emitted.to_dict()} if emitted else {}
        print_json(answer.to_dict() | carbon | ({"flags": launch.to_dict()} if launch else {}))
        return
    _print(answer)
    if emitted:
        echo(carbon_words(emitted.to_dict(), " of an output token (g/token)"))
    for line in launch.lines() if launch else []:
        echo(line)


def whole(text: str, option: str) -> tuple[int, ...]:
    """'1,2,4' → (1, 2, 4). Raises InputError."""
    from rackmodel.errors import InputError

    found = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if not (word.isascii() and word.isdecimal() and 0 < int(word) <= 10**6):
            raise InputError(f"'{word}': want whole numbers from 1, such as 1,2,4", path=option)
        found.append(int(word))
    return tuple(dict.fromkeys(found))


def _print(answer: ServingAnswer) -> None:
    from rich.table import Table

    certificate = answer.certificate
    left = ", ".join(f"{count} for {why}" for why, count in answer.infeasible.items())
    echo(f"best of {certificate.space:g} operating points, {certificate.status}: {certificate.evaluated} priced{left and f', not {left}'}")
    shown = list(answer.front) if answer.best in answer.front else [answer.best, *answer.front]
    chunks = {offer.budget for offer in shown}
    said = f"; chunks of {chunks.pop()} tokens" if len(chunks) == 1 else ""
    title = f"front: tokens/s per accelerator and per client, of replicas x degrees (* = best{said})"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    heads = ("", "deployment", "clients", *(["chunk"] if chunks else []), "per accel.", "per client", "TPOT", "TTFT")
    for head in (*heads, "J a token", "g a token"):
        table.add_column(head, justify="left" if head == "deployment" else "right", no_wrap=head == "deployment")
    for offer in shown:
        table.add_row("*" if offer is answer.best else "", *_cells(offer, chunked=bool(chunks)))
    print_table(table)


def _cells(offer: Offer, *, chunked: bool) -> list[str]:
    """A row of the front. chunked: whether the budget of a step is told."""
    from rackmodel.report.tables import format_number, format_si

    one, figures = offer.deployment, offer.figures
    parts = [("tp", one.tensor), ("pp", one.pipeline), ("dp", one.attention_data), ("ep", one.expert)]
    words = " ".join(f"{name} {degree}" for name, degree in parts if degree > 1) or "1"
    grams = figures.get("grams_per_token")
    return [
        f"{offer.replicas} x {words}{' ' + offer.widths.weight if offer.widths.weight else ''}",
        f"{offer.clients:g}",
        *([str(offer.budget)] if chunked else []),
        format_number(figures["tokens_per_s_per_accelerator"], 3),
        format_number(figures["interactivity"], 3),
        format_si(figures["tpot"], "s", 3),
        format_si(figures["ttft"], "s", 3),
        format_si(figures["joules_per_token"], "J", 3),
        "" if grams is None else format_si(grams, "g", 3),
    ]
