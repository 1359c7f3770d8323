"""Print lines of plain text as wide as the terminal is."""

import textwrap

from rich.console import Console
from rich.markup import escape


def print_wrapped(line: str, console: Console) -> None:
    """Print a line of plain text, wrapped; continuation lines are indented further."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    wrapped = textwrap.fill(line, console.width, subsequent_indent=indent)
    console.print(escape(wrapped), soft_wrap=True)
