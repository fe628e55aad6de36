"""`rackmodel serve-trace ARCH MODEL [TRACE.csv]`: requests one by one through an engine, step by step, with percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackmodel.cli import serving_options
from rackmodel.cli.options import ArchitectureArg, JsonOption, SetOption, output_file
from rackmodel.cli.printing import echo, print_json, print_table
from rackmodel.errors import InputError

if TYPE_CHECKING:
    from rackmodel.carbon.costing import JobMoney
    from rackmodel.carbon.job import JobCarbon
    from rackmodel.serving.admission import Trace
    from rackmodel.serving.steps import Deployment

SHOWN = {"queue_s": "queue", "ttft_s": "first token", "tpot_s": "token after it", "request_s": "request"}


DRAWN = {"requests": "--requests", "isl": "--isl", "osl": "--osl", "least": "--least", "seed": "--seed"}
"""Options of requests that are drawn: a file has its own."""


def serve_trace(
    said_by: typer.Context,
    architecture: ArchitectureArg,
    model: serving_options.ModelArg,
    trace: Annotated[
        Path | None,
        typer.Argument(metavar="TRACE.csv", help="Requests with columns arrival_s, prompt, output; absent: give --rate or --concurrency."),
    ] = None,
    engine: serving_options.EngineOption = "vllm",
    rate: Annotated[float | None, typer.Option("--rate", metavar="R", min=0, help="Poisson arrivals, requests a second.")] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, help="Concurrent clients, each waiting for its answer before its next request."),
    ] = None,
    requests: Annotated[
        int, typer.Option("--requests", metavar="N", min=1, max=10**6, help="Number of requests, if no file gives them.")
    ] = 1000,
    isl: serving_options.PromptOption = 1024,
    osl: serving_options.OutputOption = 1024,
    least: serving_options.LeastOption = 1.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of random arrivals and lengths.")] = 0,
    tensor: Annotated[int, typer.Option("--tensor", metavar="N", min=1, help="Degree of tensor parallelism.")] = 1,
    pipeline: Annotated[int, typer.Option("--pipeline", metavar="N", min=1, help="Degree of pipeline parallelism.")] = 1,
    attention_data: Annotated[
        int, typer.Option("--attention-data", metavar="N", min=1, help="Degree of attention data parallelism (DP attention).")
    ] = 1,
    expert: Annotated[int, typer.Option("--expert", metavar="N", min=1, help="Degree of expert parallelism.")] = 1,
    context: Annotated[int, typer.Option("--context", metavar="N", min=1, help="Degree of decode context parallelism.")] = 1,
    prompt_context: Annotated[int, typer.Option("--prompt-context", metavar="N", min=1, help="Degree of prefill context parallelism.")] = 1,
    precision: Annotated[str, typer.Option("--precision", metavar="FORMAT", help="Format of the weights.")] = "",
    kv: serving_options.CacheOption = "",
    drafts: serving_options.DraftsOption = 0,
    accept: serving_options.AcceptOption = 0.0,
    draft_model: serving_options.DraftModelOption = "",
    sets: SetOption = None,
    as_json: JsonOption = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.csv", help="Write every request's figures.")] = None,
) -> None:
    """Simulate requests one by one through one replica; the same trace and seed give the same figures."""
    from rackmodel.carbon.costing import job_money
    from rackmodel.carbon.job import Usage
    from rackmodel.cost.inside.gpu import unmeasured
    from rackmodel.model.misspelt import doubts_of
    from rackmodel.serving.ask import service_of
    from rackmodel.serving.offers import Widths, check_positions, engine_of, workload_of
    from rackmodel.serving.trace import simulate
    from rackmodel.serving.trace_file import place_of_request, read_trace, summary, write_figures

    asked = _asked(trace, rate, concurrency)
    _check_drawn(said_by, trace)
    output_file(output)
    for word, option in ((precision, "--precision"), (kv, "--kv")):
        serving_options.formats([word] if word else [], option)
    degrees = {"tensor": tensor, "pipeline": pipeline, "attention_data": attention_data, "expert": expert, "context": context}
    deployment = _deployment(**degrees, prompt_context=prompt_context)
    service = service_of(architecture, model, sets or (), engine, (isl, osl, 0.0), accelerators=deployment.accelerators)
    service = replace(service, **serving_options.drafted(drafts, accept, draft_model))
    server = engine_of(service, deployment, Widths(precision, kv))
    made = read_trace(trace) if trace is not None else _made(rate, requests, (isl, osl, least), seed)
    told = [*doubts_of(workload_of(service, Widths())), *unmeasured(service.profile, service.machine)]
    longest = int((made.prompt + made.output).argmax())
    tokens = float(made.prompt[longest] + made.output[longest])
    asked_for = "--osl" if made.output[longest] > made.prompt[longest] else "--isl"
    try:
        check_positions(workload_of(service, Widths()), tokens, asked_for if trace is None else "", f"request {longest + 1}")
    except InputError as problem:
        raise problem if trace is None else problem.at(place_of_request(trace, longest)) from None
    figures = simulate(server, made, server.scheduled(1, service.drafts), server.cache_tokens, concurrency, server.held_tokens)
    found = summary(made, figures)
    token = found["joules_per_token"], figures.seconds / float(made.output.sum())
    emitted = None if service.carbon is None else service.carbon.of(*token)
    paid = job_money(service.machine, Usage(), *token)
    if output is not None:
        write_figures(output, made, figures)
    if as_json:
        carbon = {"carbon_per_token": emitted.to_dict()} if emitted else {}
        print_json({"asked": asked, **found, **carbon, **({"money_per_token": paid.to_dict()} if paid else {}), "warnings": told})
        return
    _print(asked, found, emitted, paid, told)


def _check_drawn(said_by: typer.Context, trace: Path | None) -> None:
    """Raise InputError where a file of requests stands beside options of requests that are drawn."""
    said = [option for name, option in DRAWN.items() if getattr(said_by.get_parameter_source(name), "name", "") == "COMMANDLINE"]
    if trace is not None and said:
        raise InputError(f"{trace} has requests of its own: leave {' and '.join(said)} out", path=said[0])


def _deployment(*, expert: int, prompt_context: int, **degrees: int) -> Deployment:
    """The replica of some degrees; what experts are not dealt over splits inside them. Raises InputError where they do not divide it."""
    from rackmodel.serving.steps import Deployment

    stage = degrees["tensor"] * degrees["attention_data"] * prompt_context
    if stage % expert:
        more = " x prompts' context" if prompt_context > 1 else ""
        raise InputError(f"{expert} ranks of experts do not divide {stage}, tensor x attention data{more}", path="--expert")
    return Deployment(**degrees, expert=expert, expert_tensor=stage // expert, prompt_context=prompt_context)


def _asked(trace: Path | None, rate: float | None, concurrency: int | None) -> str:
    """What decides the arrivals. Raises InputError where nothing or too much does."""
    if rate is not None and not rate > 0:
        raise InputError("a rate must be positive", path="--rate")
    if rate is not None and (trace is not None or concurrency is not None):
        raise InputError("a rate has arrivals of its own: leave the trace and --concurrency out", path="--rate")
    if trace is None and rate is None and concurrency is None:
        raise InputError("say when requests arrive: a TRACE.csv, --rate or --concurrency", path="TRACE.csv")
    return f"{concurrency} clients" if concurrency is not None else f"{rate:g} requests a second" if rate is not None else str(trace)


def _made(rate: float | None, count: int, lengths: tuple[float, float, float], seed: int) -> Trace:
    """Requests of even lengths, at a rate or all there at once. Raises InputError where the rate is too small for a clock."""
    from rackmodel.serving.admission import LATEST_S
    from rackmodel.serving.trace import drawn_trace

    if rate is not None and count / rate > LATEST_S / 2.0:
        fact = f"{count:,} requests would take over {LATEST_S / 2.0:.2g} s, where a clock no longer tells microseconds"
        raise InputError(f"{fact}: want at least {2.0 * count / LATEST_S:.2g} a second", path="--rate")
    return drawn_trace(count, lengths, rate, seed)


def _print(asked: str, found: dict[str, Any], emitted: JobCarbon | None, paid: JobMoney | None, told: Sequence[str]) -> None:
    from rich.table import Table

    from rackmodel.report.tables import format_number, format_si, wrapped

    echo(f"{found['requests']:,} request{'s' if found['requests'] > 1 else ''}, {asked}, in {format_si(found['seconds'], 's')}")
    table = Table(box=None, pad_edge=False)
    names = list(found["ttft_s"])
    for head in ("", *names):
        table.add_column(head, justify="right" if head else "left")
    for key, name in SHOWN.items():
        if found[key] is not None:
            table.add_row(name, *(format_si(found[key][part], "s") for part in names))
    print_table(table)
    echo(f"{format_number(found['output_tokens_per_s'])} output tokens a second, {format_number(found['total_tokens_per_s'])} with prompts")
    each, request = (format_si(found[f"joules_per_{one}"], "J", 3) for one in ("token", "request"))
    watts = format_si(found["joules"] / found["seconds"], "W", 3)
    echo(f"{format_si(found['joules'], 'J', 3)}, {watts} in the mean: {each} an output token, {request} a request")
    for line in wrapped([*(f"warning: {one}" for one in told), *serving_options.per_token_lines(emitted, paid)]):
        echo(line)
