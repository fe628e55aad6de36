"""A part's kernels fitted to measured rows: what `rackmodel calibrate` does, and the part file that it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rackmodel.arrays import Array
from rackmodel.calibration.fit_grouped import FEWEST_SHAPES, ExpertCalls, fit_grouped, like_of, said_of
from rackmodel.calibration.fit_grouped import LEAST_ROWS as LEAST_CALLS
from rackmodel.calibration.fit_products import Machine, ProductFit, fit, too_few
from rackmodel.calibration.fit_vectors import LEAST_ROWS as LEAST_RUNS
from rackmodel.calibration.fit_vectors import fit_vectors, said_of_vector
from rackmodel.calibration.from_layers import cases_of, products_of_layers, vectors_of_layers
from rackmodel.calibration.part_attention import CalibratedAttention, attention_tree, calibrate_attention
from rackmodel.calibration.product_rows import ProductRows, one_gpu, read_products
from rackmodel.calibration.shares import mean_and_median
from rackmodel.cost.inside.experts import expert_device
from rackmodel.cost.inside.gpu import Gpu, gpu_of
from rackmodel.cost.inside.products import Device
from rackmodel.errors import InputError, Where
from rackmodel.inputs import read_architecture
from rackmodel.inputs.library import resolve
from rackmodel.model.architecture import Architecture
from rackmodel.model.grouped import Grouped
from rackmodel.model.resources import WAITING, Products, WatchedKind, width
from rackmodel.validation.experts import ExpertCase, expert_case
from rackmodel.validation.layer_ops import LayerCase
from rackmodel.validation.rows import PRECISIONS, PublishedRow, columns_of, kind_of_file, read_rows
from rackmodel.validation.words import PrecisionWords, Refused, look_up, words

ATTENTION = ("attention", "latent attention", "mixed attention")
KERNELS = ("expert products", "quantise", "layer operation")
"""Kinds of rows that are no products by their sizes."""
NO_KERNELS = "the part states no kernels to fit"
NOTHING: dict[str, str | float | None] = {
    "block": "0 us",
    "latency": "0 us",
    "split": None,
    "dispatch": None,
    "sustained": None,
    "quantise": 0.0,
    "reuse": "0 B",
    "reuse_bandwidth": None,
    "eager": None,
}
"""Keys of products that a fit may find to be nothing, and how a part says that."""
KEPT = ("tuned", "quantised", "aligned")  # of a kernel of experts' products, what no fit finds
NOTHING_GROUPED: dict[str, str | float | None] = {"unaligned": 1.0, "cached": 1.0, "reuse": "0 B", "reuse_bandwidth": None}
"""The same of kernels of experts' products."""


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Facts of one kind of kernels. of: key of a part's `kernels` ('products') · name: under it · what: was measured · count: of rows ·
    gpu, source: whose, and their file · inside, outside: |predicted / measured - 1| of rows in the fit, and of each without its shape ·
    said: what a part file says."""

    of: str
    name: str
    what: str
    count: int
    gpu: str
    source: str
    inside: Array
    outside: Array
    said: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "gpu": self.gpu,
            "kernels": self.of,
            "precision": self.name,
            "n": self.count,
            "facts": dict(self.said),
            "mean_abs_error_pct": 100 * float(self.inside.mean()),
            "held_out_mean_abs_error_pct": 100 * float(self.outside.mean()),
        }

    def words(self) -> str:
        """How far the fit is from its rows, and from rows of shapes that it did not see."""
        return (
            f"fitted to {self.count} {self.what} of {self.source} ({', '.join(filter(None, (self.gpu, self.name)))}): "
            f"mean and median error {mean_and_median(self.inside)} %, of shapes held out {mean_and_median(self.outside)} %"
        )


Found = Calibrated | CalibratedAttention


def calibrate(part: str, paths: Sequence[Path], gpu: str | None = None, left: list[str] | None = None) -> list[Found]:
    """Fit the kernels of a part whose rows the files hold: products at every precision that it multiplies, calls of experts' products,
    operations of layers, attention. gpu: of the files, where they hold several · left: gets what is said of rows that no fit took. Raises
    InputError, where nothing is left to fit too."""
    left = [] if left is None else left
    machine = part_alone(part)
    attention = [path for path in paths if _kind(path) in ATTENTION]
    others = [path for path in paths if path not in attention]
    found: list[Found] = list(_matrices(machine, part, others, gpu, left)) if others else []
    if attention:
        found += calibrate_attention(machine, _gpu(machine), attention, gpu, left)
    if not found:
        raise InputError(f"no kernel to fit: {'; '.join(left)}", path=", ".join(path.name for path in paths))
    return found


def _kind(path: Path) -> str:
    """Kind of a file's rows; '' where that has to be said by who reads it."""
    try:
        return kind_of_file(path)
    except InputError:
        return ""


