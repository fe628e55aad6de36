"""What one level has: memory, compute and, for the loop nest, how its children stand (a fan) and which tile is fixed (an atom).

The same nouns serve the roofline, which reads capacity, bandwidth and energy, and the loop nest, which reads the rest.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from rackmodel.errors import InputError, nearest
from rackmodel.model.attention import AttentionKernel
from rackmodel.model.dispatch import DispatchRule
from rackmodel.model.grouped import Grouped
from rackmodel.model.schema import Spec
from rackmodel.model.vector import VectorKernel
from rackmodel.model.wired import Wired
from rackmodel.units import Bytes, BytesPerSecond, FlopPerSecond, JoulePerByte, JoulePerFlop, Plain, Seconds, Watts, is_share, span_text

KINDS = ("weight", "input", "activation", "output")
"""Words for tensors by their kind in the workload."""

ROLES = ("operands", "left", "right", "result")
"""Words for tensors by their place in an einsum: all that it reads, the first and the second of them, what it writes."""

CHOOSING = f"names of tensors, kinds ({', '.join(KINDS)}) or roles in the einsum ({', '.join(ROLES)})"


class Atom(Spec):
    """The fixed tile of one matrix instruction, by role: m in left and result, n in right and result, k in left and right."""

    m: PositiveInt = Field(default=1, description="size along the ranks of the left operand and the result")
    n: PositiveInt = Field(default=1, description="size along the ranks of the right operand and the result")
    k: PositiveInt = Field(default=1, description="size along the ranks that are summed")


class Fan(Spec):
    """How the children of a level stand: a grid of x by y, or a line to which a flattened index is dealt in waves."""

    x: PositiveInt = Field(default=1, description="children along the first direction of a grid")
    y: PositiveInt = Field(default=1, description="children along the second direction of a grid")
    linear: PositiveInt | None = Field(default=None, description="children in a line, dealt a flattened index (waves); instead of x and y")
    multicast_width: PositiveInt | None = Field(
        default=None, description="children that one read of this level serves; absent = all that want the same"
    )
    reduction_width: PositiveInt | None = Field(
        default=None, description="children whose partial sums are merged into one write; absent = any number"
    )
    hop_j_per_byte: JoulePerByte = Field(
        default=0.0, alias="hop_energy", description="energy per bit and hop, one hop for every child that is reached"
    )
    link_bytes_per_s: BytesPerSecond | None = Field(
        default=None,
        alias="link_bandwidth",
        description="bytes per second one way between two neighbours; all that a child receives or sends crosses it; absent = never limits",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Fan:
        if self.linear is not None and self.model_fields_set & {"x", "y"}:
            raise ValueError("linear: a fan is either a line or x by y, not both")
        if self.link_bytes_per_s is not None and not self.link_bytes_per_s > 0:
            raise ValueError("link_bandwidth must be positive")
        return self

    @property
    def size(self) -> int:
        """Children in all."""
        return self.linear or self.x * self.y


class Memory(Spec):
    """A memory at a level: one instance's capacity, bandwidth and energy."""

    capacity_bytes: Bytes | None = Field(default=None, alias="capacity", description="bytes one instance holds; absent = unlimited")
    bandwidth_bytes_per_s: BytesPerSecond | None = Field(
        default=None,
        alias="bandwidth",
        description="bytes per second of one instance: reads and writes together, or reads alone where ports: split; absent = never limits",
    )
    visible: Plain = Field(
        default=1.0,
        description="what drivers show over `capacity`, which data sheets round down: engines take their share of it; plans fit it "
        "less a profile's `reserved`",
        examples=[1.0618],
    )
    ports: Literal["shared", "split"] = Field(
        default="shared", description="shared: reads and writes take turns; split: writes have a port of their own"
    )
    write_bandwidth_bytes_per_s: BytesPerSecond | None = Field(
        default=None, alias="write_bandwidth", description="ports: split: bytes per second of one instance's writes; absent = never limits"
    )
    read_j_per_byte: JoulePerByte = Field(default=0.0, alias="read_energy", description="energy to read, per bit or byte")
    write_j_per_byte: JoulePerByte = Field(default=0.0, alias="write_energy", description="energy to write, per bit or byte")
    buffers: Literal[1, 2] = Field(default=1, description="2: every tile is held twice, so that the next arrives during use")
    keep: tuple[str, ...] | None = Field(
        default=None, description=f"what the loop nest must store here: {CHOOSING}; absent = everything but `bypass`, [] = its choice"
    )
    bypass: tuple[str, ...] = Field(default=(), description="what the loop nest must not store here, in the words of `keep`")
    bits: dict[str, str] = Field(
        default_factory=dict, description="width of a tensor while it is here, in the words of `keep`: {result: 32 bit} for accumulators"
    )
    enforce: bool = Field(default=True, description="false: capacity is reported but does not make a mapping infeasible")
    backing: bool = Field(
        default=False,
        description="true: inputs start here and outputs end here; weights start here where no optimizer leaves them on the accelerators",
    )

    @model_validator(mode="after")
    def _positive(self) -> Memory:
        speeds = ((self.bandwidth_bytes_per_s, "bandwidth"), (self.write_bandwidth_bytes_per_s, "write_bandwidth"))
        for value, key in ((self.capacity_bytes, "capacity"), (self.visible, "visible"), *speeds):
            if value is not None and not value > 0:
                raise ValueError(f"{key} must be positive")
        if self.write_bandwidth_bytes_per_s is not None and self.ports == "shared":
            raise ValueError("write_bandwidth needs ports: split (a shared port has one bandwidth)")
        return self

    @property
    def visible_bytes(self) -> float | None:
        """Bytes that drivers show; None: unlimited."""
        return None if self.capacity_bytes is None else self.capacity_bytes * self.visible

    @model_validator(mode="after")
    def _meant(self) -> Memory:
        for word in self.bypass:
            if word in (self.keep or ()):
                raise ValueError(f"bypass: '{word}' is in keep too")
        for name, text in self.bits.items():
            try:
                width(text)
            except ValueError as problem:
                raise ValueError(f"bits.{name}: {problem}")
        return self

    def port_bytes_per_s(self, action: str) -> float | None:
        """Bandwidth of the port that an action ('read', 'write') takes, of one instance; None where it never limits."""
        return self.write_bandwidth_bytes_per_s if action == "write" and self.ports == "split" else self.bandwidth_bytes_per_s

    @property
    def write_port_bytes_per_s(self) -> float | None:
        """Bandwidth of the write port of one instance, inf where it never limits; None where reads and writes share a port."""
        if self.ports == "shared":
            return None
        return inf if self.write_bandwidth_bytes_per_s is None else self.write_bandwidth_bytes_per_s

    @property
    def bits_by_tensor(self) -> dict[str, int]:
        """Word of `keep` → bits of a value while it is here."""
        return {name: width(text) for name, text in self.bits.items()}


