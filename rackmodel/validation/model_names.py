"""What is left of a model's name without who publishes it, its case, its format and how it was tuned.

    RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic   →   llama-3.1-70b, in fp8
    nvidia/DeepSeek-R1-0528-NVFP4-v2                   →   deepseek-r1, in fp4
    Kimi K2 Thinking                                   →   kimi-k2

Two names of which the same is left are checkpoints of one model, which an engine serves alike but for their format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import lru_cache

from rackmodel.errors import nearest

FORMATS = {
    "mxfp4": r"mxfp4",
    "fp4": r"(?:nv)?fp4(?:[-_]v[0-9])?",
    "fp8": r"fp8(?:[-_.](?:dynamic|kv|block|static|tensor))*",
    "int4": r"awq|(?:awq[-_.])?int4|(?:awq|gptq)[-_.](?:int4|4bit)|(?:quantized\.)?w4a16|gptq",
    "int8": r"int8|(?:quantized\.)?w8a(?:8|16)|gptq[-_.](?:int8|8bit)",
    "bf16": r"bf16|fp16",
}
"""Format, as rows say it → how names of checkpoints end."""
TUNED = r"(?:instruct|thinking|chat|hf|it|base|preview)(?:[-_]v[0-9](?:\.[0-9])?)?|[0-9]{4}"
"""How names end that say nothing of a format: of training, and a month. (A version alone is another model: V2, V3.)"""
FORMAT_ENDS = [(name, re.compile(rf"[-_.](?:{ends})$")) for name, ends in FORMATS.items()]
TUNED_ENDS = re.compile(rf"[-_](?:{TUNED})$")
VERSION = re.compile(r"(?<![a-z0-9])v(?=[0-9])")
"""That begins a version where it is a word of its own: V3 is 3, of K2 or TPUv4 nothing is taken."""
BEGINNING = re.compile(r"[a-z]*")
NEAR = 0.5
"""Share of letters in common from which a name of the same family is near to another; of any other `nearest` asks for more."""


@lru_cache(maxsize=4096)
def name_and_format(word: str) -> tuple[str, str]:
    """What is left of a name, in lower case, and the format that it says, '' where none."""
    *_, last = shorter_names(word)
    return last


@lru_cache(maxsize=4096)
def shorter_names(word: str) -> tuple[tuple[str, str], ...]:
    """A name without who publishes it, in lower case, then without one ending after the other; each with the format that was said behind
    it. The longest that is known is meant: mistral-large-2402 is another model than mistral-large."""
    left, said = "-".join(word.rsplit("/", 1)[-1].lower().split()).removeprefix("meta-"), ""
    names = [(left, said)]
    while True:
        found = next((pair for pair in FORMAT_ENDS if pair[1].search(left)), None)
        shorter = TUNED_ENDS.sub("", left) if found is None else found[1].sub("", left)
        if shorter == left or not shorter:
            return tuple(names)
        left, said = shorter, said or (found[0] if found else "")
        names.append((left, said))


def checkpoint(word: str) -> str:
    """What is left of a name, its version without a v: Llama v4 Scout is llama-4-scout, and DeepSeek-V3 deepseek-3."""
    return without_v(name_and_format(word)[0])


def without_v(name: str) -> str:
    """A name whose version has no v: deepseek-3 of deepseek-v3."""
    return VERSION.sub("", name)


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """The known name closest to a word in letters, publishers and endings apart, of those that begin as it does: a Qwen is no Llama of as
    many parameters. Of no such, the closest of all, or None where nothing is close."""
    every, meant = tuple(known), _bare(word)
    family = [one for one in every if _family(_bare(one)) == _family(meant)] if _family(meant) else []
    close = max(family, key=lambda one: (_likeness(_bare(one), meant), _likeness(one, word)), default=None)
    if close is not None and _likeness(_bare(close), meant) >= NEAR:
        return close
    return nearest(word, every)


def _bare(word: str) -> str:
    """A name's letters, digits and points."""
    return "".join(sign for sign in checkpoint(word) if sign.isalnum() or sign == ".")


def _family(bare: str) -> str:
    """The letters that a name begins with."""
    begins = BEGINNING.match(bare)
    return begins[0] if begins else ""


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
