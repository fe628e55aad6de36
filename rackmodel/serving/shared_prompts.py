"""Whether tensor groups may share out the new tokens of prompts: an engine does it over some kinds of attention, and every cache must be
one to which a step appends, for only then its keys and values can be made apart and gathered."""

from __future__ import annotations

from rackmodel.errors import InputError
from rackmodel.model.opkinds import APPEND
from rackmodel.model.profile import ProfileSpec
from rackmodel.model.workload import Workload

OPTION = "--prompt-context"


def check_shared_out(workload: Workload | None, profile: ProfileSpec) -> None:
    """Raise InputError where an engine does not share out the new tokens of a model's prompts; None: of no model."""
    if workload is None:
        return
    for name in workload.caches:
        maker = workload.ops.get(workload.producer.get(name, ""))
        if maker is None and workload.tensors[name].held:
            _raise_for(workload, name)
    kind, known = attention_of(workload), profile.engine.prompt_context if profile.engine is not None else []
    if kind not in known:
        has = f"that of {', '.join(known)} alone" if known else "none"
        fact = f"{workload.name} has {kind} attention, and of prompts over accelerators {profile.name} shares out {has}"
        price = f"--set profile.engine.prompt_context=[{kind}] prices it all the same"
        raise InputError(f"{fact}: {price}", path=OPTION)


def _raise_for(workload: Workload, cache: str) -> None:
    """That nothing appends to a cache: a state, or a file that says not what a step adds."""
    assert workload.serving is not None
    ranks = workload.tensors[cache].ranks
    if not workload.attended & set(ranks):
        fact = f"{workload.name} keeps '{cache}', a state that each new token changes after the one before: they cannot be shared out"
        raise InputError(fact, path=OPTION)
    said = f"{cache}[{','.join(ranks)}] = append(...)"
    raise InputError(f"no operation of {workload.name} says what a step adds to '{cache}': it wants {said}", path=OPTION)


def attention_of(workload: Workload) -> str:
    """'dsa' where an indexer picks tokens, 'mla' where a cache has no rank of heads, else 'gqa'."""
    if any(op.kind.name == "topk" for op in workload.ops.values()):
        return "dsa"
    serving = workload.serving
    assert serving is not None
    appended = [op.out for op in workload.ops.values() if op.kind.name == APPEND]
    heads = [set(access.names) - {serving.sequences} - workload.attended for access in appended]
    return "mla" if any(len(own) == 1 for own in heads) else "gqa"
