"""A profile: what a framework fuses, overlaps and launches, as data. It is named in every result that was priced under it."""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from rackmodel.errors import InputError
from rackmodel.model.calls import LibraryCall
from rackmodel.model.opkinds import KINDS
from rackmodel.model.resources import width
from rackmodel.model.schema import Spec
from rackmodel.units import Bytes, Plain, Seconds

Share = Annotated[Plain, Field(ge=0.0, le=1.0)]


class Window(Spec):
    """The operation beside which a collective on activations runs, and how much of that operation's time may hide it."""

    beside: Literal["reader", "maker", "sibling", "pass", "none"] = Field(
        default="none",
        description="reader: the contractions that read what it brings; maker: those that made what it moves; sibling: the others of these "
        "operations' backward passes, which do not wait for it; pass: all of the layer's pass, for those of another micro-batch run "
        "meanwhile, which are as long",
    )
    share: Share = Field(default=1.0, description="share of that time that may hide the collective")


class Overlap(Spec):
    """Which collectives run beside compute, limited by data dependence and by their windows."""

    weights: bool = Field(default=False, description="true: gathers and streams of weights run beside compute")
    gradients: bool | None = Field(
        default=None, description="true: reductions of weight gradients run beside the backward pass; absent = as weights"
    )
    channels: Literal["shared", "separate"] = Field(
        default="shared",
        description="shared: gathers of weights and reductions of their gradients take turns; separate: each has its own way",
    )
    ahead: Annotated[float, Field(gt=0.0)] | None = Field(
        default=None,
        description="elements of a weight that is gathered and in use beside which the next is not gathered ahead; absent = it always is",
    )
    regather: bool = Field(
        default=False, description="true: weights gathered to recompute a layer are dropped, and gathered again for its backward pass"
    )
    sends: bool = Field(default=False, description="true: sends between pipeline stages run beside compute")
    contention: Share = Field(default=0.0, description="share by which compute slows while a collective runs beside it")
    windows: dict[Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all"], Window] = Field(
        default_factory=dict, description="collective on activations → the operation that hides it; absent = nothing does"
    )

    @property
    def most_ahead(self) -> float:
        """Elements of a gathered weight beside which none is gathered ahead."""
        return inf if self.ahead is None else self.ahead

    @property
    def hides_gradients(self) -> bool:
        """Whether reductions of weight gradients run beside compute."""
        return self.weights if self.gradients is None else self.gradients

    @property
    def windowed(self) -> bool:
        """Whether some operation hides collectives on activations."""
        return any(window.beside != "none" for window in self.windows.values())


class Buckets(Spec):
    """In how large calls parameters are gathered and their gradients reduced: what a call costs whatever it moves is paid once a call.

    A tensor pays its part of it: its share of what `holds` names or of the bytes to fill, whichever is less, and never more than one.
    """

    holds: Literal["tensor", "operand", "layer", "stage"] = Field(
        default="tensor",
        description="what a call holds at least: a tensor, those that multiply one operand (queries, keys and values), a layer's, those of "
        "a section's layers on a pipeline stage",
    )
    whole: Annotated[float, Field(ge=0.0)] = Field(
        default=0.0, description="elements of a weight up to which it is not sharded though its home says so: no call is made for it"
    )
    rank_s: Seconds = Field(
        default=0.0, alias="rank", description="time of a call for each rank of its group, whose parts are copied one by one"
    )
    unpacked: Plain = Field(
        default=0.0,
        description="bytes that a kernel moves for an element of a weight that was gathered, to copy what arrived to where it is read",
    )
    packed: Plain = Field(
        default=0.0, description="bytes that a kernel moves for an element of a weight's gradient before a reduction, to order it by ranks"
    )
    fill_bytes: Bytes = Field(
        default=0.0, alias="fill", description="bytes of gradients that are put together in a call; updated parameters in the same calls"
    )
    fill_bytes_per_rank: Bytes = Field(
        default=0.0, alias="fill_per_rank", description="the same for each rank of the group, where that is more"
    )