class Rate(Spec):
    """Operations per second of one instance at one precision, and the energy of one operation."""

    rate_flop_per_s: FlopPerSecond = Field(alias="rate", description="operations per second of one instance; a MAC is 2 FLOP")
    energy_j_per_flop: JoulePerFlop = Field(default=0.0, alias="energy", description="energy per operation")
    atom: Atom | None = Field(default=None, description="fixed tile of one matrix instruction {m, n, k}; sizes are rounded up to it")

    @model_validator(mode="after")
    def _works(self) -> Rate:
        if not self.rate_flop_per_s > 0:
            raise ValueError("rate must be positive")
        return self


class Tile(Spec):
    """What one block of a matrix product makes of the result, and the share of a kernel's efficiency that it keeps."""

    m: PositiveInt = Field(description="rows of the result")
    n: PositiveInt = Field(description="columns of the result")
    share: Plain = Field(default=1.0, description="share of `efficiency` that blocks of this size reach")


class EagerLaunch(Spec):
    """What the host takes to launch a product that one call of a framework makes, kernels that quantise its operand included.

    Paid where each is launched as it comes; not in a step whose kernels a CUDA graph launches."""

    time_s: Seconds = Field(alias="time", description="host time of a product")
    few: PositiveInt = Field(default=1, description="rows of the left operand up to which `few_time` holds")
    few_time_s: Seconds | None = Field(default=None, alias="few_time", description="host time of a product of few rows; absent = `time`")

    @model_validator(mode="after")
    def _positive(self) -> EagerLaunch:
        if self.time_s < 0 or (self.few_time_s is not None and self.few_time_s < 0):
            raise ValueError("a host's time cannot be negative")
        return self


