"""Tokens sent to their experts and back: by hand, what a fit finds again, the file that it writes, rows as published."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from rackmodel.calibration.collectives import calibrate_network
from rackmodel.calibration.fit_exchanges import fit_exchange
from rackmodel.cost.network.exchanges import TokenExchange, exchange_seconds, ranks_reached
from rackmodel.inputs import machine_exchange, read_architecture
from rackmodel.model.exchanges import ExchangeTimes
from rackmodel.validation.run import validate


def times(**changes: str | float) -> ExchangeTimes:
    return ExchangeTimes.model_validate({"start": "10 us", "element": "1 byte", "link": "100 GB/s", **changes})


def one(**changes: float) -> TokenExchange:
    return TokenExchange(**{"tokens": 1000.0, "hidden": 4000.0, "top": 2.0, "experts": 8.0, "ranks": 4.0, "sms": 10.0, **changes})


def test_ranks_that_a_token_reaches_are_counted_over_all_choices_of_experts() -> None:
    experts, ranks = 8, 4
    for top in (1, 2, 3, 7):
        choices = list(itertools.combinations(range(experts), top))
        mean = np.mean([len({expert * ranks // experts for expert in choice}) for choice in choices])
        assert ranks_reached(top, experts, ranks) == pytest.approx(mean)


@pytest.mark.parametrize(("experts", "top", "groups", "kept"), [(8, 3, 4, 2), (16, 3, 4, 2), (16, 4, 8, 4), (12, 3, 6, 3)])
def test_a_router_that_keeps_to_some_groups_reaches_fewer_ranks(experts: int, top: int, groups: int, kept: int) -> None:
    """Every set of groups, and every choice of experts in them."""
    choices = [
        chosen
        for open_to in itertools.combinations(range(groups), kept)
        for chosen in itertools.combinations([one for one in range(experts) if one * groups // experts in open_to], top)
    ]
    for ranks in (count for count in range(1, experts + 1) if experts % count == 0 and (count % groups == 0 or groups % count == 0)):
        counted = np.mean([len({one * ranks // experts for one in chosen}) for chosen in choices])
        assert float(ranks_reached(top, experts, ranks, groups, kept)) == pytest.approx(counted)


def test_low_latency_sends_a_copy_to_every_expert() -> None:
    found = exchange_seconds(times(start_of_expert="1 us"), "low_latency", one())
    assert found == pytest.approx(10e-6 + 8e-6 + 1000 * 2 * 4000 / 100e9)


def test_a_normal_exchange_sends_a_copy_to_every_rank_that_its_workers_handle_one_after_the_other() -> None:
    # 2 of 8 experts on 4 ranks: 4 (1 - 6·5 / (8·7)) = 13/7 ranks; the work is that and one copy more, of 4,000 + 1,000 bytes
    found = exchange_seconds(times(worker="1 GB/s", copy="1000 byte", local=1.0), "normal", one())
    wire, work = 1000 * 13 / 7 * 4000 / 100e9, 1000 * (13 / 7 + 1) * 5000 / 10e9
    assert found == pytest.approx(10e-6 + wire + work)
    overlapped = exchange_seconds(times(worker="1 GB/s", copy="1000 byte", local=1.0, together=1000.0), "normal", one())
    assert overlapped == pytest.approx(10e-6 + max(wire, work), rel=1e-3)


def test_between_nodes_the_link_carries_what_leaves_the_node() -> None:
    found = exchange_seconds(times(start_of_node="1 us"), "low_latency", one(nodes=4.0))
    assert found == pytest.approx(10e-6 + 4e-6 + 0.75 * 1000 * 2 * 4000 / 100e9)


def _measured(tokens: int, hidden: int, sms: int) -> float:
    truth = times(start="20 us", link="300 GB/s", worker="30 GB/s", copy="2000 byte", local=1.5, together=3.0)
    return float(exchange_seconds(truth, "normal", one(tokens=tokens, hidden=hidden, top=8.0, experts=256.0, ranks=8.0, sms=sms)))


CASES = list(itertools.product([2**n for n in range(0, 16, 2)], (2048, 4096, 7168), (4, 12, 24)))


def test_a_fit_predicts_what_it_did_not_see() -> None:
    tokens, hidden, sms = np.array(CASES, dtype=float).T
    seconds = np.array([_measured(*case) for case in CASES])
    asked = TokenExchange(tokens=tokens, hidden=hidden, top=8.0, experts=256.0, ranks=8.0, sms=sms)
    found = fit_exchange("dispatch", "normal", asked, seconds)
    assert float(found.inside.max()) < 0.01
    assert float(np.nanmax(found.outside)) < 0.03


def test_a_calibrated_file_is_read_and_rows_are_priced_by_it(tmp_path: Path) -> None:
    rows = ["system,version,mode,node_num,hidden_size,num_token,num_topk,num_experts,sms,dispatch_us,combine_us"]
    for case in CASES:
        tokens, hidden, sms = case
        rows.append(f"h100_sxm,1.0,normal,1,{hidden},{tokens},8,256,{sms},{1e6 * _measured(*case)},{2e6 * _measured(*case)}")
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(rows) + "\n")
    text, words = calibrate_network("mine", [path])
    assert len(words) == 1
    (tmp_path / "mine.yaml").write_text(text)
    machine = read_architecture("dgx_h100", [f"node.network.calls={tmp_path / 'mine.yaml'}"])
    known = machine_exchange(machine, "node", "deepep", None, "normal")
    assert known is not None
    tokens, hidden, sms = CASES[40]
    asked = TokenExchange(tokens=float(tokens), hidden=hidden, top=8.0, experts=256.0, ranks=8.0, sms=sms)
    assert exchange_seconds(known.dispatch, "normal", asked) == pytest.approx(_measured(*CASES[40]), rel=0.02)
    assert machine_exchange(machine, "node", "deepep", None, "low_latency") is None


def test_rows_are_two_answers_each_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "system,version,mode,node_num,hidden_size,num_token,num_topk,num_experts,sms,dispatch_us,combine_us\n"
        "h100_sxm,0.5.12,low_latency,1,7168,128,8,256,,33,60\n"
        "h100_sxm,0.5.12,normal,1,7168,128,8,256,,33,60\n"
        "h100_sxm,0.5.12,normal,2,7168,128,8,256,20,33,60\n"
        "h100_sxm,0.5.12,sideways,1,7168,128,8,256,20,33,60\n"
    )
    rows = validate([path]).rows
    assert [row.refused for row in rows[2:]] == [
        "no number of SMs",
        "no exchange of tokens over 'su' of dgx_h100 is known",
        "no mode of exchange called 'sideways'",
    ]
    assert [row.id for row in rows[:2]] == ["rows:1 dispatch", "rows:1 combine"]
    assert all(abs(row.error) < 0.2 for row in rows[:2])
