"""What is asked of a server wrongly: named by its option on the command line, by its field to who calls from Python."""

from __future__ import annotations

import pytest

from rackmodel.errors import InputError
from rackmodel.serving.search import ServingSpace, search_service
from tests.commands import invoke
from tests.test_serving_rates import service


@pytest.mark.parametrize(
    ("words", "option", "field"),
    [
        (("--osl", "1", "--minimize", "tpot"), "--minimize", "objective"),
        (("--minimize", "speed"), "--minimize", "objective"),
        (("--limit", "power=1 s"), "--limit", "limits"),
        (("--rate", "1", "--concurrency", "4"), "--rate", "space.rates"),
        (("--isl", "200000"), "--isl", "requests.prompt"),
        (("--engine", "vlm"), "--engine", "engine"),
    ],
)
def test_a_word_is_named_by_the_option_that_said_it(
    words: tuple[str, ...], option: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["serve", "dgx_h100", "llama3_8b_decoder", *words]
    assert _path(asked) == option
    monkeypatch.setattr("rackmodel.cli.once.ASKED", {})
    assert _path(asked) == field


def _path(asked: list[str]) -> str:
    problem = invoke(asked).exception
    assert isinstance(problem, InputError)
    return problem.path


def test_who_calls_from_python_hears_of_no_options() -> None:
    with pytest.raises(InputError) as caught:
        search_service(service(), ServingSpace(rates=(1.0,), clients=(4.0,)))
    assert caught.value.path == "space.rates"
    assert "--" not in str(caught.value)
