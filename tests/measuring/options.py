"""What may be given to a command, and to a client.

`python -m measuring.options` in the folder `tests` lists the commands with the most options.
"""

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from hearsay import Client
from hearsay_server import cli

LARGEST = ("ask", "config", "helper", "plan", "query", "serve", "shuffler")
"""Commands among which the largest ones are: to load all of them takes seconds."""


def of_commands(*names: str) -> dict[str, int]:
    """Return the options of each command, without its arguments and --help, the most first.

    Without names, of all commands.
    """
    found = dict(
        option for name in names or cli.COMMANDS for option in _counted(cli.load(name), name)
    )
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


def _counted(command: Any, name: str) -> Iterator[tuple[str, int]]:
    """Yield a command with its number of options, and the commands within it."""
    yield name, sum(each.param_type_name == "option" for each in command.params)
    for inner, each in getattr(command, "commands", {}).items():
        yield from _counted(each, f"{name} {inner}")


def of_client() -> int:
    """Return how many arguments `hearsay.Client(...)` takes."""
    return len(inspect.signature(Client).parameters)


if __name__ == "__main__":
    found = of_commands()
    sys.stdout.writelines(f"{count:4} {name}\n" for name, count in list(found.items())[:20])
