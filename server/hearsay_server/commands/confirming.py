"""A question before something is done for good."""

import sys
from typing import Annotated

import typer

from hearsay.plain import plain
from ldp.errors import InvalidInput

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask first.")]


def confirm(yes: bool, question: str) -> None:
    """Ask at the terminal unless `yes`, and end the command where the answer is no.

    Raises `InvalidInput` where nobody can be asked.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question} Nobody can be asked here: give --yes to do it")
    typer.confirm(plain(question), abort=True)