class Updates(Spec):
    """Passes over gradients and parameters that a step makes beside the optimizer's own."""

    whole: Annotated[Plain, Field(ge=0.0)] = Field(
        default=0.0,
        description="times that a step reads or writes the gradients an accelerator sums, beside the products that make them: zeroed, read "
        "by the first micro-batch that adds to them, scaled before they are reduced, checked",
    )
    shard_bytes: Annotated[Plain, Field(ge=0.0)] = Field(
        default=0.0,
        alias="shard",
        description="bytes that a step moves for each element an accelerator updates, beside the optimizer: norm, clipping, copies",
    )


class GradientsKept(Spec):
    """Of gradients of what stages hand over: those that come back, and those that go back."""

    received: Literal["flight", "step"] = Field(
        default="flight", description="step: every micro-batch has a buffer of its own for what comes back, from a step's begin to its end"
    )
    sent: Literal["flight", "step"] = Field(default="flight", description="step: what went back stays until the step ends")


class PipelineKeeps(Spec):
    """What a stage of a pipeline keeps of what it takes from its neighbours and hands to them, beside what its backward passes read."""

    inputs: Literal["flight", "step"] = Field(
        default="flight",
        description="flight: what comes from the stage before is there while its backward pass needs it; step: every micro-batch has a "
        "buffer of its own for it, from a step's begin to its end",
    )
    outputs: Literal["none", "flight", "step"] = Field(
        default="none",
        description="none: what was sent to the next stage is freed; flight: it stays until its backward pass; step: until the step ends",
    )
    gradients: GradientsKept = Field(default=GradientsKept(), description="their gradients")
    results: Literal["none", "step"] = Field(
        default="none",
        description="step: what the loss reads of every micro-batch, at the width of activations, stays on the last stage until the step "
        "ends, and is put together then",
    )


class Host(Spec):
    """What the host spends on launching work; a layer takes the longer of device and host."""

    layer_s: Seconds = Field(default=0.0, alias="layer", description="host time of one pass (forward or backward) over one layer")
    launch_s: Seconds = Field(default=0.0, alias="launch", description="host time of each kernel or collective of it, beside that")
    expert: Annotated[Plain, Field(gt=0.0)] = Field(
        default=1.0, description="launches that the product of one expert counts as, where `grouped` is each"
    )

    backward_s: Seconds = Field(
        default=0.0, alias="backward", description="host time of a backward pass beside that: gradients added up, biases, reruns"
    )

    hand_over_s: Seconds = Field(
        default=0.0,
        alias="hand_over",
        description="host time of a hand-over between stages that nothing hides, as where the device is waited for before work goes on",
    )

    def seconds(self, launches: Any, *, backward: bool) -> Any:
        """Of one pass over a layer that launches so many kernels and collectives; of many where `launches` is an array."""
        return self.layer_s + (self.backward_s if backward else 0.0) + self.launch_s * launches


class Moves(Spec):
    """Kernels of one pass that move what lies in memory, and do nothing else that takes time."""

    kernels: PositiveInt = Field(default=1, description="kernels that it runs as")
    bytes: Plain = Field(
        default=0.0,
        description="bytes that they move for an element of the first operand (of `dispatch`: of its result; of `heads`: of the queries), "
        "beside the operation's operands and result",
    )


class OverRanks(Spec):
    """What kernels take more where ranks share the index that an operation normalises over, as tensor parallelism does a vocabulary."""

    bytes: Plain = Field(default=0.0, description="bytes that they move beside, for an element of the first operand")
    held: Plain = Field(default=0.0, description="bytes that they hold at once beside, for such an element")


class KernelRun(Moves):
    """What one pass of an operation takes where nothing fuses it."""

    prompts: PositiveInt | None = Field(
        default=None, description="kernels that the host launches for it in a step that has prompts; absent = as many as `kernels`"
    )
    held: Plain = Field(default=0.0, description="bytes that they hold at once for such an element, beside the operands' gradients")
    skipped: Share = Field(default=0.0, description="share of its operands that it does not read, as a causal mask hides it")
    streams: bool = Field(
        default=False, description="true: they reach what sums and casts do of the memory's bandwidth, not what norms and softmax do"
    )
    over_ranks: OverRanks = Field(
        default=OverRanks(), description="more of both where ranks share the index that it normalises over (a loss' vocabulary)"
    )


