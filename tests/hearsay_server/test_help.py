"""The help of every command, the completion of shells, and questions before what is for good."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from command import hearsay
from serving import Survey
from typer.core import TyperGroup

from hearsay_server import cli
from hearsay_server.commands import confirming


def every(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and those below it, each with the words that name it."""
    yield path, command
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from every(below, (*path, name))


COMMANDS = [
    pytest.param(path, command, id=" ".join(path))
    for name in cli.COMMANDS
    for path, command in every(cli.load(name), (name,))
]


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_help_fits_80_columns_with_whole_names_of_options(
    path: tuple[str, ...], command: Any
) -> None:
    said = hearsay(*path, "--help").stdout
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    for each in command.params:
        for name in (*each.opts, *each.secondary_opts):
            if name.startswith("-"):
                assert re.search(rf"(?<![\w-]){name}(?![\w-])", said), name


@pytest.mark.parametrize(("path", "command"), COMMANDS)
def test_a_flag_has_an_opposite_only_where_it_may_be_on_by_default(
    path: tuple[str, ...], command: Any
) -> None:
    opposites = [name for each in command.params for name in each.secondary_opts]
    assert not opposites or path[-1] == "serve" or path == ("codegen",)


def test_commands_stand_by_role_with_their_whole_sentence() -> None:
    listed = [name for names in cli.ROLES.values() for name in names]
    assert sorted(listed) == sorted(cli.COMMANDS)
    said = hearsay("--help").stdout
    assert max(map(len, said.splitlines())) <= 80
    assert [line[:-1] for line in said.splitlines() if re.fullmatch("[A-Z].*:", line)] == [
        "Options",
        *cli.ROLES,
    ]
    for _, sentence in cli.COMMANDS.values():
        assert sentence in " ".join(said.split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("hearsay qu", "query"),
        ("hearsay survey cr", "create"),
        ("hearsay query --simul", "--simultaneous"),
    ],
)
def test_a_shell_completes_commands_and_options(
    line: str, offered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    assert hearsay(_HEARSAY_COMPLETE="complete_bash").stdout.split() == [offered]


def test_what_is_for_good_is_asked_first(survey: Survey, monkeypatch: pytest.MonkeyPatch) -> None:
    target = ("--target", survey.address)
    for does, asks in (
        ("close", "Close {} for good?"),
        ("delete", "Delete {} and all its reports"),
    ):
        refused = hearsay("survey", does, survey.name, *target)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"hearsay: {asks.format(survey.name)}")
        assert refused.stderr.endswith("Nobody can be asked here: give --yes to do it\n")
    asked: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(confirming.typer, "confirm", lambda text, abort: asked.append(text))
    hearsay("survey", "close", survey.name, "--period", "2026-11", *target)
    assert asked == [
        f"Close the periods of {survey.name} up to 2026-11 for good? Later reports are refused."
    ]
    assert hearsay("survey", "close", survey.name, "--yes", *target).returncode == 0
    assert len(asked) == 1


def test_the_options_of_a_question_stand_under_headings() -> None:
    for command in (("query",), ("ask", "change")):
        said = hearsay(*command, "--help").stdout
        headings = [line[:-1] for line in said.splitlines() if re.fullmatch("[A-Z].*:", line)]
        assert headings == ["Arguments", "Options", "Which reports"]
