"""A study of 2,016 points: points a second, and the same file after ten kills (signal 9) at random moments."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.sweeps import dump, killed, points_done, run, study_text

pytestmark = pytest.mark.bench
POINTS, KILLS = 2016, 10


def test_two_thousand_points_whole_and_killed_ten_times(tmp_path: Path) -> None:
    spec = tmp_path / "swept.yaml"
    spec.write_text(study_text(84, "[4, 6, 8, 10, 16, 32]", "[data, tensor]", "[ffn, attention]"), encoding="utf-8")
    started = time.perf_counter()
    done = run(spec, tmp_path / "whole", "--workers", "2")
    seconds = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    assert points_done(tmp_path / "whole") == POINTS
    print(f"\n{POINTS} points in {seconds:.1f} s, 2 workers: {POINTS / seconds:.0f} a second")
    draw, hit = random.Random(16), 0
    for number in range(KILLS):
        least = min(POINTS - 1, int((number + draw.random()) * POINTS / KILLS))
        hit += killed(spec, tmp_path / "killed", least, draw.random(), "--workers", "2")
        print(f"killed with {points_done(tmp_path / 'killed')} points done")
    done = run(spec, tmp_path / "killed", "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert hit >= KILLS - 1
    assert dump(tmp_path / "killed") == dump(tmp_path / "whole")
