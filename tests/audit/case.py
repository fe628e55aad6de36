"""One random question: three files, a profile and what is asked, all plain data, so that a failure is a folder and two commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rackmodel import face
from rackmodel.model.architecture import Architecture
from rackmodel.model.mapping import MapperSpec, MappingSpec
from rackmodel.model.workload import Workload

Data = dict[str, Any]
UNITS = {"power": "W", "memory": "B", "latency": "s", "energy": "J"}


@dataclass(frozen=True)
class Case:
    """kind, seed: what drew it · machine, model, mapper: the files · minimize, profile, limits, front: the question."""

    kind: str
    seed: int
    machine: Data
    model: Data
    mapper: Data
    minimize: str = "latency"
    profile: str = "serial"
    limits: Mapping[str, float] = field(default_factory=dict)
    front: tuple[str, ...] = ()

    def read(self) -> tuple[Architecture, Workload, MapperSpec]:
        """The three inputs as objects, read as files are."""
        machine, model, mapper = (face.read(data) for data in (self.machine, self.model, self.mapper))
        assert isinstance(machine, Architecture)
        assert isinstance(model, Workload)
        assert isinstance(mapper, MapperSpec)
        return machine, model, mapper

    def write(self, folder: Path, member: MappingSpec | None = None) -> str:
        """Write the files, and a member that contradicts the search; returns the commands that show it."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("machine", "model", "mapper"):
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(getattr(self, name), sort_keys=False), encoding="utf-8")
        asked = [f"--minimize {self.minimize}", f"--profile {self.profile}"]
        asked += [f"--limit '{name}={most!r} {UNITS[name]}'" for name, most in self.limits.items()]
        asked += [f"--pareto {','.join(self.front)}"] if self.front else []
        lines = [f"cd {folder}", f"rackmodel search ./machine.yaml ./model.yaml ./mapper.yaml {' '.join(asked)}"]
        if member is not None:
            (folder / "member.yaml").write_text(mapping_text(member), encoding="utf-8")
            lines.append(f"rackmodel evaluate ./machine.yaml ./model.yaml ./member.yaml --profile {self.profile}")
        (folder / "commands.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
        return "\n".join(lines)


def mapping_text(mapping: MappingSpec) -> str:
    """A mapping as a file says it."""
    data = mapping.model_dump(mode="json", by_alias=True, exclude={"source", "note"})
    data["homes"] = {name: home.model_dump(exclude_none=True, exclude={"source", "note"}) for name, home in mapping.homes.items()}
    data["axes"] = {name: {"degree": axis.degree, "stride": axis.stride} for name, axis in mapping.axes.items()}
    if mapping.step is None:
        del data["step"]
    else:
        data["step"] = mapping.step.model_dump(exclude_none=True, exclude={"source", "note"})
        data["step"]["pipeline"] = {"degree": mapping.step.pipeline.degree, "stride": mapping.step.pipeline.stride}
    return str(yaml.safe_dump(data, sort_keys=False))
