"""The options that name a mechanism."""

from collections.abc import Callable
from typing import Annotated

import typer

from hearsay_server.surveys import catalogue
from ldp import Mechanism

_CATEGORICAL = f"With --k one of: {', '.join(catalogue.CATEGORICAL)}."
_NUMERIC = f"Without, for numbers: {', '.join(catalogue.NUMERIC)}."
MechanismName = Annotated[str, typer.Argument(help=f"{_CATEGORICAL} {_NUMERIC}")]
Categories = Annotated[int | None, typer.Option("--k", help="The number of categories.")]
Epsilon = Annotated[float | None, typer.Option(help="What one report may spend.")]


def maker(name: str, k: int | None) -> Callable[[float], Mechanism]:
    """Return the named mechanism as a function of epsilon: for k categories, or for numbers."""
    if k is None:
        return lambda epsilon: catalogue.numeric(name, epsilon)
    return lambda epsilon: catalogue.categorical(name, k, epsilon)
