"""Layers that a config says one by one (`each` of a family): those of like blocks and sizes are counted together, as they come first.

Each layer's entries are read as KEY__ENTRY, and refused as those of a config are (hf_keys).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from rackmodel.errors import InputError, together
from rackmodel.inputs.decoders import LayerCount, indices_of
from rackmodel.inputs.hf_keys import Config, numbers_of, options, refused
from rackmodel.inputs.marked import Marked, place_of
from rackmodel.model.family import LayerKind
from rackmodel.model.sizes import size_names


def layers_one_by_one(config: Config, key: str) -> list[LayerCount]:
    """Layers of each kind and size. Raises InputError for a list that is not of all layers, and for a layer of no kind, or of several."""
    listed = config.node.child(key)
    if listed is None or not listed.items:
        raise InputError(f"no list of layers, which family {config.family.name} needs", where=place_of(config.node, [key]), path=key)
    if config.layers and len(listed.items) != config.layers:
        raise InputError(f"lists {len(listed.items)} layers, of {config.layers}", where=listed.where, path=key)
    each = [_spread(layer, key) for layer in listed.items]
    if problems := [problem for layer in each for problem in refused(layer, config.family)]:
        raise together(problems)
    found: dict[tuple[str, tuple[tuple[str, int], ...]], LayerCount] = {}
    for layer in each:
        own = replace(config, node=layer, numbers=config.numbers | dict(numbers_of(layer, config.family)))
        kind = _kind(own)
        sizes = _sizes(own, kind, key)
        known = found.get((kind.name, tuple(sizes.items())))
        found[kind.name, tuple(sizes.items())] = LayerCount(kind.name, kind.blocks, known.count + 1 if known else 1, sizes)
    return [layer for layer in found.values() if layer.blocks]


def _spread(layer: Marked, key: str) -> Marked:
    """A layer's entries, and those of its parts, side by side."""
    flat = Marked({}, layer.where)
    for name, child in _entries(layer, key):
        flat = flat.having(name, child)
    return flat


def _entries(node: Marked, name: str) -> Iterator[tuple[str, Marked]]:
    for entry, child in node.mapping.items():
        if child.mapping:
            yield from _entries(child, f"{name}__{entry}")
        else:
            yield f"{name}__{entry}", child


def _kind(layer: Config) -> LayerKind:
    """The kind that a layer is of."""
    kinds = [kind for kind in layer.family.layers if layer.whole(kind.count, f"layers.{kind.name}")]
    if len(kinds) != 1:
        known = [kind.name for kind in layer.family.layers]
        fact = f"is {' and '.join(kind.name for kind in kinds) or 'none'} of the layers that family {layer.family.name} has"
        raise InputError(fact, where=layer.node.where, known=known)
    return kinds[0]


def _sizes(layer: Config, kind: LayerKind, key: str) -> Mapping[str, int]:
    """Sizes that its blocks use and its entries say."""
    used, said = indices_of(kind.blocks), layer.family.sizes
    named = {index: {name for text in options(said[index]) for name in size_names(text)} for index in said if index in used}
    own = [index for index, names in named.items() if any(name.startswith(f"{key}__") for name in names)]
    return {index: layer.whole(said[index], f"sizes.{index}") for index in own}