class Ring(Spec):
    """Kernels that join the parts of attention where keys and values go round among ranks that share a context."""

    forward: Plain = Field(default=0.0, description="bytes that they move for an element of the queries, for each other rank's part")
    backward: Plain = Field(default=0.0, description="the same of the backward pass: gradients added up as they go round")


class Heads(Spec):
    """Kernels around attention beside its operations: queries, keys and values put together, their biases, results transposed."""

    forward: Moves = Field(default=Moves(), description="forward pass")
    backward: Moves = Field(default=Moves(), description="backward pass")
    ring: Ring = Field(default=Ring(), description="and those that join the parts of a context; absent = none")


class Composite(Spec):
    """An operation that a framework runs as several kernels."""

    forward: KernelRun = Field(default=KernelRun(), description="forward pass")
    backward: KernelRun = Field(default=KernelRun(), description="backward pass")


class Casts(Spec):
    """What an element takes to be cast for products of low precision, in bytes of memory traffic: the largest value looked for, read,
    scaled, written, written transposed."""

    activation: Plain = Field(default=0.0, description="of an activation, once a pass of the operation that reads it first")
    weight: Plain = Field(default=0.0, description="of a weight, in every micro-batch; 0: what was cast is kept for the step")
    again: Plain = Field(default=0.0, description="of an activation or a weight, once more in the backward pass")
    gradient: Plain = Field(default=0.0, description="of a result's gradient, once for both products that read it")
    fused: list[str] = Field(default_factory=list, description="kinds of operations whose kernel writes its result cast: no cast of it")
    sent: str | None = Field(
        default=None, description="width at which operands go from accelerator to accelerator ('16 bit'); absent = as they are multiplied"
    )
    kept: str | None = Field(
        default=None, description="width at which activations are kept for the backward pass; absent = as they are multiplied"
    )

    @model_validator(mode="after")
    def _widths(self) -> Casts:
        for said in (self.sent, self.kept):
            if said is not None:
                width(said)
        return self


class SharedExperts(Spec):
    """Steps in which an engine runs shared experts beside the routed ones, on a stream of their own."""

    tokens: NonNegativeInt | None = Field(default=None, description="most tokens of a rank's step; absent = any number")
    steps: Literal["all", "captured"] = Field(default="all", description="captured: those alone that run as captured graphs")
    without: list[str] = Field(default_factory=list, description="ways of `collectives.exchange` with which none does")