class Products(Spec):
    """What a GPU's library reaches in matrix products of one kind of operands. Source of the form: cost/inside/products."""

    operands: str | None = Field(default=None, description="width of an operand's element ('8 bit'); absent = the kind's name is a width")
    start_s: Seconds = Field(alias="start", description="time of a kernel that multiplies next to nothing")
    rate: Plain = Field(description="share of the peak rate at which a block multiplies")
    load_bytes_per_s: BytesPerSecond = Field(alias="load", description="operands that one block's SM fetches in a second")
    step_s: Seconds = Field(default=0.0, alias="step", description="least time of a block for one element of the summed index")
    block_s: Seconds = Field(default=0.0, alias="block", description="time that a block takes to begin and end")
    memory: Plain = Field(description="share of the accelerator's memory bandwidth")
    latency_s: Seconds = Field(default=0.0, alias="latency", description="time that the memory's stream takes to begin and end")
    split_s: Seconds | None = Field(default=None, alias="split", description="time of joining a sum that blocks share; absent = none does")
    dispatch: DispatchRule | None = Field(default=None, description="rule by which the library picks a tile; absent = the fastest of six")
    sustained: Plain | None = Field(
        default=None,
        description="share of the peak rate that all blocks together keep within the limit of power; waves are whole then, for one that is "
        "not full leaves the others a higher clock; absent = `rate` is that, and waves count in proportion",
    )
    quantise: Plain = Field(default=0.0, description="bytes of memory traffic that an element of the left operand takes to be quantised")
    eager: EagerLaunch | None = Field(default=None, description="host time where no CUDA graph launches them; absent = it is hidden")
    reuse_bytes: Bytes = Field(default=0.0, alias="reuse", description="of a product, that a loop over it finds in a cache on the chip")
    reuse_bytes_per_s: BytesPerSecond | None = Field(default=None, alias="reuse_bandwidth", description="bytes per second of that cache")
    lasting: Plain = Field(
        default=1.0,
        description="rate in a step of training over that of the loop that was measured: less where the power limit bites later than a "
        "loop lasts, more where a framework's library is faster than the one in the loop",
    )
    held_out: Plain = Field(
        default=0.0,
        description="mean error, a share, of the fit on shapes that it did not see; widens the range of `lasting` in the interval of a "
        "prediction, where that states one, and `layers` is not known",
    )
    layers: Plain = Field(
        default=0.0,
        description="half of the width, a share, in which nine of ten sums of a layer's products lie beside the fit, of shapes that it did "
        "not see; widens the range of `lasting` in the interval of a prediction; 0 = not known",
    )

    @model_validator(mode="after")
    def _shares(self) -> Products:
        for key in ("rate", "memory", "sustained"):
            if (share := getattr(self, key)) is not None and not is_share(share):
                raise ValueError(f"{key} is a share: want more than 0 and at most 1 (got {span_text(share)})")
        if self.dispatch is not None and self.split_s is not None:
            raise ValueError("dispatch: a rule picks a tile and splits no sum: want no split beside it")
        for key in ("start_s", "step_s", "block_s", "latency_s", "quantise"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key.removesuffix('_s')} cannot be negative")
        for key in ("held_out", "layers"):
            if not 0 <= getattr(self, key) < 1:
                raise ValueError(f"{key} is a share of a time: want 0 or more and less than 1 (got {getattr(self, key):g})")
        if not self.lasting > 0:
            raise ValueError(f"lasting: want more than 0 (got {self.lasting:g})")
        if not self.load_bytes_per_s > 0 or (self.split_s is not None and self.split_s < 0):
            raise ValueError("want a load above 0 and a split of 0 or more")
        if self.reuse_bytes < 0 or (self.reuse_bytes > 0) != bool(self.reuse_bytes_per_s):
            raise ValueError("reuse: want bytes, and reuse_bandwidth with them")
        if self.operands is not None:
            width(self.operands)
        return self


class Pace(Spec):
    """How fast kernels that compute run by what else a step runs: one clock serves them all, and products draw the most."""

    products: Plain = Field(description="share of the seconds of the layers amid which `lasting` was measured that products took")
    alone: Plain = Field(description="rate of products where nothing else runs, over that amid those layers")

    def at(self, share: Any) -> Any:
        """Rate over that amid those layers where products take a share of the seconds: on a line through the two."""
        return 1.0 + (self.alone - 1.0) * (share - self.products) / (1.0 - self.products)

    @model_validator(mode="after")
    def _shares(self) -> Pace:
        if not 0 <= self.products < 1:
            raise ValueError(f"products is a share below 1 (got {self.products:g})")
        if not is_share(self.alone):
            raise ValueError(f"alone: want more than 0 and at most 1 (got {span_text(self.alone)})")
        return self


