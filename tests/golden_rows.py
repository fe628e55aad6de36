"""Where each row of the notes is printed that the papers' figures were worked out in: docs/golden_rows.md, from the studies' results.

`make papers` gives it what `sweep STUDY --json` printed: python -m tests.golden_rows STUDY.json ... > docs/golden_rows.md
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

STUDIES = ("wafer_carbon", "hnlpu_tco", "act", "embodied")
with (Path(__file__).parent / "data" / "carbon_golden.csv").open(encoding="utf-8") as file:
    ROWS = {row["id"]: row for row in csv.DictReader(file)}
ELSEWHERE = {
    "wsi-29a": ("W-crossing", "tokens, against 1 DGX, the fitted masses", 1.0),
    "wsi-29table1": ("W-crossing", "tokens, against 1 DGX, Table 1", 1.0),
    "wsi-33-8": ("W-tcdp", "tCDP, 8 DGX over a CS-3, active 50 % (the figure's next step), 9.39 times a box, the fitted masses", 1.0),
    "wsi-33-10": ("W-tcdp", "tCDP, 10 DGX over a CS-3, active 50 % (the figure's next step), 9.39 times a box, the fitted masses", 1.0),
    "act-42": ("A-budget", "the fastest, g", 1.0),
    "act-43": ("A-budget", "the one of least energy, g", 1.0),
    "act-cpa-28": ("A-area", "28nm, kg/cm2", 1e-3),
    "act-cpa-14": ("A-area", "14nm, kg/cm2", 1e-3),
    "act-cpa-7-EUV": ("A-area", "7nm_euv, kg/cm2", 1e-3),
    "act-cpa-5": ("A-area", "5nm, kg/cm2", 1e-3),
    "act-cpa-3": ("A-area", "3nm, kg/cm2", 1e-3),
}
"""Row → the finding whose figure it is, and the unit of that figure in the row's."""
VERDICTS = {"wsi-21": "W-ratios"}
"""Row that is a finding's verdict: five ratios that can be satisfied together."""

UNITS = {"hn-50": 1000.0}
"""Row → what its unit (t/MWh) is in that of the study's figure (g/kWh)."""


class Shown(NamedTuple):
    """Where a row is printed. value: ours, in the row's unit; None where the finding has a word or no number."""

    study: str
    finding: str
    verdict: str
    value: float | None


def shown(name: str, results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Shown:
    """The study and finding that print a row. results: study → its findings as plain data. Raises KeyError."""
    wanted, figure, unit = ELSEWHERE.get(name, (VERDICTS.get(name, name), "computed", 1.0))
    for study, findings in results.items():
        for one in findings:
            if one["name"] == wanted:
                value = one["figures"].get(figure)
                return Shown(study, wanted, one["verdict"], None if value is None else value / unit)
            for key, value in one["figures"].items():
                if key.partition(":")[0] == name:
                    return Shown(study, one["name"], one["verdict"], value / UNITS.get(name, 1.0))
    raise KeyError(name)


def page(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The page, a line a row."""
    lines = [
        "# The rows of the notes, and the command that prints each\n",
        "Made by `make papers`: do not edit. tests/data/carbon_golden.csv has the rows; `ours` stands under the finding in what the",
        "command prints (with `--json`, or in findings.csv of `-o DIR`); a dash: the paper lacks an input, or ours is a word, which the",
        "verdict judges.\n",
        "| row | what | printed | the notes | ours | command | finding | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in ROWS.items():
        at = shown(name, results)
        ours = "-" if at.value is None else f"{at.value:.6g}"
        printed = f"{row['value']} {row['unit']}".strip() if row["value"] else "-"
        cells = (name, row["quantity"], printed, row["computed"] or "-", ours, f"`rackmodel sweep {at.study}`", at.finding, at.verdict)
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main(*paths: str) -> int:
    """Print the page of the studies in the files that `sweep --json` printed."""
    found = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    sys.stdout.write(page({study["study"]: study["findings"] for study in found if study["study"] in STUDIES}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