class Engine(Spec):
    """How a serving engine forms its steps, what it launches as captured graphs, and what it keeps for itself."""

    steps: Literal["mixed", "prompts_first"] = Field(
        default="mixed", description="mixed: prompts share steps with decodes; prompts_first: they have steps of their own, decodes wait"
    )
    token_budget: PositiveInt = Field(default=8192, description="most tokens of a step")
    budgets: dict[Bytes, PositiveInt] = Field(
        default_factory=dict, description="`token_budget` where none is said: of accelerators that show so much memory, or more"
    )
    budget_of: Literal["rank", "replica"] = Field(
        default="rank", description="whose these are: of each rank of attention data parallelism, or of all, which have equal parts"
    )
    chunked: bool = Field(default=True, description="whether a prompt may be cut at the budget")
    sequences: PositiveInt = Field(default=1024, description="most requests at once")
    sequences_of: Literal["replica", "rank"] = Field(
        default="replica", description="whose these are: of all ranks of attention data parallelism, or of each"
    )
    ahead: NonNegativeInt = Field(default=0, description="steps that are scheduled before a new request can join")
    held: NonNegativeInt = Field(default=0, description="steps for which a new prompt waits for company")
    held_until: Share = Field(default=1.0, description="share of the budget that ends that wait")
    polled: PositiveInt = Field(default=1, description="decode steps from one look at the queue to the next")
    asks_first: bool = Field(
        default=False,
        description="of pools: whether a worker of decodes sets room aside before the prompt begins; else it asks for the cache after it",
    )
    first_again: bool = Field(
        default=False, description="of pools: whether a worker of decodes computes the first token once more, from the cache that it got"
    )
    reserves: bool = Field(default=False, description="whether a request is admitted only when its whole output fits the cache")
    evicts: bool = Field(
        default=False,
        description="whether a request is admitted as soon as its prompt fits the cache, and the newest one is put out when others' tokens "
        "need its room: what it has is computed again when it fits",
    )
    estimates: bool = Field(
        default=False,
        description="whether a request is admitted by an estimate of what those that run will add to the cache, and who has fewest tokens "
        "is retracted when it was too low: what it has is computed again, behind all that wait",
    )
    graph_sequences: NonNegativeInt = Field(default=512, description="most decodes of a step that is launched as a captured graph")
    graphs_of: Literal["sequence", "token"] = Field(
        default="sequence",
        description="what `graph_sequences` and `padding` count where tokens are drafted: sequences that decode, or their tokens of a step",
    )
    padding: dict[PositiveInt, PositiveInt] = Field(
        default_factory=dict, description="decodes of a captured graph: up to so many, a step is padded to the next multiple of so many"
    )
    graph_tokens: NonNegativeInt = Field(default=0, description="most tokens of a step with prompts that is launched as captured graphs")
    shared_experts: SharedExperts | None = Field(
        default=None, description="steps that run shared experts beside the routed ones; absent = one after the other in all"
    )
    prompt_context: list[Literal["gqa", "mla", "dsa"]] = Field(
        default_factory=list,
        description="kinds of attention whose prompts it shares out over accelerators: of grouped queries, latent, of picked tokens",
    )
    request_s: Seconds = Field(
        default=0.0, alias="request", description="server and client together: from a request's arrival to the queue, and its token back"
    )
    tokenize_s: Seconds = Field(
        default=0.0, alias="tokenize", description="server, for each token of a prompt, from a request's arrival to the queue"
    )
    step_s: Seconds = Field(default=0.0, alias="step", description="host time of a step that nothing hides")
    exposed_s: Seconds = Field(
        default=0.0, alias="exposed", description="host time of a step for each sequence of a rank that nothing hides, beside `step`"
    )
    sequence_s: Seconds = Field(
        default=0.0,
        alias="sequence",
        description="host time of a step for each sequence of a rank: beside the device where steps are scheduled ahead, else after it",
    )
    memory_share: Share = Field(default=0.9, description="share of the accelerator's memory that weights, caches and work may take")
    memory_share_of: Literal["all", "free"] = Field(
        default="all", description="free: the share is of what weights and `reserved` leave, for caches alone"
    )
    reserved_bytes: Bytes = Field(default=0.0, alias="reserved", description="of that, what is neither weights nor caches")

    @model_validator(mode="after")
    def _admits_one_way(self) -> Engine:
        said = [name for name in ("reserves", "evicts", "estimates") if getattr(self, name)]
        if len(said) > 1:
            raise ValueError(f"{' and '.join(said)}: requests are admitted in one of these ways; let the others be false")
        return self

    def on(self, memory_bytes: float) -> Engine:
        """The same engine on accelerators that show so much memory, with their budget where none is said."""
        within = [least for least in self.budgets if least <= memory_bytes]
        if "token_budget" in self.model_fields_set or not within:
            return self
        return self.model_copy(update={"token_budget": self.budgets[max(within)]})