BusyKind = Literal["experts", "decode", "prefill", "vector"]
"""Kinds of kernels whose watts were measured apart from those of matrix products."""
WatchedKind = BusyKind | Literal["waiting"]
WAITING: Literal["waiting"] = "waiting"
"""What a GPU draws while no kernel runs, beside what it draws while those of a kind do."""


class Busy(Spec):
    """What an accelerator draws while a kernel of a kind runs, beside static power and what levels and units charge."""

    power_w: Watts = Field(alias="power", description="drawn whatever the kernel moves")
    moved_j_per_byte: JoulePerByte = Field(
        default=0.0, alias="moved", description="of a byte to or from the accelerator's memory: the instructions that carry it"
    )


class BusyKinds(Spec):
    """Of each kind of kernels; those that are absent draw the part's busy power."""

    experts: Busy | None = Field(default=None, description="products of experts, a call of a fused kernel")
    decode: Busy | None = Field(default=None, description="attention of one new token a sequence")
    prefill: Busy | None = Field(default=None, description="attention of many new tokens a sequence")
    vector: Busy | None = Field(default=None, description="kernels that move rows: norms, activations, quantisation")


class Kernels(Spec):
    """What the kernels of a GPU's libraries reach: shares of the rates and bandwidths beside this block, and starts.

    Source of the form: cost/inside/kernels. A share is of the stated peak, so that no kernel is faster than its roofline.
    """

    tiles: Annotated[tuple[Tile, ...], Field(min_length=1)] = Field(
        default=(Tile(m=128, n=128),), description="blocks {m, n, share} that the library chooses from; they are dealt in waves"
    )
    efficiency: Plain = Field(description="share of the peak rate that a full wave of blocks reaches")
    k_fill: Plain = Field(default=0.0, description="steps along the summed index that filling and draining a wave cost")
    sustained: Plain = Field(default=1.0, description="share of that speed which is left amid a layer (power and clock)")
    memory_efficiency: Plain = Field(default=1.0, description="share of the accelerator's memory bandwidth that a matrix product reaches")
    batched_memory_efficiency: Plain | None = Field(
        default=None, description="the same of a batched product that is no named kernel (attention scores); absent = memory_efficiency"
    )
    vector_memory_efficiency: Plain = Field(
        default=1.0, description="share of the accelerator's memory bandwidth that a vector kernel reaches"
    )
    stream_memory_efficiency: Plain | None = Field(
        default=None,
        description="the same of a vector kernel that streams: sums and scales of tensors, dropout, casts, the optimizer; "
        "absent = vector_memory_efficiency",
    )
    pointwise_memory_efficiency: Plain | None = Field(
        default=None,
        description="the same of a kernel that makes each element alone: activations, gated or not; absent = vector_memory_efficiency",
    )
    start_in_stream_s: Seconds = Field(default=0.0, alias="start_in_stream", description="time one kernel adds where kernels queue up")
    start_s: Seconds = Field(default=0.0, alias="start", description="the same of a matrix product alone, with launch and synchronisation")
    vector_start_s: Seconds = Field(default=0.0, alias="vector_start", description="the same of a vector kernel alone")
    busy_power_w: Watts = Field(
        default=0.0, alias="busy_power", description="drawn while a kernel runs, beside static power and what it moves and multiplies"
    )
    busy: BusyKinds = Field(default_factory=BusyKinds, description="the same of kernels of a kind; absent = busy_power")
    waiting_power_w: Watts = Field(
        default=0.0,
        alias="waiting_power",
        description="drawn beside static power while it waits, amid work, for its host or for other accelerators: its clocks stay up",
    )
    power_limit_w: Watts | None = Field(
        default=None,
        alias="power_limit",
        description="what the accelerator may draw, where its kernels were measured: a kernel over it is slower; absent = any",
    )
    power_cap_w: Watts | None = Field(
        default=None, alias="power_cap", description="what it is set to draw at most, below its power limit: its clocks fall; absent = none"
    )
    cap_exponent: Plain = Field(
        default=1.5, description="power_cap: power over static power that the clock's power of this is proportional to, at least 1"
    )
    products: dict[str, Products] = Field(
        default_factory=dict,
        description="of matrix products by operand width ('bf16', 'fp8') or by a name of a recipe's ('fp8_block'), "
        "in the place of the facts above",
    )
    pace: Pace | None = Field(default=None, description="of a step of training, by what it runs beside products; absent = one for all")
    over_experts: Plain = Field(
        default=1.0,
        description="in a step of training, rate of a matrix product over experts over that of `products`, which stand alone",
    )
    grouped: dict[str, Grouped] = Field(
        default_factory=dict,
        description="of the products of experts by kernel ('triton bf16'); of two that multiply the same operands the first counts",
    )
    vector: dict[str, VectorKernel] = Field(
        default_factory=dict, description="of kernels that move rows by kind of operation ('rmsnorm', 'softmax alone')"
    )
    attention: dict[str, AttentionKernel] = Field(
        default_factory=dict, description="fused attention by kernel ('fa3', 'trtllm'), in the place of `named` where a profile says fitted"
    )
    attention_kernel: str | None = Field(
        default=None, description="the one of them that counts where a profile names none; absent = the first"
    )
    training_kernel: str | None = Field(
        default=None,
        description="the one of them that counts in steps of training where a profile names none; absent = the rate of `named`",
    )
    latent_kernel: str | None = Field(
        default=None, description="the one of them that counts where keys and values are unlike (latent attention); absent = as any other"
    )
    named: dict[str, Plain] = Field(
        default_factory=dict,
        description="share of the peak rate of a fused kernel by name ('attention forward', 'attention backward', or of one that a "
        "profile's `attention_kernel` names: 'attention forward fa2'), softmax included",
    )

    @model_validator(mode="after")
    def _shares(self) -> Kernels:
        shares = ["efficiency", "sustained"]
        shares += [f"{of}memory_efficiency" for of in ("", "batched_", "vector_", "stream_")]
        stated = [(key, getattr(self, key)) for key in shares] + [(f"named.{key}", value) for key, value in self.named.items()]
        stated += [(f"tiles {tile.m} x {tile.n}: share", tile.share) for tile in self.tiles]
        for key, value in stated:
            if value is not None and not is_share(value):
                raise ValueError(f"{key} is a share: want more than 0 and at most 1 (got {span_text(value)})")
        for key, found in self.products.items():
            if found.operands is None and not is_width(key):
                raise ValueError(f"products.{key}: '{key}' is no width, so that it must say the width of its operands")
        for name, group in self.grouped.items():
            width(group.weights)
            if width(group.activations) >= RESULT_BITS and group.quantised == "apart":
                raise ValueError(f"grouped.{name}: nothing quantises rows of {group.activations}: leave out 'quantised'")
        for key in ("attention_kernel", "latent_kernel", "training_kernel"):
            word = getattr(self, key)
            if word is not None and self.attention and word not in self.attention:
                raise ValueError(f"{key} '{word}' is none of attention: {', '.join(self.attention)}")
        if self.training_kernel in self.attention and not self.attention[self.training_kernel].training:
            raise ValueError(f"training_kernel '{self.training_kernel}' has no facts of training")
        if self.power_limit_w is not None and not self.power_limit_w > 0:
            raise ValueError("power_limit must be positive")
        if not self.over_experts > 0:
            raise ValueError(f"over_experts: want more than 0 (got {self.over_experts:g})")
        if not self.cap_exponent >= 1:
            raise ValueError(f"cap_exponent is at least 1: power falls no slower than the clock (got {self.cap_exponent:g})")
        return self

    def busy_of(self, kind: BusyKind) -> Busy:
        """Busy power of kernels of a kind."""
        found: Busy | None = getattr(self.busy, kind)
        return Busy.model_construct(power_w=self.busy_power_w, moved_j_per_byte=0.0) if found is None else found

    @property
    def batched_efficiency(self) -> float:
        """Share of the memory bandwidth of a batched product."""
        return self.memory_efficiency if self.batched_memory_efficiency is None else self.batched_memory_efficiency

    @property
    def stream_efficiency(self) -> float:
        """Share of the memory bandwidth of a kernel that streams."""
        return self.vector_memory_efficiency if self.stream_memory_efficiency is None else self.stream_memory_efficiency

    @property
    def pointwise_efficiency(self) -> float:
        """Share of the memory bandwidth of a kernel that makes each element alone."""
        return self.vector_memory_efficiency if self.pointwise_memory_efficiency is None else self.pointwise_memory_efficiency


