"""What is left of a model's name without who publishes it, its case, its format and how it was tuned.

    RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic   →   llama-3.1-70b, in fp8
    nvidia/DeepSeek-R1-0528-NVFP4-v2                   →   deepseek-r1, in fp4
    Kimi K2 Thinking                                   →   kimi-k2

Two names of which the same is left are checkpoints of one model, which an engine serves alike but for their format.
"""

from __future__ import annotations

import re
from functools import lru_cache

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


@lru_cache(maxsize=4096)
def name_and_format(word: str) -> tuple[str, str]:
    """What is left of a name, in lower case, and the format that it says, '' where none."""
    left, said = "-".join(word.rsplit("/", 1)[-1].lower().split()).removeprefix("meta-"), ""
    while True:
        found = next((pair for pair in FORMAT_ENDS if pair[1].search(left)), None)
        shorter = TUNED_ENDS.sub("", left) if found is None else found[1].sub("", left)
        if shorter == left or not shorter:
            return left, said
        left, said = shorter, said or (found[0] if found else "")