class Merged(Spec):
    """Kernels that take several operations: of a forward pass, products of every pass."""

    projections: bool = Field(
        default=False, description="products of one operand, such as queries, keys and values, or gate and up, are one, in every pass"
    )
    apart: list[str] = Field(default_factory=list, description="projections: tensors whose products are none of those")
    rotations: bool = Field(default=False, description="one kernel rotates queries and keys, and normalises their heads where a model does")
    caches: bool = Field(
        default=True, description="rotations: that kernel writes keys and values into their cache; false: a kernel of its own does"
    )
    experts: bool = Field(
        default=False, description="a call that multiplies over experts gathers their tokens, activates and sums: these have no start"
    )
    gates: bool = Field(
        default=False,
        description="the kernel that normalises what an activation then multiplies does both, too; convolutions of a layer are one kernel",
    )
    residuals: bool = Field(default=False, description="the kernel that normalises a sum makes it too")
    reductions: bool | Literal["listed"] = Field(
        default=False,
        description="the kernel of an all-reduce goes on with the normalisation of what it sums; listed: as far as a network's `going_on` "
        "says of the library, and not with ranks of attention data",
    )
    statistics: bool = Field(
        default=False, description="sums that several normalisations of a layer take over accelerators are one all-reduce"
    )
    quantisation: list[str] = Field(
        default_factory=list,
        description="kinds of a part's `products` ('fp8') whose left operand the kernel quantises that writes it, not the product",
    )
    attended: bool = Field(
        default=True, description="quantisation: attention quantises what it writes, too; false: a kernel of its own does"
    )
    written: bool = Field(
        default=True, description="quantisation: norms and activations quantise what they write; false: kernels of their own do"
    )
    rows: list[str] = Field(
        default_factory=list,
        description="kinds of operations ('swiglu') whose rows several blocks share, as a compiler makes them; others' take a block each",
    )