def _matrices(machine: Architecture, part: str, paths: Sequence[Path], gpu: str | None, left: list[str]) -> list[Calibrated]:
    """Of products, experts' calls and operations of layers. left: gets what is said of what no fit took."""
    published = [row for path in paths if is_of_kernels(path) for row in read_rows(path)]
    products = [rows for path in paths if not is_of_kernels(path) for rows in read_products(path)]
    one_gpu([rows.gpu for rows in products] + [row.text("system", "gpu") for row in published], gpu)
    own = [row for row in published if gpu in (None, row.text("system", "gpu"))]
    layers = [row for row in own if row.kind != "expert products"]
    cases = cases_of(layers, left)
    every = [rows for rows in products if gpu in (None, rows.gpu)] + products_of_layers(layers, cases)
    experts = [row for row in own if row not in layers]
    return _products(part, machine, every, left) + _grouped(machine, experts, left) + _vectors(machine, layers, cases, left)


def is_of_kernels(path: Path) -> bool:
    """Whether a file's rows are calls of experts' products, or single operations of layers."""
    return path.is_file() and bool({"moe_dtype", "quant_dtype", "op"} & set(columns_of(path))) and kind_of_file(path) in KERNELS


def _products(part: str, machine: Architecture, found: Sequence[ProductRows], left: list[str]) -> list[Calibrated]:
    """Fits of products at every precision that the part multiplies; the others are left out."""
    rates = _precisions(machine)
    chosen = [rows for rows in found if rows.precision in rates or _family(rows.precision)]
    if found and not rates:
        raise InputError(NO_KERNELS, path="--part")
    if found and not chosen:
        said, where = found[0].precision, found[0].where
        fact = f"rows are at '{said}'" if said else f"no column says a precision ({', '.join(PRECISIONS)})"
        given = said or None
        raise InputError(f"{fact}: want one that {part} multiplies", where=where, path=PRECISIONS[0], known=list(rates), given=given)
    for rows in found:
        if rows.precision not in rates and not _family(rows.precision):
            left.append(f"{len(rows)} products of {rows.source} at '{rows.precision}', which {part} does not multiply")
    left += [few for rows in chosen if (few := too_few(rows))]
    chosen = [rows for rows in chosen if not too_few(rows)]
    done: dict[str, ProductFit] = {}
    for rows in sorted(chosen, key=lambda rows: bool(_family(rows.precision))):
        done[rows.precision] = fit(rows, machine_of(machine, rows.precision), _like(machine, rows.precision, done))
    stated = _gpu(machine).facts.products
    return [calibrated_products(rows, done[rows.precision], stated.get(rows.precision)) for rows in chosen]


def _vectors(machine: Architecture, rows: Sequence[PublishedRow], cases: Sequence[LayerCase], left: list[str]) -> list[Calibrated]:
    """Fits of the vector kernels, of which there are runs enough; the others are left out."""
    gpu = gpu_of(machine)
    done = []
    for kernel, runs in (vectors_of_layers(gpu, cases) if gpu is not None else {}).items():
        if len(runs.seconds) < LEAST_RUNS:
            left.append(f"{len(runs.seconds)} runs of {kernel}: want {LEAST_RUNS} or more")
            continue
        source = Path(rows[0].file).name
        found = fit_vectors(runs, source)
        done.append(
            Calibrated(
                of="vector",
                name=kernel,
                what="runs",
                count=len(runs.seconds),
                gpu=rows[0].text("system", "gpu"),
                source=source,
                inside=found.inside,
                outside=found.outside,
                said=said_of_vector(found.facts),
            )
        )
    return done


def calibrated_products(rows: ProductRows, found: ProductFit, stated: Products | None = None) -> Calibrated:
    """What a fit of products says. stated: what the part that is extended says of them, which must not count beside it."""
    said = _facts(found.facts, rows.precision)
    said |= {key: none for key, none in NOTHING.items() if stated is not None and key not in said and _stated(stated, key)}
    said |= {"held_out": round(float(found.outside.mean()), 3)}
    said |= {"layers": round(found.layers, 3)} if found.layers else {}
    return Calibrated(
        of="products",
        name=rows.precision,
        what="products",
        count=len(rows),
        gpu=rows.gpu,
        source=rows.source,
        inside=found.inside,
        outside=found.outside,
        said=said,
    )


