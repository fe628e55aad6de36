"""What `search` and `evaluate` may be asked beside a result: a whole run of it, the arguments that start it, its schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackmodel.cli.options import framework, said
from rackmodel.cli.printing import echo
from rackmodel.cli.whole_run import RunWords, make_run, print_run, run_words
from rackmodel.cli.written import write_mapping, write_trace
from rackmodel.errors import InputError
from rackmodel.report.files import write_whole

if TYPE_CHECKING:
    from rackmodel.carbon.run import Run
    from rackmodel.inputs import Inputs
    from rackmodel.model.result import Result
    from rackmodel.report.launch.arguments import Launch

RANKED = 50  # best mappings among which one is looked for that a framework can start


@dataclass(frozen=True)
class BesideWords:
    """The options, read but not yet joined with a result. said: as the command line has them."""

    run: RunWords | None
    framework: str | None
    trace: Path | None
    said: list[str]

    def of(
        self, result: Result, profile: str | None, read: Callable[[], Inputs], ranked: Callable[[int], Sequence[Result]] | None = None
    ) -> Beside:
        """What they come to of a result. read: its inputs, where any are wanted · ranked: so many of the best mappings, of which the first
        that the framework can start gives the arguments where it cannot start the result; absent: that is an error. Raises InputError,
        InfeasibleError."""
        if self.run is None and self.framework is None and self.trace is None:
            return Beside()
        inputs, trace = read(), self.trace
        run = None if self.run is None else make_run(self.run, result, inputs)
        shown = None if trace is None else lambda: write_trace(result, inputs, profile, trace)
        if self.framework is None:
            return Beside(run, trace=shown)
        launch = _launch(self.framework, result, inputs)
        if not launch.cannot:
            return Beside(run, launch, shown)
        if ranked is None:
            raise _refusal(launch)
        return _instead(Beside(run, trace=shown), launch, inputs, ranked(RANKED))


def beside_words(flags: str | None, trace: Path | None, **run: Any) -> BesideWords:
    """What the options say. run: those of a whole run. Raises InputError before anything is searched."""
    return BesideWords(run_words(**run), framework(flags), trace, said(flags=flags, **run))


@dataclass(frozen=True)
class Beside:
    """What was asked for beside a result. trace: writes its schedule · started: the mapping that the arguments start, where it is not the
    result's · refused: why there are no arguments."""

    run: Run | None = None
    launch: Launch | None = None
    trace: Callable[[], list[Path]] | None = None
    started: Result | None = None
    refused: InputError | None = None

    def saved(self, front: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What stands beside the result in its file and on its page. front: as report.beside has it."""
        from rackmodel.report.beside import launch_data

        found = {"front": front, "run": self.run and self.run.to_dict(), "launch": self.launch and launch_data(self.launch)}
        return {name: data for name, data in found.items() if data}

    def to_dict(self) -> dict[str, Any]:
        """What stands beside the result in what --json prints."""
        run = {"run": self.run.to_dict()} if self.run else {}
        return run | ({"flags": self.launch.to_dict()} if self.launch else {})

    def show(self) -> None:
        """Print it; the arguments are ready for a shell."""
        if self.run:
            print_run(self.run)
        if self.launch:
            echo(f"launch flags for {self.launch.framework}:")
            for line in self.launch.lines():
                echo(line)

    def write_launch(self, where: Path) -> list[Path]:
        """The arguments, and the file that belongs to them; nothing where none were asked for."""
        if self.launch is None:
            return []
        texts = {f"{self.launch.framework}.txt": "\n".join(self.launch.lines()) + "\n"}
        if self.launch.config_name:
            texts[self.launch.config_name] = self.launch.config
        own = [] if self.started is None else [write_mapping(self.started, where / f"{self.launch.framework}.mapping.yaml")]
        return [*own, *(write_whole(where / name, text) for name, text in texts.items())]


def _launch(name: str, result: Result, inputs: Inputs) -> Launch:
    """The arguments that come nearest to a result's mapping. Raises InputError."""
    from rackmodel.inputs import read_profile
    from rackmodel.report.flags import translation

    return translation(name, inputs.workload, result.mapping, read_profile(result.mapping.profile))


def _instead(beside: Beside, best: Launch, inputs: Inputs, ranked: Sequence[Result]) -> Beside:
    """The arguments of the first of the best mappings that a framework can start, with what it loses; or why there are none.

    best: what cannot be said of the result."""
    from rackmodel.report.tables import format_si, mapping_words

    for number, other in enumerate(ranked, start=1):
        launch = _launch(best.framework, other, inputs)
        if not launch.cannot:
            figures = f"latency {format_si(other.latency_s, 's')}, energy {format_si(other.energy_j, 'J')}"
            notes = (
                f"of number {number} of the best mappings, {mapping_words(other.mapping)}: {figures}",
                f"the best has no arguments: {'; '.join(best.cannot)}",
            )
            return replace(beside, launch=replace(launch, notes=(*notes, *launch.notes)), started=other)
    return replace(beside, refused=_refusal(best, f", nor for any of the best {len(ranked)}" if len(ranked) > 1 else ""))


def _refusal(launch: Launch, others: str = "") -> InputError:
    fact = f"{launch.framework} has no arguments for this mapping{others}: {'; '.join(launch.cannot)}"
    return InputError(fact, path="--flags")
