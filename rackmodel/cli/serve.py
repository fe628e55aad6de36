"""`rackmodel serve ARCH MODEL`: the deployment that serves a model best, with proof, and the front of throughput against interactivity."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli import serving_options
from rackmodel.cli.answer_first import answer_first
from rackmodel.cli.options import ArchitectureArg, JsonOption, SetOption, folder, limits, words_of
from rackmodel.cli.printing import echo, print_json, print_table
from rackmodel.errors import InputError, check_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rackmodel.report.launch.arguments import Launch
    from rackmodel.serving.offers import Offered, Service
    from rackmodel.serving.search import ServingAnswer

_DIVIDING = "absent: every power of two that divides the accelerators."
TensorOption = typer.Option(metavar="N[,N]", help=f"Degrees of tensor parallelism to try; {_DIVIDING}")
PipelineOption = typer.Option(metavar="N[,N]", help=f"Degrees of pipeline parallelism to try; {_DIVIDING}")
WeightOption = Annotated[
    str, typer.Option("--precision", metavar="FORMAT[,..]", help="Formats of the weights to try: bf16, fp8, nvfp4, ...")
]

LIKE = {"ttft": "1 s", "tpot": "30 ms"}
"""Limits of serving → of what size they are."""


def serve(
    said_by: typer.Context,
    architecture: ArchitectureArg,
    model: serving_options.ModelArg,
    engine: serving_options.EngineOption = "vllm",
    isl: serving_options.PromptOption = 1024,
    osl: serving_options.OutputOption = 1024,
    reuse: Annotated[
        float, typer.Option("--reuse", metavar="SHARE", min=0, max=1, help="Share of a prompt found in the prefix cache.")
    ] = 0.0,
    least: serving_options.LeastOption = 1.0,
    concurrency: Annotated[
        str,
        typer.Option(
            "--concurrency",
            metavar="N[,N]",
            help="Concurrent requests of all replicas together; absent: every power of two for each replica.",
        ),
    ] = "",
    rate: Annotated[
        str, typer.Option("--rate", metavar="R[,R]", help="Poisson arrivals, requests a second, in place of --concurrency.")
    ] = "",
    tensor: Annotated[str, TensorOption] = "",
    pipeline: Annotated[str, PipelineOption] = "",
    attention_data: Annotated[
        str, typer.Option(metavar="N[,N]", help="Degrees of attention data parallelism (DP attention) to try.")
    ] = "1",
    expert: Annotated[str, typer.Option(metavar="N[,N]", help="Degrees of expert parallelism to try.")] = "1",
    context: Annotated[
        str,
        typer.Option(
            metavar="N[,N]",
            help="Degrees of decode context parallelism to try: ranks of a tensor group that keep different tokens of the KV cache.",
        ),
    ] = "1",
    prompt_context: Annotated[
        str,
        typer.Option(
            "--prompt-context",
            metavar="N[,N]",
            help="Degrees of prefill context parallelism to try: tensor groups that share out a prompt's new tokens.",
        ),
    ] = "1",
    chunk: Annotated[
        str, typer.Option("--chunk", metavar="TOKENS[,..]", help="Token budgets of a step (chunked prefill) to try; absent: the engine's.")
    ] = "",
    precision: WeightOption = "",
    kv: serving_options.CacheOption = "",
    pools: Annotated[bool, typer.Option("--pools", help="Try disaggregated serving too: prefill and decode pools on the machine.")] = False,
    prompts_on: Annotated[
        str, typer.Option("--prompts-on", metavar="MACHINE[:N]", help="Prefill on another machine, of N accelerators.")
    ] = "",
    drafts: serving_options.DraftsOption = 0,
    accept: serving_options.AcceptOption = 0.0,
    draft_model: serving_options.DraftModelOption = "",
    minimize: Annotated[
        str, typer.Option("--minimize", metavar="OBJ", help="Objective: throughput (maximized), energy, carbon, money, ttft or tpot.")
    ] = "throughput",
    limit: Annotated[
        list[str] | None, typer.Option("--limit", metavar="NAME=TIME", help="Latency limit: ttft='1 s', tpot='30 ms'.")
    ] = None,
    sets: SetOption = None,
    percentiles: Annotated[
        bool, typer.Option("--percentiles", help="Print p50, p90 and p99 of TTFT and TPOT at the best, by simulating requests.")
    ] = False,
    flags: Annotated[
        str | None, typer.Option("--flags", metavar="ENGINE", help="Print the launch command: vllm, trtllm or sglang.")
    ] = None,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Write the answer, every point, the front and index.html to this folder."),
    ] = None,
) -> None:
    """Find the best deployment to serve a language model, and the front of throughput per accelerator against interactivity; exact."""
    from rackmodel.cli.options import quantity
    from rackmodel.serving.launch import launches_of
    from rackmodel.serving.offers import Widths, token_carbon, token_money
    from rackmodel.serving.search import ServingSpace, check_limited, search_service

    where = folder(output)
    serving_options.formats([kv] if kv else [], "--kv")
    said = limits(limit)
    check_limited(said)
    most = {name: quantity(value, "second", "--limit", LIKE[name]) for name, value in said.items()}
    sets, lengths = sets or [], (isl, osl, reuse)
    uneven = {"variation": (1.0 - least) / (1.0 + least) / 3.0**0.5}
    service = _service(architecture, model, sets, engine, lengths, uneven | serving_options.drafted(drafts, accept, draft_model))
    if pools and prompts_on:
        raise InputError("says that prompts have pools already: leave --pools out", path="--prompts-on")
    own = _own_machine(prompts_on, model, sets, engine, lengths, uneven) if prompts_on else None
    space = ServingSpace(
        tensor=whole(tensor, "--tensor"),
        pipeline=whole(pipeline, "--pipeline"),
        attention_data=whole(attention_data, "--attention-data"),
        expert=whole(expert, "--expert"),
        context=whole(context, "--context"),
        prompt_context=whole(prompt_context, "--prompt-context"),
        widths=tuple(Widths(word, kv) for word in serving_options.formats(words_of(precision, "--precision"), "--precision") or ("",)),
        clients=tuple(float(one) for one in whole(concurrency, "--concurrency")) or None,
        budgets=whole(chunk, "--chunk"),
        rates=_rates(rate),
    )
    answer = search_service(service, space, minimize, most, own or (service if pools else None))
    launches = launches_of(flags, model, answer.best, isl + osl, service) if flags else ()
    emitted, paid = (token_carbon(service, answer.best), token_money(service, answer.best)) if own is None else (None, None)
    spread = _spread(service, answer.best) if percentiles else {}
    carbon = {"carbon_per_token": emitted.to_dict()} if emitted else {}
    money = {"money_per_token": paid.to_dict()} if paid else {}
    data = answer.to_dict() | carbon | money | ({"percentiles": spread} if spread else {}) | _told(launches)
    with answer_first(as_json=as_json) as write:
        if where is not None:
            from rackmodel.cli.served_files import write_served

            words = [_asked(service), _command(said_by)]
            write(lambda: write_served(where, answer, data, words, launches))
        if as_json:
            print_json(data)
            return
        _print(answer, _asked(service))
        _print_beside(answer.warnings, serving_options.per_token_lines(emitted, paid), spread, launches)


def _command(said_by: typer.Context) -> str:
    """The command that asks again, but for where files go."""
    found = ["rackmodel", "serve"]
    for one in said_by.command.params:
        source, value = said_by.get_parameter_source(str(one.name)), said_by.params[str(one.name)]
        if getattr(source, "name", "") != "COMMANDLINE" or one.name in ("output", "as_json"):
            continue
        each = value if isinstance(value, list | tuple) else [value]
        option = [max(one.opts, key=len)] if one.param_type_name == "option" else []
        found += option if value is True else [word for part in each for word in (*option, _word(part))]
    return shlex.join(found)


def _word(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _print_beside(
    warnings: Sequence[str], token: Sequence[str], spread: Mapping[str, Mapping[str, float]], launches: Sequence[Launch]
) -> None:
    """What stands below the table. token: what a token emits and costs · spread: figure → share of requests → seconds."""
    from rackmodel.report.tables import format_si, wrapped

    shares = {name: ", ".join(f"{share} {format_si(value, 's', 3)}" for share, value in one.items()) for name, one in spread.items()}
    for line in wrapped(
        [*(f"warning: {one}" for one in warnings), *token, *(f"{name.upper()} at the best: {words}" for name, words in shares.items())]
    ):
        echo(line)
    for line in (line for one in launches for line in one.lines()):
        echo(line)


def _spread(service: Service, best: Offered) -> dict[str, dict[str, float]]:
    """Percentiles of the best. Raises InputError where it is one of pools, whose requests are not run one by one."""
    from rackmodel.serving.offers import Offer
    from rackmodel.serving.percentiles import percentiles_of

    if not isinstance(best, Offer):
        raise InputError("the best has pools of prompts and of decodes, whose requests are not run one by one", path="--percentiles")
    return percentiles_of(service, best)


def _told(launches: Sequence[Launch]) -> dict[str, Any]:
    """The launches of an answer: one, or one of each pool."""
    told = [one.to_dict() for one in launches]
    return {"flags": told[0] if len(told) == 1 else told} if told else {}


def _service(
    machine: str, model: str, sets: Sequence[str], engine: str, lengths: tuple[float, float, float], drafts: dict[str, Any]
) -> Service:
    from dataclasses import replace

    from rackmodel.serving.ask import service_of

    return replace(service_of(machine, model, sets, engine, lengths), **drafts)


def _own_machine(
    said: str, model: str, sets: Sequence[str], engine: str, lengths: tuple[float, float, float], uneven: dict[str, Any]
) -> Service:
    """The service of MACHINE[:N], to which what --set says of the workload and the profile applies, too."""
    name, _, count = said.partition(":")
    if count and not (count.isascii() and count.isdecimal() and 0 < int(count) <= 10**6):
        raise InputError(f"'{count}': want a whole number of accelerators, such as {name}:8", path="--prompts-on")
    mine = [one for one in sets if one.startswith(("workload.", "profile."))] + ([f"accelerators={count}"] if count else [])
    return _service(name, model, mine, engine, lengths, uneven)


def whole(text: str, option: str) -> tuple[int, ...]:
    """'1,2,4' → (1, 2, 4). Raises InputError."""
    found = []
    for word in words_of(text, option):
        if not (word.isascii() and word.isdecimal() and 0 < int(word) <= 10**6):
            raise InputError(f"'{word}': want whole numbers from 1 to a million, such as 1,2,4", path=option)
        found.append(int(word))
    check_once(found, option)
    return tuple(found)


def _rates(text: str) -> tuple[float, ...]:
    """'0.5,2' → (0.5, 2.0). Raises InputError."""
    found = []
    for word in words_of(text, "--rate"):
        try:
            found.append(float(word))
        except ValueError:
            found.append(0.0)
        if not 1e-6 <= found[-1] <= 1e9:
            raise InputError(f"'{word}': want requests a second from 1e-6 to 1e9, such as 0.5,2", path="--rate")
    check_once(found, "--rate")
    return tuple(found)


def _asked(service: Service) -> str:
    """What is served, on what and by which engine: absent options are facts of the answer too."""
    from rackmodel.serving.offers import Widths, workload_of

    machine, number = service.machine, service.machine.used
    what = f"{workload_of(service, Widths()).name} on {machine.name}, {number} accelerator{'s' if number > 1 else ''}"
    return f"{what}, by {service.profile.name}: {service.prompt:,.0f} tokens in and {service.output:,.0f} out"


def _print(answer: ServingAnswer, asked: str) -> None:
    from rich.table import Table

    echo(asked)
    certificate = answer.certificate
    left = "".join(f", {count} infeasible by {why}" for why, count in answer.infeasible.items())
    echo(f"best of {certificate.space:g} operating points, {certificate.status}: {certificate.evaluated} priced{left}")
    if certificate.minimize == "throughput" and getattr(answer.best, "rate", None) is not None:
        echo("a rate is the throughput of all that keep up with it: the best takes the least energy of them")
    shown = list(answer.front) if answer.best in answer.front else [answer.best, *answer.front]
    chunks = {offer.budget for offer in shown}
    said = f"; chunks of {chunks.pop()} tokens" if len(chunks) == 1 else ""
    apart = "; prompts > decodes" if any(not hasattr(offer, "replicas") for offer in shown) else ""
    several = "tpot" in answer.best.figures
    axes = "tokens/s per accelerator and per client" if several else "tokens/s per accelerator and TTFT, of answers of one token"
    table = Table(box=None, pad_edge=False, title=f"front: {axes}, of replicas x degrees (* = best{said}{apart})", title_justify="left")
    asked = "req/s" if any(getattr(offer, "rate", None) is not None for offer in shown) else "clients"
    heads = ["deployment", asked, *(["chunk"] if chunks else []), "per\naccel.", *(["per\nclient", "TPOT"] if several else []), "TTFT"]
    paid = certificate.minimize == "money"
    told = paid or any("grams_per_token" in offer.figures for offer in shown)
    for head in ("", *heads, "J a\ntoken", *(["$ a\nMtoken" if paid else "g a\ntoken"] if told else [])):
        words = head == "deployment"
        table.add_column(head, justify="left" if words else "right", no_wrap=not words)
    for offer in shown:
        *cells, price = _cells(offer, chunked=bool(chunks), paid=paid)
        table.add_row("*" if offer is answer.best else "", *cells, *([price] if told else []))
    print_table(table)


def _cells(offer: Offered, *, chunked: bool, paid: bool) -> list[str]:
    """A row of the front. chunked: whether the budget of a step is told · paid: whether money is, in place of grams."""
    from rackmodel.cli.deployed import deployed
    from rackmodel.report.tables import format_number, format_si

    figures = offer.figures
    seen, tpot = (figures.get(name) for name in ("interactivity", "tpot"))
    return [
        f"{deployed(offer)}{' ' + offer.widths.weight if offer.widths.weight else ''}",
        f"{_load(offer):g}",
        *([str(offer.budget)] if chunked else []),
        format_number(figures["tokens_per_s_per_accelerator"], 3),
        *([] if seen is None or tpot is None else [format_number(seen, 3), format_si(tpot, "s", 3)]),
        format_si(figures["ttft"], "s", 3),
        format_si(figures["joules_per_token"], "J", 3),
        format_number(1e6 * figures["usd_per_token"], 3) if paid else format_si(figures.get("grams_per_token"), "g", 3),
    ]


def _load(offer: Offered) -> float:
    """Requests a second, or clients, of all replicas or workers, as --rate and --concurrency count them."""
    from rackmodel.serving.offers import Offer

    if not isinstance(offer, Offer):
        return offer.clients
    return offer.replicas * (offer.clients if offer.rate is None else offer.rate)
