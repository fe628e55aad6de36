"""The white paper's rules for the services of a weight-streaming cluster (seed 001, sections 3 and 5): closed forms.

    operations   6 · P · tokens                              a week   604,800 s
    memory       20 · P bytes: fp32 weight, gradient and two momenta, and a compressed copy of fp16 value and 16 bit index
    bandwidth    32 · P · iterations / week bits a second, each way: fp16 weights in twice, or fp32 gradients out once

Words per unit and step, T = S · H, N units, B samples: data 2 P (N − 1) / N, sharded data 3 P (N − 1) / N, tensor ~ L · T · B, pipeline
2 · T · B each way, streaming 2 P in and P out. Sizes and batches: `streaming.*` of specs/carbon/papers.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackmodel.carbon.tables import CarbonTables

WEEK_S = 604_800
BYTES_A_WEIGHT = 20
MEMORYX_FLOP_A_BYTE = 1000  # seed 001, 6.3: "three orders of magnitude greater than its I/O bandwidth"


@dataclass(frozen=True)
class Training:
    """One model's training run. parameters, tokens, batch_tokens: as published."""

    parameters: float
    tokens: float
    batch_tokens: float

    @property
    def flop_per_s(self) -> float:
        """Operations per second that train it in one week."""
        return 6 * self.parameters * self.tokens / WEEK_S

    @property
    def memory_bytes(self) -> float:
        """Bytes of its weights and optimizer state in the memory service."""
        return BYTES_A_WEIGHT * self.parameters

    @property
    def bits_per_s(self) -> float:
        """Bits per second each way between memory service and compute that train it in one week."""
        return 32 * self.parameters * self.tokens / self.batch_tokens / WEEK_S


NAMES = ("Megatron-LM 8.3B", "T-NLG 17B", "GPT-3 175B", "Jurassic-1 178B", "Gopher 280B", "MT-NLG 530B")


def models(tables: CarbonTables) -> dict[str, Training]:
    """The models whose training the services are sized for: specs/carbon/papers, `streaming.*`."""
    rows = (tables.row(f"streaming.{name}") for name in ("parameters", "tokens", "batches"))
    return {name: Training(*of) for name, of in zip(NAMES, zip(*rows, strict=True), strict=True)}


def threshold_tokens(flop_per_s: float, bytes_per_s: float, bytes_a_weight: float) -> float:
    """Local tokens from which the forward pass of a streamed layer is bound by compute: 2 n / F = b / BW."""
    return bytes_a_weight * flop_per_s / (2 * bytes_per_s)


def words_held(units: int, parameters: float, layers: int, tokens: float, hidden: int) -> dict[str, tuple[float, float]]:
    """Table 1's memory of one unit: words of parameters and of activations, by scheme. tokens: of the whole batch, for a pipeline of
    one sample at a time in each stage of one (`2 N - 1` samples wait at the first)."""
    activations = layers * tokens * hidden
    return {
        "data": (parameters, activations / units),
        "fsdp": (parameters / units, activations / units),
        "tensor_2d": (parameters / units, activations / units),
        "stream": (0.0, activations / units),
    }


def words_a_unit(units: int, parameters: float, layers: int, tokens: float, hidden: int) -> dict[str, float]:
    """Table 1's communication of one unit in one step, in words sent, by scheme. tokens: of the whole batch (S · B)."""
    share, activations = (units - 1) / units, tokens * hidden
    return {
        "data": 2 * parameters * share,
        "fsdp": 3 * parameters * share,
        "tensor": layers * activations,
        "pipeline": 2 * activations,
        "stream": 3 * parameters,
    }
