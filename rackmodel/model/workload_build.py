"""From the file to the graph: statements parsed, operations in order, tensors with their kinds and extents, sections joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as AbcMapping
from dataclasses import replace

from rackmodel.errors import InputError, check_once, together
from rackmodel.model.einsum import Access, parse_statement
from rackmodel.model.gradients import with_gradients
from rackmodel.model.listing import in_order
from rackmodel.model.opkinds import APPEND
from rackmodel.model.resources import FAMILIES, SCALES, width
from rackmodel.model.sizes import evaluate, extent, resolve_sizes, whole_size
from rackmodel.model.workload import Kind, Op, Section, Serving, Tensor, Workload, first_stream, one_section, streams, streams_like_result
from rackmodel.model.workload_spec import Precision, SectionSpec, TensorSpec, WorkloadSpec

BORDERS = "; a sum of indices reads beyond the borders: a window of attention is a density of its scores, {density: w/s} under `tensors`"
"""Said of a window over what an operation makes, or another one reads whole."""
UNSAID = TensorSpec()
"""Of a tensor of which a file says nothing."""


def build_workload(spec: WorkloadSpec) -> Workload:
    """Check and connect a workload. Raises InputError with the dotted path of what is wrong.

    Of a decoder whose prompts run other operations: the step that its sizes say, and where that decodes, the prompts' beside it.
    """
    if not spec.mtp:
        return _model(spec, _built)
    own, module = _apart(spec)
    model = _model(own, _built)
    return replace(model, module=_model(module, _connected).sharing(model.weights))


def _apart(spec: WorkloadSpec) -> tuple[WorkloadSpec, WorkloadSpec]:
    """A model and its module, each with what the file says of tensors that it uses. Raises InputError."""
    if spec.serving is None:
        raise InputError("a module is of a decoder's step, which `serving` describes", path="mtp")
    model, module = (set(_named(_texts(sections))) for sections in (spec.sections, spec.mtp))
    own = {name: said for name, said in spec.tensors.items() if name in model or name not in module}
    theirs = {name: said for name, said in spec.tensors.items() if name in module}
    apart = spec.model_copy(update={"mtp": {}, "tensors": own})
    return apart, spec.model_copy(update={"name": f"{spec.name} module", "sections": spec.mtp, "mtp": {}, "tensors": theirs})


def _texts(sections: AbcMapping[str, SectionSpec]) -> list[str]:
    return [text for section in sections.values() for text in (*section.einsums.values(), *section.prompts.values()) if text]


def _model(spec: WorkloadSpec, built: Callable[[WorkloadSpec, dict[str, int]], Workload]) -> Workload:
    """What the sections say, as `built` makes it."""
    sizes = resolve_sizes(spec.sizes)
    if not any(section.prompts for section in spec.sections.values()):
        return built(spec, sizes)
    serving = _serving(spec)
    if serving is None:
        raise InputError("prompts are of a decoder's step, which `serving` describes", path="serving")
    decodes, prompts = _decoding(spec), _prompting(spec)
    if sizes[serving.new] > 1:
        return built(prompts, sizes)
    return replace(built(decodes, sizes), prompts=built(prompts, sizes))


def _decoding(spec: WorkloadSpec) -> WorkloadSpec:
    """The operations of decodes, and the tensors that these use."""
    return _with_sections(spec, {name: dict(section.einsums) for name, section in spec.sections.items()})


def _prompting(spec: WorkloadSpec) -> WorkloadSpec:
    """The operations of prompts: those of decodes, under what is said of prompts."""
    found = {}
    for name, section in spec.sections.items():
        for op, text in section.prompts.items():
            if text is None and op not in section.einsums:
                where = f"sections.{name}.prompts.{op}"
                raise InputError(f"no operation '{op}' to leave out", path=where, known=list(section.einsums), given=op)
        laid = {**section.einsums, **section.prompts}
        found[name] = {op: text for op, text in laid.items() if text is not None}
    return _with_sections(spec, found)


def _with_sections(spec: WorkloadSpec, einsums: AbcMapping[str, dict[str, str]]) -> WorkloadSpec:
    """The file with other operations, without what it says of tensors that only those left out use."""
    sections = {name: section.model_copy(update={"einsums": einsums[name], "prompts": {}}) for name, section in spec.sections.items()}
    gone = set(_named(_texts(spec.sections))) - set(_named(_texts(sections)))
    tensors = {name: said for name, said in spec.tensors.items() if name not in gone}
    return spec.model_copy(update={"sections": sections, "tensors": tensors})


def _named(texts: list[str]) -> Iterator[str]:
    """Names of tensors in some statements; what does not read as one is told later, with its place."""
    for text in texts:
        try:
            statement = parse_statement(text)
        except InputError:
            continue
        yield from (access.tensor for access in (statement.out, *statement.ins))


def _built(spec: WorkloadSpec, sizes: dict[str, int]) -> Workload:
    whole = _connected(spec, sizes)
    problems = [problem for problem in _idle(spec, whole) if problem is not None]
    if problems:
        raise together(problems)
    return whole


def _idle(spec: WorkloadSpec, whole: Workload) -> Iterator[InputError | None]:
    """What is said of widths and experts and could change nothing."""
    said = {tensor.precision for tensor in spec.tensors.values()}
    if spec.precision.experts is not None and "experts" not in said:
        yield InputError("no tensor's precision is 'experts'", path="precision.experts")
    if spec.precision.kv_cache is not None and "kv_cache" not in said and not whole.caches:
        yield InputError("no tensor is a kv_cache", path="precision.kv_cache")
    if whole.product_bits and not any(_quantised(op, whole) for op in whole.ops.values()):
        yield InputError("no product has a weight that is narrower than its other operand", path="precision.product")
    for name, tensor in whole.tensors.items():
        if tensor.routed and not any(_experts(op, name, whole) for op in whole.ops.values()):
            yield InputError(f"no product sends tokens to parts of '{name}'", path=f"tensors.{name}.read")
    yield from _unknown_crowds(spec, whole)
    yield from _shared_by_layers(whole)


def _shared_by_layers(whole: Workload) -> Iterator[InputError]:
    first: dict[str, Section] = {}
    for section in whole.sections:
        for name in section.workload.weights:
            before = first.setdefault(name, section)
            if before is not section and (before.layer or section.layer):
                fact = f"'{name}' is a weight of {before.name}, too: a layer has weights of its own, only a model's ends share one"
                yield InputError(f"{fact}. Call it otherwise", path=f"sections.{section.name}")


def _unknown_crowds(spec: WorkloadSpec, whole: Workload) -> Iterator[InputError]:
    skewed = spec.serving is not None and spec.serving.skew > 0
    if not spec.imbalance and not spec.routing and not skewed:
        return
    read = ((op, access.tensor) for op in whole.ops.values() for access in op.ins)
    experts = set[str]().union(*(_experts(op, name, whole) for op, name in read if whole.tensors[name].kind == "weight"))
    if skewed and not experts:
        yield InputError("no operation sends tokens to experts", path="serving.skew")
    for key, index in (*(("imbalance", one) for one in spec.imbalance), *(("routing", one) for one in spec.routing)):
        if index not in whole.sizes:
            yield InputError(f"no index '{index}'", path=f"{key}.{index}", known=sorted(whole.sizes), given=index)
        elif index not in experts:
            yield InputError(f"'{index}' counts no experts that tokens are sent to", path=f"{key}.{index}", known=sorted(experts))
    for index, one in spec.routing.items():
        if whole.sizes.get(index, 0) % one.groups:
            yield InputError(f"{whole.sizes[index]} experts in {one.groups} groups: want equal ones", path=f"routing.{index}.groups")
        elif one.kept > one.groups:
            yield InputError(f"{one.kept} of {one.groups} groups", path=f"routing.{index}.kept")
        elif index in experts and one.kept * whole.sizes[index] < one.groups * (taken := _experts_a_token(index, whole)) * (1 - 1e-9):
            there = one.kept * whole.sizes[index] // one.groups
            fact = f"{one.kept} of {one.groups} groups hold {there} of {whole.sizes[index]} experts, a token takes {taken:g}"
            yield InputError(fact, path=f"routing.{index}.kept")
    for index, most in spec.imbalance.items():
        path = f"imbalance.{index}"
        if most < 1:
            yield InputError(f"the most over the mean is {most:g}: it must be 1 or more", path=path)
        elif spec.serving is not None:
            yield InputError("a decoder's step says how tokens choose experts in `serving.skew`", path=path)


def _experts_a_token(index: str, whole: Workload) -> float:
    """Experts that a token takes: of what is there for some experts alone, the least (a capacity may send more)."""
    sparse = [tensor.density for tensor in whole.tensors.values() if index in tensor.ranks and tensor.density < 1]
    return whole.sizes[index] * min(sparse, default=0.0)


def _quantised(op: Op, whole: Workload) -> bool:
    tensors = [whole.tensors[access.tensor] for access in op.ins]
    return any(tensor.kind == "weight" and tensor.bits < max(one.bits for one in tensors) for tensor in tensors)


def _experts(op: Op, weight: str, whole: Workload) -> set[str]:
    """Indices that a sparse operand of an operation shares with a weight and the result."""
    mine = next((set(access.names) for access in op.ins if access.tensor == weight), set[str]())
    others = [access for access in op.ins if access.tensor != weight and whole.tensors[access.tensor].density < 1]
    return set[str]().union(*(mine & set(other.names) & set(op.out.names) for other in others))


def _connected(spec: WorkloadSpec, sizes: dict[str, int]) -> Workload:
    if spec.sections and spec.einsums:
        raise InputError("einsums or sections, not both", path="einsums")
    if not spec.sections:
        graph = _build(spec, _parse(spec.einsums, sizes, "einsums"), sizes)
        return _followed(one_section(replace(graph, batch=_batch(spec, graph)), graph.repeat))
    parsed = {name: _parse(said.einsums, sizes, f"sections.{name}.einsums") for name, said in spec.sections.items()}
    union: dict[str, Op] = {}
    for name, ops in parsed.items():
        for op in ops:
            if op in union:
                raise InputError(f"two sections have an operation '{op}'", path=f"sections.{name}.einsums.{op}")
        union.update(ops)
    if spec.repeat != 1:
        raise InputError("`repeat` belongs to a section", path="repeat")
    number = {op: k for k, ops in enumerate(parsed.values()) for op in ops}
    whole = _build(spec, union, sizes, number)
    whole = replace(whole, sections=_sections(spec, parsed, sizes, whole))
    batch = _batch(spec, whole)
    sections = tuple(replace(section, workload=replace(section.workload, batch=batch)) for section in whole.sections)
    return _followed(replace(whole, batch=batch, sections=sections))


def _followed(whole: Workload) -> Workload:
    """The model, whose activations say whether anything trained is behind them."""
    if not whole.backward:
        return whole
    sections = tuple(with_gradients(whole.sections))
    made = {op.out.tensor: section.workload.tensors[op.out.tensor] for section in sections for op in section.workload.ops.values()}
    tensors = {name: replace(one, trained=made[name].trained) if name in made else one for name, one in whole.tensors.items()}
    return replace(whole, tensors=tensors, sections=sections)


def _batch(spec: WorkloadSpec, whole: Workload) -> str:
    """The index that micro-batches may split: none that a weight has or an operation sums or normalises away. Raises InputError where it
    was asked for."""
    rank, said = spec.batch_rank, "batch_rank" in spec.model_fields_set
    if rank not in whole.sizes:
        if said:
            raise InputError(f"no size called '{rank}' for the batch", path="batch_rank", known=sorted(whole.sizes), given=rank)
        return ""
    summed = next((op.name for op in whole.ops.values() if rank in op.indices and rank not in op.out.names), "")
    if summed and said:
        raise InputError(f"{summed} sums over '{rank}': micro-batches cannot split it", path="batch_rank")
    weight = next((name for name in whole.weights if rank in whole.tensors[name].ranks), "")
    if weight and said:
        raise InputError(f"the weight {weight} has '{rank}': micro-batches cannot split it", path="batch_rank")
    return "" if summed or weight else rank


def _parse(texts: AbcMapping[str, str], sizes: dict[str, int], path: str) -> dict[str, Op]:
    ops: dict[str, Op] = {}
    for name, text in texts.items():
        try:
            ops[name] = Op(name, parse_statement(text), sizes)
            _check_sizes(ops[name], sizes)
        except InputError as problem:
            raise problem.at(None, f"{path}.{name}")
    if not ops:
        raise InputError("a workload needs at least one operation", path=path)
    return ops


def _sections(spec: WorkloadSpec, parsed: AbcMapping[str, dict[str, Op]], sizes: dict[str, int], whole: Workload) -> tuple[Section, ...]:
    """Each section as a workload of its own; neighbours joined by the name of what one writes and the next reads."""
    sections: list[Section] = []
    for name, said in spec.sections.items():
        used = {access.tensor for op in parsed[name].values() for access in (op.out, *op.ins)}
        mine = spec.model_copy(update={"tensors": {t: _inside(one) for t, one in spec.tensors.items() if t in used}})
        path = f"sections.{name}"
        repeat = said.repeat if isinstance(said.repeat, int) else whole_size(said.repeat, sizes, f"{path}.repeat")
        if repeat < 1:
            raise InputError("repeat must be at least 1", path=f"{path}.repeat")
        layer = replace(_build(mine, parsed[name], sizes), name=name, repeat=1)
        alone = len(spec.sections) == 1
        if sections:
            stream = _handed_on(name, layer, sections[-1].stream_out)
        else:
            stream = first_stream(layer, repeat) if alone else next(streams_like_result(layer), "")
        section = Section(name, layer, repeat, stream, alone=alone)
        if repeat > 1:
            _check_repeated(section, whole, path)
        sections.append(section)
    return tuple(sections)


def _check_repeated(section: Section, whole: Workload, path: str) -> None:
    """Raise InputError where a repeated section does not hand on what its next layer takes."""
    handed = whole.tensors[section.stream_out]
    taken = whole.tensors[section.stream_in] if section.stream_in else None
    if taken is not None and taken.sizes == handed.sizes:
        return
    reads = f"takes {_shown(taken)}" if taken is not None else "takes nothing of that shape"
    fact = f"what a repeated section writes must have the shape of what it reads: it hands on {_shown(handed)}, and {reads}"
    others = [name for name in streams_like_result(section.workload) if name != section.stream_in]
    if taken is not None and others:
        fact += f" from the section before; {others[0]} has that shape, and sections are a chain: give each stream a workload of its own"
    raise InputError(fact, path=f"{path}.repeat")


def _shown(tensor: Tensor) -> str:
    return f"{tensor.name}[{','.join(tensor.ranks)}]"


def _handed_on(name: str, section: Workload, before: str) -> str:
    """What the section before writes, which this one reads."""
    if before not in streams(section):
        raise InputError(f"section {name} reads {list(streams(section))}, the one before writes '{before}'", path=f"sections.{name}")
    return before


def _inside(said: TensorSpec) -> TensorSpec:
    """What is said of a tensor, for a section alone: an activation of the model may enter or leave it; weights and caches are the same."""
    return said if said.kind in ("weight", "kv_cache") else said.model_copy(update={"kind": None})


def _build(spec: WorkloadSpec, ops: dict[str, Op], sizes: dict[str, int], section: AbcMapping[str, int] | None = None) -> Workload:
    ordered = in_order(ops, spec.tensors, section)
    tensors = _tensors(spec, ordered, sizes)
    _check_phases(spec.phases)
    repeat = spec.repeat if isinstance(spec.repeat, int) else whole_size(spec.repeat, sizes, "repeat")
    if repeat < 1:
        raise InputError("repeat must be at least 1", path="repeat")
    return Workload(
        spec.name,
        ordered,
        tensors,
        spec.phases,
        sizes,
        width(spec.precision.gradient),
        width(spec.precision.state),
        repeat,
        _aliases(spec, ordered.values()),
        optimizer=spec.optimizer,
        serving=_serving(spec),
        product_bits=_product_bits(spec),
        product_family=spec.precision.product if spec.precision.product in FAMILIES else "",
        product_format=spec.precision.product or "",
        said=dict(spec.sizes),
        routing={index: (one.groups, one.kept) for index, one in spec.routing.items()},
        declared=frozenset(name for name, one in spec.tensors.items() if one.kind is not None),
    )


def _aliases(spec: WorkloadSpec, ops: Iterable[Op]) -> dict[str, str]:
    """Index → the index whose size it takes: as a file says it (`t: s`), or where it walks a rank that another one made, of a size that
    was said twice."""
    found = {name: value for name, value in spec.sizes.items() if isinstance(value, str) and value in spec.sizes}
    made: dict[str, Access] = {}
    for op in ops:
        for access in op.ins:
            ranks = zip(access.indices, made[access.tensor].indices, strict=True) if access.tensor in made else ()
            for (walked, *others), (first, *more) in ranks:
                (stride, i), (step, j) = walked, first
                if i != j and stride == step == 1 and not (others or more or {i, j} & {*found, *found.values()}):
                    found[i] = j
        made.setdefault(op.out.tensor, op.out)
    return found


def _check_phases(phases: Sequence[str]) -> None:
    """Raise InputError for phases that no step has."""
    if not phases:
        raise InputError("none: want [forward], or [forward, backward, optimizer]", path="phases")
    check_once(phases, "phases")
    if "recompute" in phases:
        raise InputError("recompute is a mapper's choice (its key `recompute`), no phase to ask for", path="phases")
    for phase, before in (("backward", "forward"), ("optimizer", "backward")):
        if phase in phases and before not in phases:
            raise InputError(f"{phase} without {before}", path="phases")


def _serving(spec: WorkloadSpec) -> Serving | None:
    """Names of a decoder's sizes. Raises InputError for one that is not there or counts two things, and where the step trains a model."""
    if spec.serving is None:
        return None
    if list(spec.phases) != ["forward"]:
        raise InputError("a decoder's step goes forward alone: want [forward], or no `serving`", path="phases")
    said = spec.serving.model_dump(include={"sequences", "new", "cached"})
    twice = next((key for key, name in said.items() if list(said.values()).count(name) > 1), None)
    if twice is not None:
        raise InputError(f"sequences, new and cached are three sizes, and '{said[twice]}' is two of them", path=f"serving.{twice}")
    for key, name in said.items():
        if name not in spec.sizes:
            raise InputError(f"no size called '{name}'", path=f"serving.{key}", known=sorted(spec.sizes), given=name)
    return Serving(**said, skew=spec.serving.skew, positions=spec.serving.positions)


