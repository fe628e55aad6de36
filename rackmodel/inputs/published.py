"""A name → one Marked tree: of a file (load), or of a workload that no file has and that is made of a model's published config."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rackmodel.inputs.library import TRAINING, Source, resolve
from rackmodel.inputs.load import load as load_file
from rackmodel.inputs.load import load_source as load_file_source
from rackmodel.inputs.marked import Marked
from rackmodel.inputs.yaml_marks import compose


def load(kind: str, name: str | Path) -> Marked:
    """The tree of an input by its name, path or text, as `load` of files has it. Raises InputError."""
    if isinstance(name, str) and "\n" in name:
        return load_file(kind, name)
    return load_source(kind, resolve(kind, name))


def load_source(kind: str, source: Source) -> Marked:
    """As load, of a file or a config that is already found."""
    return _made_of(source) if source.step else load_file_source(kind, source)


@cache
def _made_of(source: Source) -> Marked:
    """The workload that is made of a published config. Raises InputError."""
    from rackmodel.inputs.hf_config import import_config  # of such workloads alone, and slow to load

    made = import_config(source.path, name=f"{source.path.stem}_{source.step}", training=source.step == TRAINING)
    return compose(made.text, source.shown)