class ProfileSpec(Spec):
    """The file of a profile (specs/profiles)."""

    name: str = Field(alias="profile", description="the profile's name")
    kernels: Literal["peak", "measured", "fitted"] = Field(
        default="peak",
        description="peak: rooflines at peak rates; measured: the accelerator's kernel facts (curve, start, clock); "
        "fitted: the same, but matrix products as kernels in a loop took, where the part has `products`, and fused attention where "
        "it has `attention`",
    )
    products: Literal["measured", "fitted"] = Field(
        default="measured",
        description="kernels: measured: matrix products by the facts of all kernels (measured), or as the part's `products` of their width "
        "at the rate that lasts through a step, casts apart (fitted)",
    )
    experts: str = Field(
        default="",
        description="kernels: fitted: how the name of the kernel begins that multiplies over experts ('trtllm triton': the first of these "
        "that a part has for the operands); where it has none of them, its first; 'dealt:cutlass' counts only where an accelerator holds "
        "experts of its own, '_' is a blank of a name",
    )
    grouped: Literal["one", "each"] = Field(
        default="one", description="a product over experts is one launch of the host, or one for each expert of an accelerator"
    )
    attention: Literal["unfused", "flash"] = Field(
        default="unfused", description="flash: scores never leave the chip and are made again in the backward pass"
    )
    attention_kernel: str | None = Field(
        default=None,
        description="the kernel of fused attention that runs ('fa3'); absent = the part's own choice. Under kernels: measured the part's "
        "rate of that name counts ('attention forward fa2'), or the one without a name where it has none",
    )
    pointwise: Literal["unfused", "fused"] = Field(
        default="unfused", description="fused: chains of element-wise operations run as one kernel"
    )
    unread: Literal["kept", "dropped"] = Field(
        default="kept",
        description="what `recompute: alternate` lists and no backward pass reads: kept, as eager selective checkpointing does, or "
        "dropped, as a compiler saves what is read alone",
    )
    merged: Merged = Field(default=Merged(), description="which operations one kernel takes together")
    drafted_states: Literal["each", "copied"] = Field(
        default="each",
        description="what a server's step that checks drafted tokens writes of a state that an operation keeps of a sequence (`scan`, "
        "`convolve`), for nobody knows yet how many tokens are kept: one for each token (each), of which one is then put in the place "
        "of the first (copied)",
    )
    collectives: LibraryCall | None = Field(
        default=None, description="whose collectives are called, where a network's `calls` know them; absent = the mapper's algorithms"
    )
    composites: dict[str, Composite] = Field(
        default_factory=dict, description="kind of operation → the kernels that it runs as; absent = one, that moves operands and result"
    )
    heads: Heads = Field(
        default=Heads(),
        description="kernels around attention beside its operations: queries, keys and values put together, their biases, results "
        "transposed; absent = none",
    )
    casts: dict[str, Casts] = Field(
        default_factory=dict, description="width of operands ('8 bit', 'fp8') → what casting them takes; absent = nothing"
    )
    variation: Share = Field(
        default=0.0,
        description="standard deviation of the matrix rate among accelerators of a type, over the rate; the slowest in use sets the pace",
    )
    accumulation: Literal["fused", "separate"] = Field(
        default="fused",
        description="separate: a kernel of its own adds a micro-batch's gradient of a weight to the sum; fused: the product that makes it",
    )
    library: Annotated[Share, Field(gt=0.0)] = Field(
        default=1.0, description="share of an accelerator's stated matrix rates that the libraries of the framework's time reach"
    )
    links: Annotated[Plain, Field(gt=0.0)] = Field(
        default=1.0, description="rate of collectives over what an architecture's networks reach: the error of their fits, rails left idle"
    )
    hand_over: Literal["whole", "scattered"] = Field(
        default="whole",
        description="of a pipeline's stages, scattered: ranks that hold the same send a part each, and gather them where they arrive",
    )
    pipeline: PipelineKeeps = Field(
        default=PipelineKeeps(), description="what stages keep of what they hand to each other; absent = what their backward passes read"
    )
    overlap: Overlap = Field(default=Overlap(), description="what runs beside compute")
    buckets: Buckets = Field(default=Buckets(), description="how much of parameters and gradients one collective moves")
    updates: Updates = Field(default=Updates(), description="passes over gradients and parameters beside the optimizer's, once a step")
    host: Host = Field(default=Host(), description="time the host needs to launch the work")
    reserved_bytes: Annotated[Bytes, Field(ge=0.0)] = Field(
        default=0.0,
        alias="reserved",
        description="of the memory that drivers show of an accelerator, what the runtime keeps and no plan may hold: context, buffers of "
        "collectives, what the allocator cannot give; an engine states its own",
    )
    engine: Engine | None = Field(default=None, description="of a serving engine: how it forms its steps")
    sources: dict[str, str] = Field(default_factory=dict, description="fact of this file → where it is documented")

    @model_validator(mode="after")
    def _known(self) -> ProfileSpec:
        if self.engine is not None and self.reserved_bytes:
            raise InputError("a serving engine keeps what `engine.reserved` says", path="reserved")
        for name in self.composites:
            if name not in KINDS or name == "einsum":
                raise InputError(f"no kind of operation called '{name}'", path=f"composites.{name}", known=list(KINDS)[1:], given=name)
        if self.merged.apart and not self.merged.projections:
            raise InputError("no products are merged: `projections` is false", path="merged.apart")
        for number, name in enumerate(self.merged.apart):
            if not name.isidentifier() or name in self.merged.apart[:number]:
                fact = "is there twice: keep one" if name.isidentifier() else "is no name of a tensor"
                raise InputError(f"'{name}' {fact}", path=f"merged.apart.{number}")
        for name in self.merged.rows:
            if name not in KINDS or name == "einsum":
                raise InputError(f"no kind of operation called '{name}'", path="merged.rows", known=list(KINDS)[1:], given=name)
        for name, casts in self.casts.items():
            try:
                width(name)
            except ValueError as problem:
                raise InputError(str(problem), path=f"casts.{name}")
            for key, said in (("sent", casts.sent), ("kept", casts.kept)):
                if said is not None and width(said) < width(name):
                    raise InputError(f"operands of {name} are {key} as they are, or wider: '{said}' is not", path=f"casts.{name}.{key}")
            unknown = next((kind for kind in casts.fused if kind not in KINDS), None)
            if unknown is not None:
                raise InputError(f"no kind of operation called '{unknown}'", path=f"casts.{name}.fused", known=list(KINDS), given=unknown)
        return self