def _product_bits(spec: WorkloadSpec) -> int:
    try:
        return width(spec.precision.product) if spec.precision.product is not None else 0
    except ValueError as problem:
        raise InputError(str(problem), path="precision.product")


def _check_sizes(op: Op, sizes: AbcMapping[str, int]) -> None:
    for index in op.indices:
        if index not in sizes:
            raise InputError(f"index '{index}' has no size in `sizes`", known=sorted(sizes), given=index)


def _tensors(spec: WorkloadSpec, ops: dict[str, Op], sizes: dict[str, int]) -> dict[str, Tensor]:
    accesses: dict[str, list[tuple[str, Access]]] = {}
    written = {op.out.tensor for op in ops.values()}
    appended = {op.out.tensor for op in ops.values() if op.kind.name == APPEND}
    read = {access.tensor for op in ops.values() for access in op.ins}
    for op in ops.values():
        accesses.setdefault(op.out.tensor, []).insert(0, (op.name, op.out))
        for access in op.ins:
            accesses.setdefault(access.tensor, []).append((op.name, access))
    problems = [
        InputError(f"no operation uses a tensor '{name}'", path=f"tensors.{name}", known=sorted(accesses), given=name)
        for name in spec.tensors
        if name not in accesses
    ]
    tensors = {}
    for name, uses in accesses.items():
        try:
            kind = spec.tensors.get(name, UNSAID).kind or _kind(name, name in written, name in read)
            tensors[name] = _tensor(spec, name, kind, uses, sizes)
            if (kind in ("weight", "input") or (kind == "kv_cache" and name not in appended)) == (name in written):
                fact = f"'{name}' cannot be {_a(kind)}: it is {'written' if name in written else 'never written'}"
                raise InputError(fact, path=f"tensors.{name}")
            if kind != "kv_cache" and name in appended:
                raise InputError(f"append adds to a cache: say kind: kv_cache of '{name}'", path=f"tensors.{name}")
        except InputError as problem:
            problems.append(problem)
    if problems:
        raise together(problems)
    return tensors


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _tensor(spec: WorkloadSpec, name: str, kind: Kind, uses: list[tuple[str, Access]], sizes: dict[str, int]) -> Tensor:
    """One tensor, whose uses (operation and access, its writer first) must agree. Raises InputError."""
    said, first = spec.tensors.get(name, UNSAID), uses[0][1]
    ranks = tuple("+".join(index for _, index in affine) for affine in first.indices)
    extents = tuple(extent(affine, sizes) for affine in first.indices)
    for op_name, access in uses[1:]:
        if len(access.indices) != len(ranks):
            raise InputError(f"{access} has {len(access.indices)} ranks, but {first} has {len(ranks)}", path=f"einsums.{op_name}")
        for position, affine in enumerate(access.indices):
            if extent(affine, sizes) != extents[position]:
                fact = f"{access} walks rank {position + 1} of {name} over {extent(affine, sizes)}, {first} makes it {extents[position]}"
                raise InputError(fact + (BORDERS if len(affine) > 1 else ""), path=f"einsums.{op_name}")
    density = evaluate(said.density, sizes, f"tensors.{name}.density")
    if not 0 < density <= 1:
        raise InputError(f"density {density:g} of '{name}' must be above 0 and at most 1", path=f"tensors.{name}.density")
    bits, scale, numbers = _bits(said.precision, spec.precision, kind, f"tensors.{name}.precision")
    page = _page(said, kind, ranks, f"tensors.{name}.page")
    if said.read == "routed" and kind != "weight":
        raise InputError(f"routed are weights of experts, not {_a(kind)}", path=f"tensors.{name}.read")
    if not said.held and kind != "kv_cache":
        raise InputError(f"another layer may hold a kv_cache, not {_a(kind)}", path=f"tensors.{name}.held")
    if said.gradient is not None and kind != "activation":
        raise InputError(f"an activation's gradient may be wider than it is, not that of {_a(kind)}", path=f"tensors.{name}.gradient")
    if said.detached and kind not in ("activation", "output"):
        raise InputError(f"what is made may be detached from what it is made of, not {_a(kind)}", path=f"tensors.{name}.detached")
    if not said.trained and kind not in ("weight", "input"):
        raise InputError(f"weights and inputs are trained or frozen, not {_a(kind)}", path=f"tensors.{name}.trained")
    return Tensor(
        name,
        ranks,
        extents,
        bits,
        kind,
        density,
        said.format,
        scale,
        page,
        said.read == "routed",
        said.held,
        said.trained,
        first,
        said.density,
        width(said.gradient) if said.gradient is not None else 0,
        _crowded(spec, kind, ranks, density),
        said.detached,
        numbers,
    )


