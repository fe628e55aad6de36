"""What `search` and `evaluate` may be asked beside a result: a whole run of it, the arguments that start it, its schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackmodel.cli.options import framework, said
from rackmodel.cli.printing import echo
from rackmodel.cli.whole_run import RunWords, make_run, print_run, run_words
from rackmodel.cli.written import write_trace

if TYPE_CHECKING:
    from rackmodel.carbon.run import Run
    from rackmodel.inputs import Inputs
    from rackmodel.model.result import Result
    from rackmodel.report.launch.arguments import Launch


@dataclass(frozen=True)
class BesideWords:
    """The options, read but not yet joined with a result. said: as the command line has them."""

    run: RunWords | None
    framework: str | None
    trace: Path | None
    said: list[str]

    def of(self, result: Result, profile: str | None, read: Callable[[], Inputs]) -> Beside:
        """What they come to of a result. read: its inputs, where any are wanted. Raises InputError, InfeasibleError."""
        if self.run is None and self.framework is None and self.trace is None:
            return Beside()
        inputs, trace = read(), self.trace
        run = None if self.run is None else make_run(self.run, result, inputs)
        launch = None if self.framework is None else _launch(self.framework, result, inputs)
        return Beside(run, launch, None if trace is None else lambda: write_trace(result, inputs, profile, trace))


def beside_words(flags: str | None, trace: Path | None, **run: Any) -> BesideWords:
    """What the options say. run: those of a whole run. Raises InputError before anything is searched."""
    return BesideWords(run_words(**run), framework(flags), trace, said(flags=flags, **run))


@dataclass(frozen=True)
class Beside:
    """What was asked for beside a result. trace: writes its schedule."""

    run: Run | None = None
    launch: Launch | None = None
    trace: Callable[[], list[Path]] | None = None

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
        from rackmodel.report.files import write_whole

        if self.launch is None:
            return []
        texts = {f"{self.launch.framework}.txt": "\n".join(self.launch.lines()) + "\n"}
        if self.launch.config_name:
            texts[self.launch.config_name] = self.launch.config
        return [write_whole(where / name, text) for name, text in texts.items()]


def _launch(name: str, result: Result, inputs: Inputs) -> Launch:
    """The arguments that start a result's mapping. Raises InputError."""
    from rackmodel.inputs import read_profile
    from rackmodel.report.flags import launch_flags

    return launch_flags(name, inputs.workload, result.mapping, read_profile(result.mapping.profile))
