"""A result's mapping as a file that `evaluate` prices to the same figures."""

from __future__ import annotations

import yaml

from rackmodel.model.result import Result


def mapping_yaml(result: Result) -> str:
    """Its text."""
    data = result.mapping.model_dump(by_alias=True, exclude_none=False, exclude={"source", "note"})
    data["homes"] = {name: home.model_dump(exclude_none=True, exclude={"source", "note"}) for name, home in result.mapping.homes.items()}
    data["axes"] = {name: {"degree": axis.degree, "stride": axis.stride} for name, axis in result.mapping.axes.items()}
    return str(yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120))
