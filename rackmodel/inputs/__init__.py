"""Text ⇄ typed objects: YAML with marks, the library of names, `extends`, parts, overrides.

A name of the library or a path goes in; a typed object or an InputError with file:line:column comes out.
"""

from rackmodel.inputs.carbon_tables import grid_table
from rackmodel.inputs.library import about
from rackmodel.inputs.overrides import apply_overrides
from rackmodel.inputs.published import load
from rackmodel.inputs.read import (
    Inputs,
    check,
    kind_of,
    library_names,
    library_path,
    machine_calls,
    machine_exchange,
    read_architecture,
    read_inputs,
    read_mapper,
    read_mapping,
    read_profile,
    read_study,
    read_workload,
)

__all__ = [
    "Inputs",
    "about",
    "apply_overrides",
    "check",
    "grid_table",
    "kind_of",
    "library_names",
    "library_path",
    "load",
    "machine_calls",
    "machine_exchange",
    "read_architecture",
    "read_inputs",
    "read_mapper",
    "read_mapping",
    "read_profile",
    "read_study",
    "read_workload",
]
