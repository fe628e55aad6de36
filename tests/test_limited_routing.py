"""A router that keeps to some groups of experts, beside the same one token by token."""

from __future__ import annotations

import numpy as np
import pytest

from rackmodel.cost.inside.limited_routing import dealt_out, in_turn, limited, stand_in
from rackmodel.cost.inside.routing import Routing, load_of


def token_by_token(wanted: np.ndarray, experts: int, groups: int, kept: int) -> np.ndarray:
    """[experts] tokens: every token's scores sorted, equal ones by their place."""
    counts, size = np.zeros(experts), experts // groups
    for own in wanted:
        score = np.zeros(experts)
        score[own] = 1.0
        best_two = [sum(sorted(score[g * size : (g + 1) * size])[-2:]) for g in range(groups)]
        open_to = sorted(range(groups), key=lambda g: (-best_two[g], g))[:kept]
        able = [e for e in range(experts) if e // size in open_to]
        for expert in sorted(able, key=lambda e: (-score[e], e))[: len(own)]:
            counts[expert] += 1
    return counts


@pytest.mark.parametrize(("groups", "kept"), [(8, 4), (8, 1), (4, 2), (2, 2)])
def test_tokens_come_to_the_experts_that_a_router_of_groups_chooses(groups: int, kept: int) -> None:
    rng = np.random.default_rng(groups * 10 + kept)
    drawn = np.stack([rng.permutation(64)[:8] for _ in range(50)])
    for wanted in (drawn, in_turn(5, 64, 8), in_turn(40, 64, 8), np.zeros((1, 8), dtype=np.int64) + np.arange(8)):
        assert np.array_equal(limited(wanted, 64, groups, kept), token_by_token(wanted, 64, groups, kept))


def test_a_router_of_all_groups_gives_what_is_wanted() -> None:
    counts = np.array([5.0, 0.0, 7.0, 3.0, 6.0, 3.0, 4.0, 4.0])
    wanted = dealt_out(counts, 4)
    assert wanted.shape == (8, 4)
    assert all(len(set(own)) == 4 for own in wanted)
    assert np.array_equal(limited(wanted, 8, 4, 4), counts)


def test_a_balanced_benchmark_of_deepseek_v3_falls_on_its_first_rank() -> None:
    """Each token wants an expert of each of 8 groups and may have those of 4: the other four are the first experts of all."""
    routing = Routing(experts=256, chosen=8, ranks=16, groups=8, kept=4)
    found = load_of(np.array([4096.0]), routing)
    assert found.pairs[0] == pytest.approx(4096 * 4.5)
    assert load_of(np.array([4096.0]), Routing(experts=256, chosen=8, ranks=16)).pairs[0] == pytest.approx(4096 * 0.5)


def test_a_rank_s_first_expert_stands_in_for_those_of_other_ranks_by_hand() -> None:
    """Of 8 tokens that want experts t % 4 and 4 + t % 4 of 8, four want 0 or 1 of the first of four ranks: two want 0, two want 1, and all
    four another one that is not there."""
    counts, came = stand_in(in_turn(8, 8, 2), 2)
    assert (counts.tolist(), came) == ([6.0, 2.0], 4)
    load = load_of(np.array([8.0]), Routing(experts=8, chosen=2, ranks=4, stand_in=True))
    assert (load.pairs[0], load.hit[0], load.tokens[0], load.held[0]) == pytest.approx((8, 2, 4, 2))
    assert load.blocks[0] == pytest.approx([2, 2, 2, 2])


@pytest.mark.parametrize("skew", [0.0, 1.01, 1.2])
def test_ranks_that_every_token_comes_to_make_what_one_rank_makes(skew: float) -> None:
    """Balanced tokens want one of every 32 of 256 experts, so that a half, a quarter or an eighth of them has all tokens; with fewer,
    fewer come. A rank alone has no other's to make."""
    tokens = np.array([1.0, 64.0, 4096.0])
    alone = load_of(tokens, Routing(experts=256, chosen=8, skew=skew))
    assert load_of(tokens, Routing(experts=256, chosen=8, skew=skew, stand_in=True)).pairs == pytest.approx(alone.pairs, rel=1e-6)
    before = tokens[-1] + 1e-6
    for ranks in (2, 8, 16, 64):
        load = load_of(tokens, Routing(experts=256, chosen=8, ranks=ranks, skew=skew, stand_in=True))
        assert load.pairs == pytest.approx(load.tokens * 8, rel=1e-6)  # every choice of a token that came is made
        assert (load.hit <= np.minimum(256 / ranks, load.pairs)).all()
        assert load.tokens[-1] <= before
        before = load.tokens[-1]
    if not skew:
        came = [load_of(tokens, Routing(experts=256, chosen=8, ranks=ranks, stand_in=True)).tokens[-1] for ranks in (2, 8, 16, 64)]
        assert came == pytest.approx([4096, 4096, 2048, 512])
