"""A row of a training run → what the engine prices: machine, model, mesh, profile; every word through specs/validation.

What a row leaves empty is taken as its data set's words say, and listed; what cannot be meant or expressed is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from rackmodel.mapper.given import GivenMesh
from rackmodel.model.mapping import Copy
from rackmodel.model.schedules import FOLDED, FOLDS, SCHEDULES, TABLE
from rackmodel.validation.machine_files import machine_of
from rackmodel.validation.model_files import is_gated, own_vocabulary, stated_sizes
from rackmodel.validation.rows import PublishedRow, number_of
from rackmodel.validation.training_columns import left_alone
from rackmodel.validation.words import DatasetWords, MachineWords, ModelWords, Refused, SaidOfSome, ShardingWords, Words, look_up

PADDING = 128
"""A vocabulary that tensor ranks do not divide is padded to a multiple of this for each (RECALLED: Megatron-LM,
--make-vocab-size-divisible-by)."""

MULTIPLE = 256
"""Of which the width inside a gated layer is one, where a row does not say it (RECALLED: LLaMA, section 2.2, and `multiple_of` of its code:
11,008 of 4,096)."""

OWN_KEYS = ("gpt", "mpt", "glm_130b")
"""Workloads whose heads have keys and values of their own."""

FSDP = re.compile(r"[FH]SDP=(\d{1,9})", re.IGNORECASE)
"""How NeMo's rows say over how many ranks weights are sharded; 0 = none of them are."""

SHARDS = "dp_shard"
"""The axis of mapper `parallel_hybrid` that weights are sharded over, beside `dp`, whose ranks hold the same shards."""

BOTH_WAYS, FOLDED_BOTH_WAYS = "dualpipe", "dualpipe_v"
"""DeepSeek's schedule of micro-batches in two directions, and that of half as many stages and twice the data-parallel ranks which runs
the same passes in the same order (tests/test_folded_schedules.py)."""

MOST_RUNS, MOST_LAYERS = 20_000, 10_000
"""Micro-batches of a step and layers of a model beyond which a cell is no cell."""

QUANTITIES = (
    ("iteration_time_s", "seconds"),
    ("derived_iteration_time_s", "seconds"),
    ("tokens_per_s", "tokens"),
    ("tokens_per_s_per_gpu", "tokens of a GPU"),
    ("tflops_per_gpu", "model"),
    ("hw_tflops_per_gpu", "hardware"),
    ("mfu_pct", "model share"),
    ("hfu_pct", "hardware share"),
)
"""Columns that hold what was measured, the first filled one counts; and what it is."""


@dataclass(frozen=True)
class Measured:
    """quantity: of QUANTITIES · value: as the row says it."""

    quantity: str
    value: float


ExpertRanks = Literal["", "split", "whole"]
"""Where experts lie: '' = as other weights; split over tensor ranks, and over some of the data-parallel ones; whole on tensor ranks too."""


@dataclass(frozen=True)
class ModelKey:
    """A model whose layers and batch are left out: steps that differ in those alone share their arrays. width: bits of the operands of
    weights' products · alone: one layer, without embedding, head and optimizer · attention: bits of queries, keys and values, '' = 16 ·
    gradient: bits of weights' gradients, '' = the workload's."""

    workload: str
    sizes: tuple[tuple[str, int], ...]
    width: str
    alone: bool
    attention: str = ""
    gradient: str = ""


@dataclass(frozen=True)
class StepKey:
    """What rows must share to be priced in the same arrays. set: changes of the machine · home: param, grad and state of weights over the
    data-parallel ranks · experts: where they lie · sets: overrides of the profile · hybrid: weights lie over some data-parallel ranks ·
    save: the copy that is kept of what tensor-parallel ranks share out between products."""

    machine: str
    set: tuple[tuple[str, str], ...]
    model: ModelKey
    profile: str
    algorithms: tuple[str, ...]
    sequence: bool
    recompute: str
    home: tuple[str, str, str]
    experts: ExpertRanks
    sets: tuple[str, ...] = ()
    hybrid: bool = False
    save: Copy = "shard"