class Compute(Spec):
    """Compute at a level: matrix operations, by precision where they differ, and vector operations."""

    rate_flop_per_s: FlopPerSecond | None = Field(
        default=None, alias="rate", description="matrix operations per second of one instance, any precision"
    )
    energy_j_per_flop: JoulePerFlop = Field(default=0.0, alias="energy", description="energy per matrix operation, any precision")
    atom: Atom | None = Field(default=None, description="fixed tile of one matrix instruction {m, n, k}, where a precision states none")
    precisions: dict[str, Rate] = Field(
        default_factory=dict, description="rate, energy and atom by operand width ('16 bit', 'fp8'); the first counts of two of one width"
    )
    vector: Rate | None = Field(default=None, description="vector operations; absent = they cost no time here")
    sparse: bool = Field(default=False, description="true: zeros of weights save matrix operations; false: traffic at most")
    kernels: Kernels | None = Field(default=None, description="what library kernels reach of it; absent = the roofline's peaks")
    wired: Wired | None = Field(default=None, description="weights are wired into it, none is held or fetched; absent = they are data")

    @model_validator(mode="after")
    def _some_rate(self) -> Compute:
        if self.rate_flop_per_s is None and not self.precisions:
            raise ValueError("compute needs a rate, or precisions with rates")
        if self.rate_flop_per_s is not None and not self.rate_flop_per_s > 0:
            raise ValueError("rate must be positive")
        for key in self.precisions:
            width(key)
        return self

    def matrix(self, bits: int) -> Rate:
        """Rate, energy and atom for operands of `bits`: the stated precision, else the next wider one, else `rate`."""
        wide_enough = [(width(key), rate) for key, rate in self.precisions.items() if width(key) >= bits]
        if wide_enough:
            found = min(wide_enough, key=lambda pair: pair[0])[1]
            return found if found.atom is not None or self.atom is None else found.model_copy(update={"atom": self.atom})
        if self.rate_flop_per_s is None:
            raise InputError(f"no compute rate for {bits}-bit operands", known=list(self.precisions))
        return Rate.model_construct(rate_flop_per_s=self.rate_flop_per_s, energy_j_per_flop=self.energy_j_per_flop, atom=self.atom)


