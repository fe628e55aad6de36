"""A command whose words all count: an option that is given twice where one is wanted and one that is given nothing are InputErrors.
What is wrong with a deployment's degree (`deployment.expert` to who calls from Python), or with what else is asked of a server, is told by
the option that said it.
(What two `--set` say of one number, whatever they call it: inputs/said.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand

from rackmodel.errors import InputError

ASKED = {
    "space.rates": "rate",
    "space.clients": "concurrency",
    "space.prompt_context": "prompt_context",
    "objective": "minimize",
    "limits": "limit",
    "engine": "engine",
    "requests.prompt": "isl",
    "requests.output": "osl",
}
"""What is asked of a server, to who calls from Python → the parameter that says it."""


class EveryWord(TyperCommand):
    """One command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read its words. Raises InputError."""
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        for param in dict.fromkeys(order):
            value, name = given.get(param.name), _called(param)
            if order.count(param) > 1 and not getattr(param, "is_flag", False) and not _several(param):
                raise InputError("given twice: the last alone would count", path=name)
            if any(isinstance(word, str) and not word.strip() for word in _words(value)):
                raise InputError("is empty: give it a value, or leave it out", path=name)
            for word in _words(value):
                short = next((opt for opt in param.opts if not opt.startswith("--") and f"{opt}{word}" in args), None)
                if short and str(word).startswith("="):
                    raise InputError(f"'{short}{word}': want {short} {str(word)[1:] or 'VALUE'}, or {name}=VALUE", path=name)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run it. Raises InputError."""
        try:
            return super().invoke(ctx)
        except InputError as problem:
            called = {param.name: _called(param) for param in self.params}
            options = {f"deployment.{name}": option for name, option in called.items()}
            options |= {path: called[name] for path, name in ASKED.items() if name in called and "isl" in called}
            for one in (problem, *problem.more):
                one.path = one.path if one.where else options.get(one.path, one.path)
            raise


def _called(param: Any) -> str:
    """'--output', or 'TRACE.csv' of an argument."""
    longest = max(param.opts, key=len)
    return str(longest if longest.startswith("-") else param.metavar or param.name)


def _several(param: Any) -> bool:
    return bool(param.multiple if hasattr(param, "multiple") else param.nargs != 1)


def _words(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value
    else:
        yield value