def _grouped(machine: Architecture, rows: Sequence[PublishedRow], left: list[str]) -> list[Calibrated]:
    """Fits of the kernels of experts' products, of which there are rows enough; the others are left out."""
    gpu = gpu_of(machine)
    if rows and gpu is None:
        raise InputError(NO_KERNELS, path="--part")
    cases: dict[str, list[tuple[PublishedRow, ExpertCase]]] = {}
    for row in rows:
        try:
            case = expert_case(row)
        except Refused as problem:
            raise InputError(str(problem), where=Where(row.file, row.line, 1)) from None
        cases.setdefault(case.kernel, []).append((row, case))
    done: list[Calibrated] = []
    fitted: dict[str, Grouped] = {}
    shapes = {kernel: len({case.shape for _, case in own}) for kernel, own in cases.items()}
    for kernel, own in sorted(cases.items(), key=lambda one: -shapes[one[0]]):
        if gpu is None or len(own) < LEAST_CALLS:
            left.append(f"{len(own)} calls of {kernel}: want {LEAST_CALLS} or more")
            continue
        like = like_of(look_up(words().expert_precisions, "precision", own[0][0].text("moe_dtype")))
        if kernel in gpu.facts.grouped:  # what no fit finds
            like = like.model_copy(update={name: getattr(gpu.facts.grouped[kernel], name) for name in KEPT})
        device = expert_device(like, gpu, looped=True)
        source = Path(own[0][0].file).name
        calls = ExpertCalls.of(device, like, [case for _, case in own]).starting_as(_fellow(kernel, like, fitted, shapes))
        found = fit_grouped(calls, source, gpu.cache)
        fitted[kernel] = found.facts
        done.append(
            Calibrated(
                of="grouped",
                name=kernel,
                what="calls",
                count=len(own),
                gpu=own[0][0].text("system", "gpu"),
                source=source,
                inside=found.inside,
                outside=found.outside,
                said=_no_longer(gpu.facts.grouped.get(kernel)) | said_of(found.facts),
            )
        )
    return done


def _no_longer(stated: Grouped | None) -> dict[str, Any]:
    """What a part says of a kernel that a fit may not find, as nothing: the part that is written extends it."""
    before = {} if stated is None else said_of(stated)
    return {key: none for key, none in NOTHING_GROUPED.items() if key in before}


def _fellow(kernel: str, like: Grouped, fitted: Mapping[str, Grouped], shapes: Mapping[str, int]) -> Grouped | None:
    """Of the kernels of the same library whose shapes were enough, the one of most, if its operands are plain as its own are."""
    library = kernel.rsplit(" ", 1)[0]
    enough = [name for name in fitted if name.rsplit(" ", 1)[0] == library and shapes[name] >= FEWEST_SHAPES]
    return next((fitted[name] for name in enough if fitted[name].family == like.family == ""), None)


def _family(precision: str) -> PrecisionWords | None:
    """What is known of a kind of operands that is no width."""
    found = words().precisions.get(precision)
    return found if found is not None and found.family == precision else None


def _like(machine: Architecture, precision: str, done: Mapping[str, ProductFit]) -> Products | None:
    """The kind that products which a host bounded are like: of the same width, else of the next wider one that is known."""
    said = _family(precision)
    gpu = gpu_of(machine)
    if said is None or said.timed != "looped eager" or gpu is None:
        return None
    every = dict(gpu.facts.products) | {key: one.facts for key, one in done.items()}
    known = {key: one for key, one in every.items() if one.operands is None and one.eager is None}
    wide_enough = [key for key in known if width(key) >= width(said.width)]
    if not wide_enough:
        raise InputError(f"'{precision}' needs products of its width, or a wider one, that a CUDA graph launched", path="--part")
    return known[min(wide_enough, key=width)]


def part_alone(part: str) -> Architecture:
    """One accelerator of a part, as a machine. Raises InputError."""
    try:
        resolve("part", part)
    except InputError as problem:
        raise problem.at(None, "--part") from None
    return read_architecture(yaml.safe_dump({"architecture": "alone", "tree": {"name": "gpu", "part": part}}, sort_keys=False))


