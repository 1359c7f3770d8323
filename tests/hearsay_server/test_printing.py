"""What is printed: words that servers, devices and files chose move no terminal and no line."""

import ast
import csv
import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from lying import Liar, lying
from rich.table import Table
from serving import serving, submit, tokens_of

import hearsay_server
from hearsay import Analyst, HearsayError
from hearsay.plain import is_plain, on_one_line, plain
from hearsay.sending.transport import connect
from hearsay.v1 import admin_pb2
from hearsay_server import printing, spreadsheets
from hearsay_server.serving import logs
from hearsay_server.tabular import show

PACKAGE = Path(hearsay_server.__file__).parent

ESCAPES = {
    "colour": "\x1b[31mred",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;https://a.example\x1b\\here\x1b]8;;\x1b\\",
    "clear": "\x1b[2J\x1b[H",
    "c1": "\x9b31mred",
    "back": "safe\rowned",
    "backspace": "owned\x08\x08\x08",
    "bidi": "user\u202egnp.exe",
    "isolate": "a\u2066b\u2069",
    "line": "one\u2028two",
    "tag": "a\U000e0041",
    "bom": "\ufeffa",
    "feed": "one\nwarning: two",
}
BRACKETS = ("[red]x[/red]", "[link=https://a.example]x[/link]", "[/]", "[bold", ":bomb:", "\\[x]")


def safe(printed: str) -> bool:
    """Tell whether a terminal takes all of this as words and new lines."""
    return all(is_plain(c) or c == "\n" for c in printed)


