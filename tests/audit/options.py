"""Mutated command lines, run in this process: every command with options that a person may mistype or mean too well."""

from __future__ import annotations

import contextlib
import io
import random
import shlex
import sys
from typing import Any

from rackmodel.cli import main
from tests.audit.answers import SECONDS, TooLongError, limited
from tests.audit.mutate import SCALARS, misspelt

SMALL = "rack_paper ffn data --set accelerators=4 --set seq=64"
TINY = " ".join(f"--set {size}" for size in ("layers=2", "b=2", "d=64", "h=2", "e=32", "f=64", "s=32", "v=64"))
STEP = f"rack_paper_h100 gpt megatron --set accelerators=2 {TINY}"
COMMANDS = (
    f"search {SMALL}",
    f"search {STEP}",
    "search tiny gemm loopnest_perfect --set m=8 --set k=8 --set n=8",
    "compare rack_paper ffn data,tensor --set accelerators=4 --set seq=64",
    f"carbon {SMALL}",
    "check ffn",
    "check data",
    "show rack_paper",
    "show data --workload ffn",
    "evaluate rack_paper ffn data",
)
OPTIONS = (
    *("--minimize energy", "--minimize edp", "--minimize carbon", "--minimize total_carbon", "--top 3", "--top 0"),
    *("--top 100", "--json", "--profile serial", "--profile ideal", "--profile nothing", "--limit power='5 MW'"),
    *("--limit memory='1 GB'", "--limit latency='1 s'", "--limit power=0", "--limit power='-1 W'", "--limit speed=3"),
    *("--limit energy='1 J'", "--pareto latency,memory", "--pareto latency", "--pareto x", "--pareto ,", "--flags megatron"),
    *("--flags torchtitan", "--flags deepspeed", "--flags x", "--tokens 1e9", "--tokens 0", "--steps 10", "--steps 0"),
    *("--checkpoint '30 min'", "--checkpoint optimal", "--storage '1 TB/s'", "--failures '2e-5 per accelerator-hour'"),
    *("--failures '50000 h per node'", "--restart '1 min'", "--lifetime '4 year'", "--active '60 %'", "--boundary silicon"),
    *("--fab imec", "--set uneven=error", "--set gpu.memory.capacity='1 MB'", "--set rack.network.topology=mesh"),
    *("--set accelerators=3", "--set pue=2", "--set rack.network.bandwidth='1 GB/s'"),
    *("--set thread.compute.rate='1 GFLOP/s'", "--set axes.dp.degree=2", "--set homes.weights.at=rack"),
    *("--set sizes.m='4 4'", "--set batch=7", "--set seq=0", "--set f=1", "--set phases=[forward]", "--set save=gathered"),
    *("--set recompute=full", "--set x", "--set =3", "--set a=b=c", "--workload gpt", "--architecture cs2", "--sources"),
    *("-h", "--version", "--", "-x"),
)
CODES = (0, 1, 2)


def mutated(pick: random.Random) -> list[str]:
    """A command line."""
    words = shlex.split(pick.choice(COMMANDS))
    for _ in range(pick.choice([0, 1, 1, 2, 3])):
        words += shlex.split(pick.choice(OPTIONS))
    for _ in range(pick.choice([0, 0, 1, 2])):
        k = pick.randrange(len(words))
        how = pick.randrange(6)
        if how == 0:
            words[k] = misspelt(pick, words[k]) if words[k] else "x"
        elif how == 1:
            words.insert(k, words[pick.randrange(len(words))])
        elif how == 2 and len(words) > 2:
            del words[k]
        elif "=" in words[k]:
            words[k] = f"{words[k].partition('=')[0]}={pick.choice(SCALARS)}"
        else:
            words[k] = str(pick.choice(SCALARS))
    return [word.replace("\x00", "0") for word in words]


def run(words: list[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command line."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["rackmodel", *words]
    code: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        code = left.code or 0
    finally:
        sys.argv = before
    return (code if isinstance(code, int) else 99), out.getvalue(), err.getvalue()


def fault(words: list[str], seconds: float = SECONDS) -> tuple[str, str]:
    """(outcome, what is wrong) of a command line."""
    try:
        with limited(seconds):
            code, out, err = run(words)
    except TooLongError as slow:
        return "failed", str(slow)
    except BaseException as problem:
        return "failed", f"{type(problem).__name__} at the door: {problem}"
    if "Traceback" in err:
        return "failed", err[-1500:]
    if code not in CODES:
        return "failed", f"exit code {code}: {err[-300:]}"
    if code and not err.strip() and '"error":' not in out:  # `check --json` tells it in its answer
        return "failed", f"exit code {code} without a word"
    if code == 0 and (" nan" in out.lower() or "infinity" in out.lower() or "warning" in err.lower()):
        return "failed", f"a figure that is none: {out[:300]} {err[:300]}"
    return {0: "answered", 1: "infeasible", 2: "refused"}[code], ""
