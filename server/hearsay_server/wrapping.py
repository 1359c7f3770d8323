"""Print lines of plain text as wide as the terminal is."""

import textwrap

from hearsay_server.printing import Console


def wrapped(line: str, width: int, indent: int = 2) -> str:
    """Return a line of plain text in lines of a width, escaped for rich.

    Continuation lines are indented by so many columns more than the line itself.
    """
    inside = " " * (len(line) - len(line.lstrip()) + indent)
    return textwrap.fill(line, width, subsequent_indent=inside)


def print_wrapped(line: str, console: Console) -> None:
    """Print a line of plain text, wrapped; continuation lines are indented further."""
    console.print(wrapped(line, console.width), soft_wrap=True)
