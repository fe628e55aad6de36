"""The shape of a result's file, as far as later commands read it: a file that was changed by hand, or is of another program, is refused
with the path of what is not as it is written, so that no command meets a word where a number is due. Keys beyond these are let through."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from rackmodel.errors import InputError, Where


class Written(BaseModel):
    """Plain JSON, nothing converted. A default: the key may be absent, as of files that --json wrote."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Asked(Written):
    """The inputs of the command that wrote it."""

    architecture: str | None = None
    workload: str | None = None
    mapper: str | None = None
    mapping: str | None = None
    sets: list[str] | None = None
    minimize: str | None = None
    profile: str | None = None
    limits: dict[str, str] | None = None
    options: list[str] | None = None


class Limited(Written):
    """What the critical path waits for most."""

    what: str
    share: NonNegativeFloat


class Proof(Written):
    """The certificate."""

    status: str = ""
    minimize: str = ""
    space: NonNegativeFloat = 0.0
    evaluated: NonNegativeInt = 0
    infeasible: dict[str, NonNegativeFloat] | None = None
    seconds: NonNegativeFloat | None = None
    searched: bool = True


class Answer(Written):
    """A result but the rows of its ledger, which `saved` reads."""

    architecture: str
    workload: str
    mapper: str
    latency_s: NonNegativeFloat
    energy_j: NonNegativeFloat
    accelerators: PositiveInt
    carbon_g: NonNegativeFloat | None = None
    memory_bytes_per_accelerator: NonNegativeFloat | None = None
    memory: dict[str, NonNegativeFloat] | None = None
    mfu: NonNegativeFloat | None = None
    tokens: NonNegativeFloat | None = None
    warnings: list[str] | None = None
    limited_by: Limited | None = None
    certificate: Proof | None = None
    ledger: list[Any]


class Room(Written):
    """The memory of an accelerator."""

    capacity_bytes: NonNegativeFloat | None = None
    bandwidth_bytes_per_s: NonNegativeFloat | None = None


class Point(Written):
    """An operation in the roofline."""

    phase: str
    einsum: str
    flop: NonNegativeFloat
    bytes: NonNegativeFloat
    seconds: NonNegativeFloat
    intensity: NonNegativeFloat
    rate: NonNegativeFloat
    exposed: NonNegativeFloat


class Use(Written):
    """A resource of a level in use."""

    what: Literal["memory", "network", "compute"]
    share: NonNegativeFloat
    amount: str
    words: str


class Level(Written):
    """A row of the machine's tree."""

    name: str
    depth: NonNegativeInt
    count: PositiveInt
    axes: str
    uses: list[Use]


class Operation(Written):
    """A row of the workload's graph."""

    name: str
    after: list[str]
    split: str
    stage: NonNegativeInt


class Timeline(Written):
    """What the stages do: shares[stage][kind][moment], in thousandths."""

    seconds: NonNegativeFloat
    stages: list[int]
    of: PositiveInt
    kinds: list[Literal["forward", "backward", "update", "exposed communication"]]
    shares: list[list[list[NonNegativeFloat]]]
    whole: list[NonNegativeFloat]


class Member(Written):
    """A mapping of a front."""

    mapping: str
    latency_s: NonNegativeFloat
    energy_j: NonNegativeFloat
    memory_bytes_per_accelerator: NonNegativeFloat
    carbon_g: NonNegativeFloat | None = None
    total_carbon_g: NonNegativeFloat | None = None
    tcdp_g_s: NonNegativeFloat | None = None
    money_usd: NonNegativeFloat | None = None


class Front(Written):
    """A Pareto front."""

    status: str
    figures: list[str]
    points: list[Member]


class Part(Written):
    """A share of a whole run."""

    seconds: NonNegativeFloat
    joules: NonNegativeFloat
    carbon_g: NonNegativeFloat | None


class Range(Written):
    """Grams."""

    low: float
    mid: float
    high: float


class Grams(Written):
    """Carbon of a whole run."""

    use: Range
    idle: Range
    embodied: Range | None
    total: Range
    basis: dict[str, str]


class Run(Part):
    """A whole run."""

    steps: PositiveInt
    step_s: NonNegativeFloat
    interval_s: NonNegativeFloat | None
    state_bytes: NonNegativeFloat
    write_s: NonNegativeFloat
    failures: NonNegativeFloat
    mtbf_s: NonNegativeFloat | None
    checkpoints: NonNegativeInt
    parts: dict[str, Part]
    carbon: Grams | None


class Started(Written):
    """The arguments that start a mapping, and the file that belongs to them."""

    framework: str
    lines: list[str]
    name: str
    config: str


def _together(data: Timeline | None) -> Timeline | None:
    if data is not None:
        kinds, moments = len(data.kinds), {len(row) for stage in data.shares for row in stage}
        shapes = len(data.stages) == len(data.shares), len(data.whole) == kinds, all(len(stage) == kinds for stage in data.shares)
        if not all(shapes) or len(moments) != 1 or moments == {0}:
            raise ValueError("stages, kinds and shares do not belong together")
    return data


def _there(ops: list[Operation] | None) -> list[Operation] | None:
    names = {op.name for op in ops or ()}
    lost = [(op.name, before) for op in ops or () for before in op.after if before not in names]
    if lost:
        raise ValueError("{} waits for {}, which is not there".format(*lost[0]))
    return ops


NotDrawn = BeforeValidator(lambda data: data or None)  # {} of a step with too much to draw


class Shown(Written):
    """Its words, and what pictures are drawn from."""

    mapping: str = ""
    limits: list[str] | None = None
    lines: list[str] | None = None
    peak_flop_per_s: NonNegativeFloat | None = None
    memory: Room | None = None
    roofline: list[Point] | None = None
    facts: list[dict[str, Any]] | None = None
    tree: list[Level] | None = None
    timeline: Annotated[Timeline | None, NotDrawn, AfterValidator(_together)] = None
    graph: Annotated[list[Operation] | None, AfterValidator(_there)] = None
    front: Front | None = None
    run: Run | None = None
    launch: Started | None = None


class File(Written):
    """A result's file."""

    asked: Asked | None = None
    asked_in: str | None = None
    result: Answer
    shown: Shown | None = None


def check_shape(data: Any, file: str) -> None:
    """Raise an InputError that names the first place where a file is not as it is written."""
    try:
        File.model_validate(data)
    except ValidationError as found:
        first = found.errors(include_url=False, include_context=False)[0]
        path, why = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        given = "" if first["type"] in ("missing", "value_error") else f"{first['input']!r:.40}: "
        raise InputError(f"is no result as -o or --json writes it: {path}: {given}{why[:1].lower()}{why[1:]}", where=Where(file)) from None
