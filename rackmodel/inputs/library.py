"""Names → files: `dgx_h100` is specs/dgx_h100.yaml of the library; a path works wherever a name does.

A workload that no file has may be made of a model's published config: `gemma3_27b_decoder` and `gemma3_27b_training` are the steps that
serve and train workloads/configs/gemma3_27b.json, as `rackmodel import` writes them.

The library is the folders specs/ workloads/ mappers/ beside the package in a checkout, or share/rackmodel where a wheel
put them.
"""

from __future__ import annotations

import errno
import os
import re
import site
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rackmodel.errors import InputError, Where, nearest
from rackmodel.inputs.marked import short

FOLDERS: dict[str, str | None] = {
    "architecture": "specs",
    "workload": "workloads",
    "mapper": "mappers",
    "mapping": None,
    "study": "specs/studies",
    "profile": "specs/profiles",
    "part": "specs/parts",
    "collectives": "specs/collectives",
    "carbon": "specs/carbon",
    "validation": "specs/validation",
    "block": "specs/blocks",
    "family": "specs/families",
    "papers": "specs/papers",
}
"""Kind of file, which is also the first key in it → folder of the library."""

SUFFIXES = (".yaml", ".yml")
INPUTS = ("architecture", "workload", "mapper", "study")
CONFIGS = "workloads/configs"
DECODER, TRAINING = "decoder", "training"
"""Steps that are made of a published config: how their names end, behind the config's."""


@dataclass(frozen=True)
class Source:
    """A file to read and what it is called in messages. step: what is made of it, where it is a published config."""

    path: Path
    shown: str
    step: str = ""


@cache
def library_root() -> Path:
    """The folder that holds specs/, workloads/ and mappers/. Raises InputError where the installation lacks it."""
    package = real(Path(__file__)).parents[1]
    share = Path("share") / "rackmodel"
    prefixes = [Path(sys.prefix), Path(sys.base_prefix), Path(site.getuserbase() or sys.prefix), *package.parents]
    for root in (package.parent, *(prefix / share for prefix in prefixes)):
        if all((root / folder).is_dir() for folder in ("specs", "workloads", "mappers")):
            return root
    raise InputError("the library (specs, workloads, mappers) is not installed beside rackmodel")


def names(kind: str) -> list[str]:
    """Names of the library's files of a kind, sorted."""
    folder = FOLDERS[kind]
    if folder is None:
        return []
    return sorted(path.stem for path in (library_root() / folder).glob("*.yaml"))


@cache
def published() -> dict[str, Source]:
    """Workloads that no file has and that are made of a published config, sorted by name."""
    found: dict[str, Source] = {}
    for path in sorted((library_root() / CONFIGS).glob("*.json")):
        for step in (DECODER, TRAINING):
            found[f"{path.stem}_{step}"] = Source(path, show(path), step)
    return {name: found[name] for name in found if name not in names("workload")}


def called(kind: str) -> list[str]:
    """Every name of a kind that the library knows: of its files, then what is made of published configs."""
    return [*names(kind), *(published() if kind == "workload" else ())]


def resolve(kind: str, name: str | Path, *, beside: Path | None = None) -> Source:
    """The file that a name or a path means.

    beside: folder of the file that refers to it; a relative path starts there. Raises InputError with the known names.
    """
    text = str(name)
    if not text.strip() or "\0" in text:
        raise InputError(f"'{short(text)}' is not the name of {a(kind)}", known=names(kind))
    if is_path(name):
        return _file(kind, text, beside)
    folder = FOLDERS[kind]
    if folder is not None:
        path = library_root() / folder / f"{text}.yaml"
        if exists(path):
            return Source(path, show(path))
        if kind == "workload" and text in published():
            return published()[text]
    folder_of = beside or Path()
    candidates = [folder_of / f"{text}{suffix}" for suffix in ("", *(SUFFIXES if beside else ()))]
    for candidate in candidates:
        if exists(candidate):
            return Source(candidate, show(candidate) if beside else text)
    hint = "" if folder else ": give the path of its file"
    head, _, count = text.rpartition(":")
    if kind == "architecture" and count.isdecimal() and head in names(kind):
        hint = f": here the number of {head}'s accelerators is --set accelerators={count}"
    elif kind == "architecture" and "," in text:
        hint = ": one machine is wanted here, rackmodel compare takes several"
    elif other := next((other for other in INPUTS if other != kind and text in names(other)), None):
        hint = f": it is {a(other)}{hint}"
    raise InputError(f"no {kind} called '{short(text)}'{hint}", known=called(kind), given=text)


def in_library(kind: str, name: str) -> bool:
    """Whether a word is the name of a file of the library."""
    folder = FOLDERS[kind]
    return folder is not None and not is_path(name) and exists(library_root() / folder / f"{name}.yaml")


def from_folder(kind: str, name: str, folder: str) -> str:
    """What a file in a folder means by an input: a name of the library and a text as they are, else the path from here."""
    if not folder or "\n" in name or not name.strip() or "\0" in name:
        return name
    if is_path(name):
        return str(Path(folder) / name)
    if name in called(kind):
        return name
    own = (Path(folder) / f"{name}{suffix}" for suffix in ("", *SUFFIXES))
    return next((str(path) for path in own if exists(path)), name)


def folder_of(kind: str, name: str | Path) -> str:
    """The folder of an input's file; '' for a text and for what is of the library. Raises InputError."""
    if isinstance(name, str) and ("\n" in name or (not is_path(name) and name in called(kind))):
        return ""
    return str(resolve(kind, name).path.parent)


def _file(kind: str, text: str, beside: Path | None) -> Source:
    path = (beside or Path()) / text
    shown = show(path) if beside else text
    if exists(path):
        return Source(path, shown)
    close = nearest(path.stem, called(kind))
    hint = f"; the library has {a(kind)} '{close}'" if close else ""
    raise InputError(f"no such file{hint}", where=Where(short(shown, 200)))


SCHEMAS = "docs/schemas"
MODELINE = "# yaml-language-server: $schema="
"""How an editor is told by which JSON Schema to complete and check a file."""


def modeline(kind: str) -> str:
    """The line that names the installed schema of a kind of file, for a file anywhere."""
    return f"{MODELINE}{library_root() / SCHEMAS / kind}.json\n"


def about(kind: str, name: str) -> str:
    """What a file of the library says of itself: the first sentence of the comment above its keys."""
    lines = []
    for line in (library_root() / str(FOLDERS[kind]) / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    text = " ".join(line for line in lines if not line.startswith(MODELINE[2:]))
    return re.split(r"(?<=[a-z0-9)`])\.\s+(?=[A-Z])", text, maxsplit=1)[0].removesuffix(".")


def is_path(name: str | Path) -> bool:
    """Whether a word is meant as a path rather than as a name of the library."""
    return isinstance(name, Path) or "/" in name or "\\" in name or name.endswith(SUFFIXES)


def exists(path: Path) -> bool:
    """Whether something is there, readable or not."""
    try:
        path.stat()
    except PermissionError:
        return True  # it is there; reading it says that it is denied
    except (OSError, ValueError) as problem:
        return getattr(problem, "errno", None) == errno.ELOOP  # it is there; reading it says that it is a loop of links
    return True


def show(path: Path) -> str:
    """A path as short as it can be said from here."""
    try:
        return str(real(path).relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)


def real(path: Path) -> Path:
    """The file behind symbolic links; a loop of links is left as it is, and reading it says so."""
    return Path(os.path.realpath(path))


def a(kind: str) -> str:
    """'an architecture', 'a workload'."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