SCALES = {"nvfp4": 8 / 16, "mxfp4": 8 / 32, "mxfp8": 8 / 32, "fp8_block": 32 / 128**2}
SCALES |= {f"int4_g{size}": 16 / size for size in (32, 64, 128)}
"""Quantised format → bits an element of the scales that a block of elements shares."""

FAMILIES = ("fp8_block",)
"""Formats whose products are slower or faster than their width says."""

_BLOCKS = {"nvfp4": 4, "mxfp4": 4, "mxfp8": 8, "fp8_block": 8, "int4_g32": 4, "int4_g64": 4, "int4_g128": 4}
_WIDTHS = {"fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "int8": 8, "fp8": 8, "fp6": 6, "fp4": 4, "int4": 4, **_BLOCKS}

WIDEST = 65536
"""Bits of the widest value that is read (an optimizer state counts as one value)."""


RESULT_BITS = 16
"""Of an element as one kernel of experts' products leaves it to the next."""


def is_width(text: str) -> bool:
    """Whether a text is a precision."""
    try:
        return width(text) > 0
    except ValueError:
        return False


def width(text: str) -> int:
    """Bits of a precision written '16 bit' or 'bf16'. Raises ValueError."""
    if text in _WIDTHS:
        return _WIDTHS[text]
    number, _, unit = text.partition(" ")
    if unit.strip() in ("bit", "bits") and number.isascii() and number.isdigit() and len(number) <= 9 and int(number) > 0:
        if int(number) > WIDEST:
            raise ValueError(f"'{text}' is no width of a value: at most {WIDEST} bit")
        return int(number)
    close = nearest(text, _WIDTHS)
    hint = f", did you mean '{close}'?" if close else ""
    raise ValueError(f"'{text}' is not a precision{hint}: want '16 bit' or one of {', '.join(_WIDTHS)}")