def _crowded(spec: WorkloadSpec, kind: Kind, ranks: tuple[str, ...], density: float) -> tuple[tuple[str, float], ...]:
    """Ranks of a tensor that count experts chosen unevenly: of what tokens are sent to. No expert is sent more tokens than there are."""
    sent = density < 1 and kind != "weight"
    return tuple((rank, min(most, 1.0 / density)) for rank, most in spec.imbalance.items() if sent and rank in ranks)


def _page(said: TensorSpec, kind: Kind, ranks: tuple[str, ...], path: str) -> tuple[tuple[str, int], ...]:
    """Pages of a cache by rank. Raises InputError."""
    if said.page and kind != "kv_cache":
        raise InputError(f"pages are of a kv_cache, not of {_a(kind)}", path=path)
    for rank in said.page:
        if rank not in ranks:
            raise InputError(f"no rank '{rank}'", path=f"{path}.{rank}", known=ranks, given=rank)
    return tuple(said.page.items())


def _kind(name: str, written: bool, read: bool) -> Kind:
    if not written:
        return "weight" if name.startswith("W") else "input"
    return "activation" if read else "output"


def _bits(said: str | None, precision: Precision, kind: Kind, path: str) -> tuple[int, float, str]:
    """(bits of an element, of the scales that it shares, the precision in a word)."""
    if said is not None and said.replace(" ", "") == "0bit":
        return 0, 0.0, said
    classes = precision.classes
    text = classes[{"weight": "weight", "kv_cache": "kv_cache"}.get(kind, "activation")] if said is None else classes.get(said, said)
    try:
        return width(text), SCALES.get(text, 0.0), text
    except ValueError as problem:
        raise InputError(str(problem), path=path)
