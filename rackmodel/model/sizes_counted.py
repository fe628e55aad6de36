"""Whether each size of a workload counts: an operation walks it, or a text of the file or a size that counts names it.

A size that nothing counts by is a slip of the pen (`layer` for `layers` beside an `extends`): it would change no figure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from rackmodel.errors import InputError, together
from rackmodel.model.sizes import size_names
from rackmodel.model.workload_spec import WorkloadSpec

_WORD = re.compile(r"\w+", re.A)


def check_counted(spec: WorkloadSpec, asked: Collection[str]) -> None:
    """Raise InputError for sizes that nothing counts by, with those that count. asked: which must count."""
    counted = {word for text in _texts(spec) for word in _WORD.findall(text)}
    waiting = [name for name in spec.sizes if name in counted]
    while waiting:
        more = size_names(spec.sizes[waiting.pop()]) - counted
        counted |= more
        waiting += [name for name in more if name in spec.sizes]
    problems = [_idle(name, [one for one in spec.sizes if one in counted]) for name in asked if name not in counted]
    if problems:
        raise together(problems)


def _texts(spec: WorkloadSpec) -> Iterator[str]:
    """Every text of a workload, but its sizes, in which a size may stand."""
    yield from spec.einsums.values()
    yield str(spec.repeat)
    for section in (*spec.sections.values(), *spec.mtp.values()):
        yield from section.einsums.values()
        yield from (text for text in section.prompts.values() if text is not None)
        yield str(section.repeat)
    for tensor in spec.tensors.values():
        yield str(tensor.density)
        yield from tensor.page
    yield from (*spec.imbalance, *spec.routing)
    if spec.serving is not None:
        yield from (spec.serving.sequences, spec.serving.new, spec.serving.cached)
    if "batch_rank" in spec.model_fields_set:
        yield spec.batch_rank


def _idle(name: str, counted: list[str]) -> InputError:
    return InputError(f"nothing counts by '{name}': no operation walks it", path=f"sizes.{name}", known=counted, given=name)
