"""Sizes of a transformer, read off the ranks of its operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from rackmodel.errors import InputError
from rackmodel.model.einsum import Access
from rackmodel.model.workload import Op, Section, Workload
from rackmodel.report.launch.features import STATES, Features, features, value_ranks

ATTENTION = "no layer with attention (a softmax over a product of two activations)"


@dataclass(frozen=True)
class Shape:
    """Sizes of a transformer, and the ranks they were read off, of the kind of layers of which there are most.

    groups: key-value heads · ffn: of one expert, where there are any · shared: of experts that every token passes, together · dense,
    dense_ffn: layers without experts that come before those with them · unlike: other kinds of layers whose sizes differ · normed: whether
    each head of queries and keys is normalised, or all of them together ('whole') · features: what its layers compute beside."""

    layers: int
    hidden: int
    heads: int
    groups: int
    head: int
    ffn: int
    sequence: int
    vocab: int
    experts: int
    top_k: int
    shared: int
    dense: int
    dense_ffn: int
    unlike: tuple[str, ...]
    normed: Literal["", "heads", "whole"]
    rms: bool
    gated: bool
    rope: bool
    tied: bool
    biased: bool
    dropout: bool
    features: Features
    body: Workload
    position: str
    head_ranks: tuple[str, ...]
    ffn_rank: str
    shared_rank: str
    vocab_rank: str
    expert_rank: str
    scores: str
    key_rank: str


@dataclass(frozen=True)
class _Layer:
    """What the ranks of a layer are. keys: the operand of the scores that has the keys · scores: their maker · key: the index that the
    softmax normalises over · spread: what sends tokens to experts, if there are any."""

    width: tuple[str, ...]
    position: str
    heads: tuple[str, ...]
    keys: Access
    scores: Op
    key: str
    spread: Op | None
    experts: str
    ffn: str
    shared: str


def model_shape(workload: Workload) -> Shape:
    """Sizes of a transformer in sections, by what its ranks do. Raises InputError where it has no attention or feed-forward."""
    kinds = [section for section in workload.sections if section.layer]
    most = max(kinds, key=lambda section: section.repeat, default=None)
    if most is None:
        raise InputError(ATTENTION, path="--flags")
    ordered = [most, *(section for section in kinds if section is not most)]
    layer, body, size = _layer(most, workload.batch), most.workload, workload.sizes
    first, last = workload.sections[0].workload, workload.sections[-1].workload
    vocab = [rank for weight in last.weights for rank in last.tensors[weight].ranks if rank not in layer.width]
    norms = [op for op in body.ops.values() if op.statement.kind in ("layernorm", "rmsnorm")]
    words = {op.statement.kind for section in workload.sections for op in section.workload.ops.values()}
    dense, unlike = _others(kinds, most, layer, workload)
    return Shape(
        layers=sum(section.repeat for section in kinds),
        **_sizes(layer, size),
        sequence=size[layer.position],
        vocab=prod(size[rank] for rank in vocab),
        top_k=_chosen(layer, body, size),
        dense=sum(section.repeat for section, _ in dense),
        dense_ffn=dense[0][1] if dense else 0,
        unlike=tuple(section.name for section in unlike),
        normed=_normed(layer, norms),
        rms=any(op.statement.kind == "rmsnorm" for op in norms),
        gated="swiglu" in words,
        rope="rope" in words,
        tied=bool(set(first.weights) & set(last.weights)),
        biased=any(len(op.ins) > 2 for op in norms),
        dropout="dropout" in words,
        features=features(ordered, [_scores(section.workload) for section in ordered], layer.ffn, layer.heads),
        body=body,
        position=layer.position,
        head_ranks=layer.heads,
        ffn_rank=layer.ffn,
        shared_rank=layer.shared,
        vocab_rank=vocab[0] if vocab else "",
        expert_rank=layer.experts,
        scores=layer.scores.name,
        key_rank=layer.key,
    )


def _normed(layer: _Layer, norms: Sequence[Op]) -> Literal["", "heads", "whole"]:
    """How queries and keys are normalised."""
    inside = set(layer.scores.contracted)
    over = [set(op.over) for op in norms if inside & set(op.over)]
    return "" if not over else "heads" if all(one == inside for one in over) else "whole"


def _chosen(layer: _Layer, body: Workload, size: Mapping[str, int]) -> int:
    """Experts of a token; 0 = there are none."""
    sent = layer.spread.out.tensor if layer.spread is not None else ""
    return round(body.tensors[sent].density * size[layer.experts]) if sent and layer.experts else 0


def _layer(section: Section, batch: str) -> _Layer:
    """The ranks of a section of layers. Raises InputError where it has no attention or feed-forward."""
    body, scores = section.workload, _scores(section.workload)
    states = [f"{op.name}, {op.kind.name}" for op in body.ops.values() if op.kind.name in STATES]
    if states:
        fact = f"layers of '{section.name}' carry a state along the sequence ({states[-1]}): no arguments are known here for them"
        raise InputError(fact, path="--flags")
    if not section.stream_in or scores is None:
        raise InputError(ATTENTION, path="--flags")
    carried = {rank for weight in body.weights for rank in body.tensors[weight].ranks}
    stream = body.tensors[section.stream_in].ranks
    width = tuple(rank for rank in stream if rank in carried)
    position = next((rank for rank in stream if rank != batch and rank not in carried), "")
    maker, key = scores
    heads = tuple(rank for rank in maker.out.names if rank not in (batch, position, key))
    spread = next((op for op in body.ops.values() if op.statement.kind == "dispatch"), None)
    experts = [rank for rank in spread.out.names if rank not in spread.ins[0].names] if spread is not None else []
    inner = [
        rank for rank in sorted(carried) if rank not in (*width, *heads, *maker.contracted, *experts, *value_ranks(body, maker, heads))
    ]
    own = {rank for weight in body.weights if set(experts) & set(body.tensors[weight].ranks) for rank in body.tensors[weight].ranks}
    ffn, shared = ([rank for rank in inner if (not experts or rank in own) == routed] for routed in (True, False))
    if len(ffn) != 1 or len(shared) > 1 or len(experts) > 1 or not position:
        raise InputError(f"no single feed-forward rank among the weights' ranks {sorted(carried)}", path="--flags")
    keys = next(access for access in maker.ins if key in access.names)
    return _Layer(width, position, heads, keys, maker, key, spread, "".join(experts), ffn[0], "".join(shared))


def _sizes(layer: _Layer, size: Mapping[str, int]) -> dict[str, int]:
    """Sizes of a layer, as a Shape calls them."""
    return {
        "hidden": prod(size[rank] for rank in layer.width),
        "heads": prod(size[rank] for rank in layer.heads),
        "groups": prod(size[rank] for rank in layer.heads if rank in layer.keys.names),
        "head": prod(size[rank] for rank in layer.scores.contracted),
        "ffn": size[layer.ffn],
        "experts": size[layer.experts] if layer.experts else 0,
        "shared": size[layer.shared] if layer.shared else 0,
    }


def _others(kinds: Sequence[Section], most: Section, layer: _Layer, workload: Workload) -> tuple[list[tuple[Section, int]], list[Section]]:
    """(kinds without experts that come before the one with experts of which there are most, each with its ffn; those whose sizes differ
    otherwise)."""
    own, dense, unlike = _sizes(layer, workload.sizes), list[tuple[Section, int]](), list[Section]()
    for place, section in enumerate(kinds):
        try:
            sizes = _sizes(_layer(section, workload.batch), workload.sizes)
        except InputError:
            unlike.append(section)
            continue
        attention = all(sizes[word] == own[word] for word in ("hidden", "heads", "groups", "head"))
        before = place < list(kinds).index(most) and all(ffn == sizes["ffn"] for _, ffn in dense)
        if attention and own["experts"] and not sizes["experts"] and before:
            dense.append((section, sizes["ffn"]))
        elif sizes != own:
            unlike.append(section)
    return dense, unlike


def _scores(body: Workload) -> tuple[Op, str] | None:
    """The product of queries and keys, and the index the softmax normalises over: neither operand is a weight."""
    for op in body.ops.values():
        if op.statement.kind == "softmax" and len(op.over) == 1:
            maker = body.ops.get(body.producer.get(op.ins[0].tensor, ""))
            while maker is not None and maker.statement.kind == "scale":
                maker = body.ops.get(body.producer.get(maker.ins[0].tensor, ""))
            if maker is not None and len(maker.ins) == 2 and not any(access.tensor in body.weights for access in maker.ins):
                return maker, op.over[0]
    return None
