"""A view of answers: what it asks `Analyst`, what it draws, and the code that does the same."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pandas as pd

from hearsay import Analyst
from hearsay.asking.answer import Answer
from hearsay_server.pages.analyst.options import Given, Option


@dataclass(frozen=True)
class Question:
    """One call of a method of `Analyst`, which is made as it is written."""

    method: str
    args: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, analyst: Analyst) -> Answer:
        """Return the answer."""
        return cast(Answer, getattr(analyst, self.method)(*self.args, **self.options))

    def python(self, target: str, *, with_token: bool) -> str:
        """Return a program that gives the same table."""
        lines = ["import os\n"] if with_token else []
        lines += ["from hearsay import Analyst\n", "\n"]
        token = ', token=os.environ["HEARSAY_TOKEN"]' if with_token else ""
        lines.append(f"analyst = Analyst({target!r}{token})\n")
        given = [repr(each) for each in self.args]
        given += [f"{name}={value!r}" for name, value in self.options.items()]
        call = f"analyst.{self.method}({', '.join(given)})"
        if len(call) > 80:
            call = f"analyst.{self.method}(\n    " + ",\n    ".join(given) + ",\n)"
        lines.append(f"table = {call}.to_frame()\n")
        return "".join(lines)


def curl(address: str, *, with_token: bool) -> str:
    """Return a command that fetches what is at an address."""
    token = ' -H "authorization: Bearer $HEARSAY_TOKEN"' if with_token else ""
    return f"curl -sS --fail-with-body{token} {shlex.quote(address)}"


@dataclass(frozen=True)
class View:
    """A view by its name in addresses.

    `kinds` are the kinds of attributes that it is about; `chart` returns what the page draws, None
    for nothing; `notes` what there is to say beside the numbers. Views that `poll` are asked again
    while they are open: the others make the server read all the reports.
    """

    name: str
    title: str
    says: str
    kinds: Sequence[str]
    options: tuple[Option, ...]
    question: Callable[[str, Given], Question]
    chart: Callable[[pd.DataFrame], dict[str, Any] | None]
    notes: Callable[[pd.DataFrame], list[str]] = lambda table: []
    poll: bool = True
    beside: Callable[[str, Given], Question] | None = None
    """Another question, whose chart is drawn above."""

    over: Callable[[str, Given, pd.DataFrame], Question | None] | None = None
    """Another question, which the PNG has above the answer, or in its place where that has no
    picture; None for none."""


ALL = ("categorical", "numeric", "set", "ratings")