@dataclass(frozen=True)
class TrainingCase:
    """A row as the engine takes it. layers: of the model, 0: as its workload says · chunks: of a stage · schedule: of its pipeline · batch:
    of a step · unit: what its machine must multiply, '' = anything · assumptions: what the row leaves unsaid · brief: whether nothing but
    its seconds is looked at."""

    row: PublishedRow
    key: StepKey
    mesh: GivenMesh
    layers: int
    chunks: int
    batch: int
    measured: Measured
    precision: str
    assumptions: tuple[str, ...]
    brief: bool = False
    schedule: str = "1f1b"
    unit: str = ""

    @property
    def accelerators(self) -> int:
        """Accelerators of the run."""
        return prod(self.mesh.degrees.values())


PROFILE = "profile"
YES, NO = ("true", "1", "yes"), ("", "false", "0", "no")
"""What a cell says that is one or the other."""


@dataclass(frozen=True)
class Alternative:
    """What a row leaves open, read in another way. column: of the row, or PROFILE · tuned: whether the fastest reading is meant."""

    column: str
    value: str
    tuned: bool


def training_case(row: PublishedRow, words: Words, instead: Alternative | None = None) -> TrainingCase:
    """The case of a row. Raises Refused where a word is unknown or something cannot be expressed."""
    return _CaseReader(row, words, instead).case()


def alternatives(row: PublishedRow, words: Words) -> list[Alternative]:
    """Other readings of what a row leaves open, one at a time. Raises Refused where the row is."""
    reader = _CaseReader(row, words)
    open_cells = [(column, said) for column, said in reader.assume.items() if not row.text(column)]
    found = [Alternative(column, value, said.tuned) for column, said in open_cells for value in said.also]
    return found + [Alternative(PROFILE, name, False) for name in reader.also if name != reader.profile]


