"""Energy of whole published training runs: steps x the ledger's joules, beside what was reported, factor by factor.

    energy = accelerators · time · watts an accelerator (host and network included) · PUE        time = tokens / (tokens a second)

A reported run differs from ours in three factors: how long its accelerators ran, what one of them drew, and the facility. The
product of the three ratios is the ratio of the energies.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackmodel.carbon.tables import CarbonTables
from rackmodel.cost.inside.power import BUSY
from rackmodel.model.result import Result
from rackmodel.studies.findings import Finding, Need, judged
from rackmodel.studies.run import Points

J_PER_MWH = 3.6e9


@dataclass(frozen=True)
class Reported:
    """A published run. tokens · tokens_a_step · parameters · hours: of accelerators · watts: of one, host and network included or
    not, as published · pue: 1 where it is not part of the figure · mwh: reported or hours · watts · PUE."""

    tokens: float
    tokens_a_step: float
    hours: float
    watts: float
    pue: float
    mwh: float


RUNS = {
    # Patterson 2021, table 4: 10,000 V100 for 14.8 days; the days are back-computed by its authors from 24.6 TFLOP/s
    "gpt3": Reported(300e9, 1536 * 2048, 10_000 * 14.8 * 24, 330.0, 1.1, 1287.0),
    # model card: GPU hours and TDP; neither host nor PUE
    "llama405": Reported(15.6e12, 2048 * 8192, 30.84e6, 700.0, 1.0, 30.84e6 * 700.0 / 1e6),
}
GRID_T_PER_MWH = {"gpt3": 0.429, "llama405": 8930.0 / (30.84e6 * 700.0 / 1e6)}


def findings(points: Points, tables: CarbonTables) -> list[Finding]:
    """One finding a run."""
    return [
        _finding("E1", "GPT-3: 1,287 MWh (Patterson 2021)", points.one(run="gpt3"), RUNS["gpt3"], GRID_T_PER_MWH["gpt3"]),
        _finding(
            "E2", "Llama 3.1 405B: 30.84 M GPU hours at 700 W", points.one(run="llama405"), RUNS["llama405"], GRID_T_PER_MWH["llama405"]
        ),
    ]


CHECKS = (findings,)


def factors(result: Result, run: Reported) -> dict[str, float]:
    """Our run and the factors by which it differs from the reported one."""
    accelerators = result.mapping.accelerators
    steps = run.tokens / run.tokens_a_step
    hours = steps * result.latency_s * accelerators / 3600
    watts = result.energy_j / result.latency_s / accelerators
    gpu = sum(row.joules for row in result.ledger if row.level in ("gpu", "l2", "sm", "tensor_core")) / result.energy_j
    return {
        "ours (MWh)": steps * result.energy_j * run.pue / J_PER_MWH,
        "reported (MWh)": run.mwh,
        "accelerator hours, ours": hours,
        "accelerator hours, reported": run.hours,
        "W an accelerator, ours": watts,
        "W of it in the accelerator itself": watts * gpu,
        "W an accelerator, reported": run.watts,
        "hours, ours over reported": hours / run.hours,
        "watts, ours over reported": watts / run.watts,
    }


def _finding(name: str, claim: str, result: Result, run: Reported, tonnes_a_mwh: float) -> Finding:
    figures = factors(result, run)
    figures["tCO2e at the reported grid"] = figures["ours (MWh)"] * tonnes_a_mwh
    ratio = figures["ours (MWh)"] / figures["reported (MWh)"]
    figures["energy, ours over reported"] = ratio
    busy = result.ledger.where(action=BUSY).total("joules") / result.energy_j
    clocks = f"with what clocks draw at work ({busy:.0%} of ours)" if busy else "without what clocks draw at work"
    why = (
        "ours is the best mapping without restarts, checkpoints or idle time; its watts are arithmetic, memories, links and idle power of "
        f"accelerator and host, {clocks}, and reported watts are TDP or a datacentre's average"
    )
    needs = [Need("energy, ours over reported", ratio, least=0.5, most=1.5)]
    return judged(name, "energy", claim, needs, figures, weight="published", why=why)