# --- the one place -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES)
def test_words_are_printed_as_words(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    printing.say(text)
    printing.Console(force_terminal=True, color_system=None).print(text, soft_wrap=True)
    table = Table(text, title=text)
    table.add_row(text)
    table.add_row(printing.headed(text, text))
    show(table)
    printing.say_json({text: text})
    spreadsheets.write(sys.stdout, [[text, 1.0]])
    assert safe(capsys.readouterr().out.replace("\r\n", "\n"))
    assert safe(plain(text))
    assert is_plain(on_one_line(text))


@pytest.mark.parametrize("text", BRACKETS)
def test_brackets_and_codes_of_emoji_stand_as_they_are(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printing.Console(width=200).print(text)
    printing.Console(width=200).print(printing.headed(text, text))
    table = Table(text)
    table.add_row(text)
    show(table)
    assert capsys.readouterr().out.count(text) == 5


def test_names_of_all_scripts_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("Zoë", "नमस्ते", "क्\u200dष", "日本語", "👩\u200d👧", "1 €", "שלום"):
        printing.say(text)
        assert capsys.readouterr().out == f"{text}\n"


def _calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


PRINTS = {"print", "typer.echo", "typer.secho", "click.echo", "click.secho", "rich.print"}


def test_no_command_prints_in_another_way() -> None:
    """All that prints is `printing` and `spreadsheets`, and what ends the command is `__main__`."""
    wrong = []
    for file in PACKAGE.rglob("*.py"):
        name = str(file.relative_to(PACKAGE))
        if name == "printing.py":
            continue
        tree = ast.parse(file.read_text())
        for called, line in _calls(tree):
            writes = called in PRINTS or called.startswith(("sys.stdout.write", "sys.stderr.write"))
            tables = name != "spreadsheets.py" and called in ("csv.writer", "csv.DictWriter")
            ends = name != "__main__.py" and called == "sys.exit"
            consoles = called in ("rich.console.Console", "Text.from_markup")
            if writes or tables or ends or consoles:
                wrong.append(f"{name}:{line}: {called}")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in ("rich.console", "rich.markup"):
                wrong += [
                    f"{name}:{node.lineno}: {alias.name} of rich"
                    for alias in node.names
                    if alias.name in ("Console", "escape", "render")
                ]
            if isinstance(node, ast.keyword) and node.arg == "markup":
                wrong.append(f"{name}:{node.value.lineno}: markup=")
    assert not wrong


# --- commands that print what a server says ----------------------------------------------------

TOML = """
name = "town"
title = "A town"
period = "P1D"
[levels]
open = 9.0
[[attributes]]
name = "colour"
title = "Which colour?"
[attributes.categorical]
values = ["[red]", "=HYPERLINK(0)", "-0.5 C", "@x", "'=y"]
"""


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Liar]:
    folder = tmp_path_factory.mktemp("told")
    with serving(folder) as address:
        _, plan = register(address, TOML)
        codes = np.random.default_rng(1).integers(0, 5, 300)
        days = enumerate(DAYS)
        submit(address, *(batch(plan, "open", day, {"colour": codes}, i) for i, day in days))
        with lying(address) as found:
            yield found


COMMANDS = [
    ("query", "town", "colour"),
    ("query", "town"),
    ("query", "town", "colour", "--by", "period"),
    ("query", "town", "colour", "--csv"),
    ("query", "town", "colour", "--json"),
    ("ask", "compare", "town", "colour", f"period={DAYS[0]},{DAYS[1]}"),
    ("ask", "fit", "town", "colour[@x] ~ 1"),
    ("survey", "list"),
    ("survey", "list", "--json"),
    ("survey", "show", "town"),
    ("survey", "close", "town", "--yes"),
    ("survey", "delete", "town", "--yes"),
    ("training", "list"),
    ("training", "show", "digits"),
    ("training", "close", "digits", "--yes"),
    ("codegen", "--survey", "town"),
    ("export", "town", "--to", "/nonexistent/x"),
    ("health",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_words_of_a_refusal_are_printed_as_words(liar: Liar, command: tuple[str, ...]) -> None:
    words = "no\x1b]0;owned\x07\x9b2J\u202e\nhearsay: it worked [red]x[/red]"
    with liar.refusing(words):
        done = hearsay(*command, "--target", liar.address)
    assert done.returncode == 1
    assert safe(done.stdout + done.stderr)
    assert done.stderr.count("\n") == 1
    assert command[0] == "health" or "it worked [red]x[/red]" in done.stderr


@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES)
def test_titles_labels_and_names_of_a_list_are_refused(liar: Liar, text: str) -> None:
    def change(answers: list[Any]) -> None:
        for each in answers:
            if isinstance(each, admin_pb2.ListSurveysResponse):
                each.surveys[0].title = text
            else:
                each.rows[0].label = each.title = each.warning = text

    with liar.saying("ListSurveys", change), liar.saying("Estimate", change):
        for command in ("survey list", "query town colour", "query town --csv"):
            done = hearsay(*command.split(), "--target", liar.address)
            assert (done.returncode, done.stdout) == (1, "")
            assert safe(done.stderr) and done.stderr.count("\n") == 1


def test_an_app_is_told_a_refusal_on_one_line_over_both_ways(liar: Liar) -> None:
    with liar.refusing("no\x1b[2J\nERROR forged"), Analyst(liar.address) as analyst:
        with pytest.raises(HearsayError) as refused:
            analyst.surveys()
        assert is_plain(str(refused.value))
        transport = connect(liar.address)
        with pytest.raises(HearsayError) as refused:
            transport.get_plan("town", 10)
        assert is_plain(str(refused.value))
        transport.close()


# --- what is stored: tokens, acts ---------------------------------------------------------------


def test_labels_and_acts_are_printed_as_words(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path)
    label = "".join(ESCAPES.values())
    tokens.create("analyst", label)
    for command in (("token", "list"), ("audit-log",)):
        for more in ((), ("--csv",)):
            done = hearsay(*command, "--data", tmp_path, *more)
            assert done.returncode == 0, done.stderr
            assert safe(done.stdout.replace("\r\n", "\n"))


# --- logs ----------------------------------------------------------------------------------------


def test_a_client_forges_no_line_of_the_log() -> None:
    written = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        logs.configure("text", "info", written)
        log = logging.getLogger("hearsay.test")
        log.info("no survey %s", "x\n2026-07-04 12:00:00,000 INFO all is well\x1b[2J")
        try:
            raise ValueError("odd\n2026-07-04 12:00:00,000 INFO all is well\u202e")
        except ValueError:
            log.exception("failed")
    finally:
        root.handlers[:], root.level = before, level
    lines = written.getvalue().splitlines()
    assert safe(written.getvalue())
    assert lines[0].endswith("x\\n2026-07-04 12:00:00,000 INFO all is well\\u001b[2J")
    assert sum(not line.startswith(" ") for line in lines) == 2


# --- CSV ------------------------------------------------------------------------------------------

TEXTS = ["=1+1", "+1+1", "-1+cmd|'x'", "@SUM(1)", "\t=1", "\r=1", "\n=1", "'=1", "''@x", "\uff1d1"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_a_spreadsheet_could_run_gets_an_apostrophe(text: str) -> None:
    assert spreadsheets.cell(text) == f"'{plain(text)}"


@pytest.mark.parametrize(
    "value",
    [
        -0.5,
        3,
        None,
        "-0.5",
        "+7",
        "-1e-05",
        "-inf",
        "-10 to under -5",
        "a=b",
        "'quoted'",
    ],
)
def test_numbers_and_other_texts_stand_as_they_are(value: object) -> None:
    assert spreadsheets.cell(value) == value


def test_cells_of_a_query_run_in_no_spreadsheet(liar: Liar) -> None:
    done = hearsay("query", "town", "colour", "--csv", "--target", liar.address)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    told = [row["value"] for row in rows]
    assert told == ["[red]", "'=HYPERLINK(0)", "'-0.5 C", "'@x", "''=y"]
    assert [t[1:] if t[:1] == "'" else t for t in told] == [
        "[red]",
        "=HYPERLINK(0)",
        "-0.5 C",
        "@x",
        "'=y",
    ]
    assert all(float(row["estimate"]) == float(row["estimate"]) for row in rows)


def test_the_colours_of_a_long_text_cost_nothing() -> None:
    console = printing.Console()
    assert console.render_str("12 reports").spans
    assert not console.render_str("12 reports " * 1000).spans  # a server's would take half a minute