class _CaseReader:
    def __init__(self, row: PublishedRow, words: Words, instead: Alternative | None = None) -> None:
        self.words, self.notes, self.instead = words, dict[str, None](), instead
        self.said: DatasetWords = words.dataset(row.dataset)
        self.variant = self.attention = ""
        self.profile, self.sharding, self.also = self.said.profile, dict(self.said.sharding), list(self.said.also)
        assume = dict(self.said.assume)
        for some in self.said.some:
            if all(text in row.text(column) for column, text in {some.column: some.has, **some.where}.items()):
                self._of_some(some)
                assume |= some.assume
        self.assume, self.row = assume, row
        if instead is not None and instead.column == PROFILE:
            self.profile = instead.value
        self.notes |= dict.fromkeys(text for text in (self.said.note, left_alone(row.cells)) if text)

    def _of_some(self, some: SaidOfSome) -> None:
        if some.refused:
            raise Refused(some.refused)
        self.profile, self.also = some.profile or self.profile, list(some.also) if some.profile else self.also
        self.sharding |= some.sharding
        self.variant, self.attention = some.variant or self.variant, some.attention or self.attention
        self.notes |= dict.fromkeys(text for text in (some.note,) if text)

    # -- cells --------------------------------------------------------------------------------------------------------------

    def cell(self, column: str) -> str:
        """A cell of the row, else what is assumed, which is noted."""
        text = self.row.text(column)
        if self.instead is not None and column == self.instead.column:
            text = self.instead.value
        elif not text and column in self.assume:
            text = self.assume[column].value
            source = self.assume[column].source
            self.notes[f"{column} = {text}" + (f" ({source})" if source else "")] = None
        return text

    def whole(self, column: str) -> int | None:
        """A cell as a whole number; None where it is empty. Raises Refused."""
        text = self.cell(column)
        if not text:
            return None
        found = number_of(text)
        if found is None:
            raise Refused(f"{column}: '{text[:40]}' is no whole number")
        if not 1 <= found < 1e12 or found != int(found):
            raise Refused(f"{column}: '{text[:40]}' is no whole number from 1")
        return int(found)

    def needed(self, column: str) -> int:
        found = self.whole(column)
        if found is None:
            raise Refused(f"no {column}")
        return found

    def _yes(self, column: str) -> bool:
        """A cell that says yes or no; an empty one no. Raises Refused."""
        text = self.cell(column).lower()
        if text not in (*YES, *NO):
            raise Refused(f"{column}: '{text[:40]}' is neither of {', '.join(YES)} nor of {', '.join(filter(None, NO))}")
        return text in YES

    # -- the case -----------------------------------------------------------------------------------------------------------

    def case(self) -> TrainingCase:
        measured = self._measured()
        machine = self.words.machine(self.row.text("gpu"), self.row.dataset)
        schedule, degrees = self._order(), self._degrees()
        if schedule == BOTH_WAYS:
            schedule, degrees = FOLDED_BOTH_WAYS, self._folded(degrees)
        home, degrees = self._home(degrees, machine)
        self._choose_profile(home)
        model, layers = self._model(degrees["tp"])
        mesh, batch = self._mesh(degrees)
        precision = look_up(self.words.precisions, "precision", self.cell("precision"), "precision")
        policy = self.cell("recompute") or "none"
        recompute = look_up(self.words.recomputes, "recomputation", self.said.recompute.get(policy, policy))
        self.notes |= dict.fromkeys(f"{one.words[0]}: {one.note}" for one in (machine, precision, recompute, home) if one.note)
        key = StepKey(
            machine=machine.machine,
            set=tuple(machine.set.items()),
            model=replace(model, width=precision.width, attention=self.attention, gradient=self.said.gradient),
            profile=self.profile,
            algorithms=tuple(self.said.algorithms),
            sequence=self._yes("sp") and degrees["tp"] > 1,
            recompute=recompute.policy,
            home=(home.param, home.grad, home.state),
            experts=self._experts(degrees),
            hybrid=SHARDS in degrees,
            save=self.said.save,
        )
        deep = layers or stated_sizes(model.workload, dict(model.sizes))["layers"]
        chunks = FOLDS if schedule in FOLDED else self._chunks(deep, degrees["pp"], mesh.micro_batches, least=schedule == "interleaved")
        schedule = self._schedule(schedule, layers, chunks, mesh)
        return TrainingCase(
            row=self.row,
            key=key,
            mesh=mesh,
            layers=layers,
            chunks=chunks,
            batch=batch,
            measured=measured,
            precision=precision.words[0],
            assumptions=tuple(self.notes),
            schedule=schedule,
            unit=precision.unit,
        )

    def _measured(self) -> Measured:
        self.row.number("memory_gib")  # looked at when all is priced: a word there is told before
        for column, quantity in QUANTITIES:
            value = self.row.number(column)
            if value:
                counted = quantity.replace("model", "hardware") if self.said.flops == "hardware" else quantity
                return Measured(counted, value)
        columns = ", ".join(column for column, _ in QUANTITIES)
        raise Refused(f"no measured time, rate or utilisation: want a column of {columns}")

    def _degrees(self) -> dict[str, int]:
        """Degrees of all axes but `ep`, whose ranks are data-parallel outside the experts."""
        accelerators = self.needed("n_gpus")
        found = {axis: self.whole(axis) or self._unsaid(axis) for axis in ("tp", "pp")}
        if None in found.values():
            raise Refused("no degrees of parallelism: want columns tp and pp")
        cp = self.whole("cp") or 1
        inner = prod(degree or 1 for degree in found.values()) * cp
        if accelerators % inner:
            raise Refused(f"the degrees do not divide the GPUs: tp x pp x cp = {inner} of {accelerators}")
        dp = self.whole("dp") or accelerators // inner
        if dp * inner != accelerators:
            raise Refused(f"the degrees are not those of all GPUs: tp x pp x cp x dp = {dp * inner} of {accelerators}")
        ranks, tp = self.whole("ep") or 1, found["tp"] or 1
        ep = self._over_data(ranks, tp)
        if dp % ep:
            if dp > ep:
                raise Refused(f"experts over ranks that do not divide the data-parallel ones: ep {ranks} of dp {dp}")
            also, tensor = (" or tensor-parallel", f", tp {tp}") if ep != ranks else ("", "")
            raise Refused(f"experts over more ranks than are data-parallel{also}: ep {ranks} of dp {dp}{tensor}")
        degrees = {"pp": found["pp"] or 1, "dp": dp // ep, "cp": cp, "tp": tp}
        return degrees | ({"ep": ep} if ranks > 1 else {})

    def _unsaid(self, axis: str) -> int | None:
        """A degree that a row does not say: 1 where it shards weights over data-parallel ranks, as runs do that split nothing else."""
        word = self.row.text("sharding")
        if not word or look_up(self.words.shardings, "sharding", self._sharding(word)).param != "shard":
            return None
        self.notes[f"{axis} = 1 (ASSUMED: weights are sharded, and the row says nothing else)"] = None
        return 1

    def _sharding(self, word: str) -> str:
        """A word for sharding as words.yaml has it: the ranks that one counts are left out."""
        word = self.sharding.get(word, word)
        counted = FSDP.fullmatch(word.replace(" ", ""))
        return "FSDP" if counted is not None and int(counted[1]) > 1 else word

    def _over_data(self, ranks: int, tp: int) -> int:
        """Of the ranks that experts lie over, those along the data-parallel ranks: where no expert is split, tensor ranks come first."""
        if ranks == 1 or tp == 1:
            return ranks
        split = self.whole("etp") or tp
        if split not in (1, tp):
            raise Refused("experts split over part of the tensor-parallel ranks")
        if split == 1 and ranks % tp:
            raise Refused("experts over part of the tensor-parallel ranks")
        return ranks // tp if split == 1 else ranks

    def _experts(self, degrees: Mapping[str, int]) -> ExpertRanks:
        if "ep" not in degrees:
            return ""
        return "whole" if degrees["tp"] > 1 and self.whole("etp") == 1 else "split"

    def _mesh(self, degrees: Mapping[str, int]) -> tuple[GivenMesh, int]:
        """The mesh with its micro-batches, and the batch."""
        size, ranks = self.needed("mbs"), degrees["dp"] * degrees.get("ep", 1) * degrees.get(SHARDS, 1)
        batch, said = self.whole("gbs"), self._degrees()
        accumulated = self.whole("grad_accum") if batch is None or self.row.text("grad_accum") else None
        if batch is None and accumulated is None:
            if degrees["pp"] > 1 or self._measured().quantity == "seconds":
                raise Refused("no global batch: want a column gbs, or grad_accum")
            accumulated = 1
            self.notes["grad_accum = 1 (ASSUMED: a rate without a pipeline hardly depends on it)"] = None
        every = (accumulated or 0) * size * said["dp"] * said.get("ep", 1)
        if batch is not None and accumulated is not None and batch != every:
            self.notes[f"grad_accum {accumulated} of mbs {size} on all data ranks is a batch of {every}: gbs {batch} counts"] = None
        batch = batch or every
        if batch % (size * ranks):
            raise Refused(f"micro-batches do not divide the batch of a rank: {batch} sequences over {ranks} ranks, {size} in a micro-batch")
        runs = batch // (size * ranks)
        if runs > MOST_RUNS:
            raise Refused(f"more than {MOST_RUNS} micro-batches")
        return GivenMesh(dict(degrees), size, runs), batch

    def _home(self, degrees: Mapping[str, int], machine: MachineWords) -> tuple[ShardingWords, dict[str, int]]:
        """Where weights rest, and the degrees with the ranks they are sharded over, where those are some of the data-parallel ones."""
        word = self.cell("sharding") or "none"
        counted = FSDP.fullmatch(self.sharding.get(word, word).replace(" ", ""))
        home = look_up(self.words.shardings, "sharding", self._sharding(word))
        if counted is None and home.within is None:
            return home, dict(degrees)
        inside = machine_of(machine.machine, tuple(machine.set.items())).tiers
        node = inside[0].below * inside[0].children if inside else 1
        data = degrees["dp"] * degrees.get("ep", 1)
        group = int(counted[1]) if counted is not None else node // (degrees["tp"] * degrees["cp"])
        if group == data * degrees["cp"] or (group in (0, 1) if counted is not None else group >= data):
            return home, dict(degrees)
        if group < 2:
            raise Refused(f"{word}: a node holds no two data-parallel ranks; say over how many weights are sharded (HSDP=8)")
        if "ep" in degrees or degrees["cp"] > 1:
            raise Refused(f"weights sharded over {group} of {data * degrees['cp']} data-parallel ranks, with ranks of experts or context")
        if degrees["dp"] % group:
            raise Refused(f"weights sharded over {group} of {data} data-parallel ranks, which are no whole groups")
        self.notes[f"weights are sharded over groups of {group} ranks"] = None
        told = home if counted is None else home.model_copy(update={"note": None})
        return told, {**degrees, "dp": degrees["dp"] // group, SHARDS: group}

    def _choose_profile(self, home: ShardingWords) -> None:
        """That of the framework whose word the row has for its sharding, where nothing is said of its data set."""
        if self.row.dataset in self.words.datasets:
            return
        if home.profile and self.profile == self.said.profile:
            self.profile = home.profile
        self.notes = {f"data set '{self.row.dataset}' has no words of its own: profile {self.profile}": None, **self.notes}

    def _chunks(self, layers: int, stages: int, micro_batches: int, *, least: bool) -> int:
        """Chunks of layers a stage holds. least: whether a row that does not say them means several."""
        unsaid = least and stages > 1 and not self.row.text("vpp")
        text = "least" if unsaid else self.cell("vpp")
        if layers > MOST_LAYERS or stages > layers:
            raise Refused("more stages than layers" if layers <= MOST_LAYERS else f"more than {MOST_LAYERS} layers")
        if stages == 1 or not text:
            return 1
        if text == "least":
            each = layers // stages
            chunks = next((v for v in range(2, each + 1) if layers % stages == 0 and each % v == 0), 1)
        else:
            chunks = self.needed("vpp")
        if unsaid and chunks == 1:
            raise Refused(f"interleaved, and {layers} layers on {stages} stages are no equal chunks: want a column vpp")
        if unsaid:
            self.notes["interleaved, by the least number of chunks above 1 that divides a stage's layers (ASSUMED)"] = None
        if stages * chunks > layers + 2:
            raise Refused("more chunks than layers")
        if chunks > 1 and micro_batches % stages:
            raise Refused("interleaved, with micro-batches that the stages do not divide")
        return chunks

    def _order(self) -> str:
        """Of passes, as the row calls it."""
        text = self.cell("schedule") or "1f1b"
        exact = text.lower().replace("-", "_")
        if exact in (*SCHEDULES, BOTH_WAYS):
            return exact
        meant = look_up(self.words.schedules, "schedule", text)
        if meant.refused:
            raise Refused(f"schedule '{text[:40]}': {meant.refused}")
        self.notes |= dict.fromkeys(note for note in (meant.note,) if note)
        return meant.schedule

    def _folded(self, degrees: Mapping[str, int]) -> dict[str, int]:
        """Degrees of the folded schedule that runs what DualPipe runs: half of the stages, two copies of each made one."""
        if degrees["pp"] % 2 or degrees["pp"] < 4:
            raise Refused(f"schedule {BOTH_WAYS} on {degrees['pp']} stages: want 4 or more, in pairs")
        return {**degrees, "pp": degrees["pp"] // 2, "dp": degrees["dp"] * 2}

    def _schedule(self, said: str, layers: int, chunks: int, mesh: GivenMesh) -> str:
        """Of the pipeline: as the row says it, of several chunks under 1F1B interleaved."""
        if said in FOLDED:
            stages = mesh.degrees["pp"]
            if stages == 1 or not TABLE[said].takes(stages, mesh.micro_batches):
                fewest = "" if stages == 1 else f", which wants {TABLE[said].fewest(stages)} or more"
                raise Refused(f"schedule {said} of {mesh.micro_batches} micro-batches on {stages} stages{fewest}")
            if layers and stages * chunks > layers + 2:
                raise Refused("more chunks than layers")
            if self.row.text("vpp") not in ("", "1", str(FOLDS)):
                raise Refused(f"schedule {said} with {self.row.text('vpp')} chunks of a stage: it has {FOLDS}")
            return said
        if chunks > 1 and said not in ("1f1b", "interleaved"):
            raise Refused(f"schedule {said} with several chunks of a stage")
        if said == "interleaved" and chunks == 1 and mesh.degrees["pp"] > 1:
            self.notes["interleaved, of one chunk a stage as the row says (vpp): that is 1F1B"] = None
        return "interleaved" if chunks > 1 else "1f1b" if said == "interleaved" else said

    # -- the model ----------------------------------------------------------------------------------------------------------

    def _model(self, tp: int) -> tuple[ModelKey, int]:
        """The model without its layers, and those."""
        found, family = self._named()
        if found.refused:
            raise Refused(found.refused)
        self.notes |= dict.fromkeys(text for text in (found.note,) if text)
        sizes = {name: int(value) for name, value in found.sizes.items()}
        if family:
            sizes |= self._sizes(found.workload)
        else:
            self._compare(found)
        sizes["s"] = self.needed("seq_len")
        vocabulary = self.whole("vocab") or sizes.get("v") or own_vocabulary(found.workload)
        if vocabulary % tp or "v" in sizes or self.whole("vocab"):
            sizes["v"] = self._padded(vocabulary, tp)
        layers = sizes.pop("layers", 0)
        return ModelKey(found.workload, tuple(sorted(sizes.items())), "", self.said.layer), layers

    def _named(self) -> tuple[ModelWords, bool]:
        """What the row calls its model; whether that is a kind of models (column `arch`) whose sizes it gives."""
        kind, name = self.cell("arch"), self.row.text("model")
        sized = bool(self.row.text("layers") and self.row.text("hidden") and kind)
        if sized and (own := self._of_these_sizes(name)):
            return own, False
        if sized and (self.words.is_kind(kind) or not name):
            return look_up(self.words.kinds, "model", " ".join(filter(None, (kind, self.variant))), "arch"), True
        if self._only_a_kind(name):
            raise Refused(f"'{name}' is a kind of models: want its sizes (columns arch, layers, hidden, heads)")
        if sized and self.words.known_model(self._called(name)) is None:
            return look_up(self.words.kinds, f"model called '{name}', nor a kind of models", kind, "arch"), True
        return self.words.model(self._called(name), "model"), False

    def _called(self, name: str) -> str:
        """What a row calls its model, with the variant that is meant."""
        return " ".join(filter(None, (name, self.variant)))

    def _of_these_sizes(self, name: str) -> ModelWords | None:
        """The model of a name, where the row gives sizes and they are its own: it says those that the row does not."""
        if not name or self._only_a_kind(name):
            return None
        found = self.words.known_model(self._called(name))
        if found is None:
            return None
        try:
            self._compare(found)
        except Refused:
            return None
        return None if found.refused else found

    def _only_a_kind(self, name: str) -> bool:
        return self.words.is_kind(name) and name.lower() not in self.words.models

    def _compare(self, model: ModelWords) -> None:
        """Raises Refused where a row says another size of a model that it names."""
        known = stated_sizes(model.workload, model.sizes)
        for column in known:
            given = self.whole(column)
            if given is not None and given not in (known[column], known[column] - model.further):
                raise Refused(f"{column}: {given}, where {model.words[0]} has {known[column] - model.further}")

    def _sizes(self, workload: str) -> dict[str, int]:
        """Sizes that the row gives."""
        hidden, heads = self.needed("hidden"), self.needed("heads")
        shared, feed = self.whole("kv_heads") or heads, self.whole("ffn")
        if hidden % heads or heads % shared:
            raise Refused("heads do not divide the hidden size, or shared heads the heads")
        if workload in OWN_KEYS and shared != heads:
            raise Refused("a GPT whose heads share keys and values")
        if feed is None and is_gated(workload):
            feed = -(-8 * hidden // (3 * MULTIPLE)) * MULTIPLE
            self.notes[f"ffn = {feed}: 8/3 x hidden, up to a multiple of {MULTIPLE}"] = None
        elif feed is None:
            feed = 4 * hidden
            self.notes["ffn = 4 x hidden"] = None
        own = {"layers": self.needed("layers"), "d": hidden, "e": hidden // heads, "f": feed}
        return own | ({"h": heads} if workload in OWN_KEYS else {"g": shared, "q": heads // shared})

    def _padded(self, vocabulary: int, tp: int) -> int:
        if vocabulary % tp == 0:
            return vocabulary
        padded = -(-vocabulary // (PADDING * tp)) * PADDING * tp
        self.notes[f"vocabulary {vocabulary} padded to {padded}"] = None
        return padded