def machine_of(architecture: Architecture, precision: str) -> Machine:
    """What products run on at one precision, by the rule that the part says of them. Raises InputError where the part has no kernels."""
    gpu = _gpu(architecture)
    known = gpu.facts.products.get(precision)
    said = _family(precision)
    bits = width(precision if said is None else said.width)
    peak = gpu.compute.matrix(bits).rate_flop_per_s * gpu.units
    device = Device(peak=peak, blocks=gpu.blocks, element=bits / 8)
    return Machine(device=device, bandwidth=gpu.bandwidth, cache=gpu.cache, dispatch=known.dispatch if known is not None else None)


def _gpu(architecture: Architecture) -> Gpu:
    """What kernels of a part run on. Raises InputError where it has none."""
    gpu = gpu_of(architecture)
    if gpu is None:
        raise InputError(NO_KERNELS, path="--part")
    return gpu


def _precisions(architecture: Architecture) -> tuple[str, ...]:
    gpu = gpu_of(architecture)
    return tuple(gpu.compute.precisions) if gpu is not None else ()


def part_text(part: str, name: str, found: Sequence[Found], busy: Mapping[WatchedKind | None, Mapping[str, str]] | None = None) -> str:
    """A part file that puts the fits into `part`: levels merge by name, so it holds the way down to the compute alone. busy: what kernels
    of a kind draw, with its source, where watts were measured (None: those of no kind, WAITING: while none runs)."""
    kernels: dict[str, dict[str, Any]] = {}
    for kind, fact in (busy or {}).items():
        if kind is None:
            kernels["busy_power"] = dict(fact)
        elif kind == WAITING:
            kernels["waiting_power"] = dict(fact)
        else:
            kernels.setdefault("busy", {})[kind] = dict(fact)
    for one in found:
        if isinstance(one, Calibrated):
            kernels.setdefault(one.of, {})[one.name] = {**one.said, "source": f"SOURCED: {one.words()}"}
    attention = attention_tree([one for one in found if isinstance(one, CalibratedAttention)])
    kernels |= {"attention": attention} if attention else {}
    inside = [level.name for level, _ in part_alone(part).inside]
    tree: dict[str, Any] = {"compute": {"kernels": kernels}}
    for level in reversed(inside[inside.index("gpu") + 1 :]):
        tree = {"children": [{"name": level, **tree}]}
    data = {"part": name, "extends": part, **tree}
    return f"# {part} with the kernels that were measured, by `rackmodel calibrate`.\n" + yaml.safe_dump(
        data, sort_keys=False, width=10**6, allow_unicode=True
    )


def _stated(facts: Products, key: str) -> bool:
    """Whether facts say a key of NOTHING."""
    names = {field.alias or name: name for name, field in Products.model_fields.items()}
    return bool(getattr(facts, names[key]))


def _facts(facts: Products, precision: str) -> dict[str, Any]:
    """What a part file says of products at one precision, in four digits."""
    said: dict[str, Any] = {
        "start": f"{facts.start_s * 1e6:.4g} us",
        "rate": float(f"{facts.rate:.4g}"),
        "load": f"{facts.load_bytes_per_s / 1e9:.4g} GB/s",
        "step": f"{facts.step_s * 1e9:.4g} ns",
        "memory": float(f"{facts.memory:.4g}"),
    }
    said |= {name: f"{s * 1e6:.4g} us" for name, s in (("block", facts.block_s), ("latency", facts.latency_s)) if s}
    if facts.sustained is not None:
        said |= {"sustained": float(f"{facts.sustained:.4g}")} | ({"dispatch": facts.dispatch} if facts.dispatch else {})
    if facts.split_s is not None:
        said["split"] = f"{facts.split_s * 1e6:.4g} us"
    if facts.quantise:
        said["quantise"] = float(f"{facts.quantise:.4g}")
    if facts.reuse_bytes_per_s is not None:
        said |= {"reuse": f"{facts.reuse_bytes / 1e6:.4g} MB", "reuse_bandwidth": f"{facts.reuse_bytes_per_s / 1e9:.4g} GB/s"}
    if facts.eager is not None:
        known = _family(precision)
        said["operands"] = known.width if known is not None else "8 bit"
        times = {"time": facts.eager.time_s, "few_time": facts.eager.few_time_s or facts.eager.time_s}
        said["eager"] = {name: f"{seconds * 1e6:.4g} us" for name, seconds in times.items()} | {"few": facts.eager.few}
    return said
