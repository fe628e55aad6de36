"""What the frameworks say alike: a launch, and the sizes of a model as Megatron-LM and Megatron-DeepSpeed take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackmodel.report.launch.meaning import Meaning
from rackmodel.report.launch.shape import Shape

ORDERS = (
    ("tensor", "context", "expert", "data", "pipeline"),
    ("tensor", "context", "expert", "pipeline", "data"),
)  # ranks from the inside, as Megatron-LM lays them


@dataclass(frozen=True)
class Launch:
    """notes: what to know of the arguments · cannot: what of the mapping no argument says, so that they would start another one ·
    arguments: one flag with its value each · config: text of the file `config_name`; `needs_config` where the arguments alone do not
    start the mapping."""

    framework: str
    notes: tuple[str, ...]
    arguments: tuple[str, ...]
    config_name: str = ""
    config: str = ""
    needs_config: bool = False
    cannot: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Notes as comments, then the arguments as a shell reads them, then the file they need."""
        out = [f"# {note}" for note in self.notes]
        out += [f"{argument} \\" for argument in self.arguments[:-1]] + list(self.arguments[-1:])
        return [*out, f"# {self.config_name}:", *self.config.splitlines()] if self.needs_config else out

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in self.__dict__.items() if k not in ("needs_config", "cannot")}


def size_arguments(shape: Shape, found: Meaning) -> list[str]:
    """Sizes that Megatron-LM and Megatron-DeepSpeed say alike."""
    return [
        f"--num-layers {shape.layers}",
        f"--hidden-size {shape.hidden}",
        f"--ffn-hidden-size {shape.dense_ffn or shape.ffn}",
        f"--num-attention-heads {shape.heads}",
        *said_if(shape.head * shape.heads != shape.hidden, f"--kv-channels {shape.head}"),
        f"--seq-length {shape.sequence}",
        f"--max-position-embeddings {shape.sequence}",
        f"--vocab-size {shape.vocab}",
        "--make-vocab-size-divisible-by 1",
        *said_if(not shape.tied, "--untie-embeddings-and-output-weights"),
        *said_if(shape.gated, "--swiglu"),
        *said_if(shape.features.squared, "--squared-relu"),
        *said_if(not shape.biased, "--disable-bias-linear"),
        *said_if(not shape.dropout, "--attention-dropout 0", "--hidden-dropout 0"),
        f"--micro-batch-size {found.step.micro_batch}",
        f"--global-batch-size {found.batch}",
        *said_if(found.optimizer != "adam", f"--optimizer {found.optimizer}"),
    ]


def said_if(true: bool, *words: str) -> list[str]:
    return list(words) if true else []
