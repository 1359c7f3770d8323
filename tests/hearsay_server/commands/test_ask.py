"""`hearsay ask`: every question of the catalogue at the command line, as `Analyst` answers it."""

import csv
import io
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from serving import submit

from hearsay import Analyst
from hearsay.asking import Answer, Subject, Table, roles, views
from hearsay.asking.columns import DIFFERENCE_COLUMNS, FIT_COLUMNS
from hearsay.asking.selection import quietly
from hearsay.asking.views.catalogue import VIEWS, survey_of
from hearsay.asking.views.options import Given
from hearsay_server import cli
from hearsay_server.commands import answered
from hearsay_server.pages.analyst import charts
from ldp.estimating import consistency
from ldp.estimating.pooling import Method

TOML = """
name = "trips"
title = "Trips"
period = "P1D"
[levels]
strict = 12.0
open = 24.0
[[attributes]]
name = "how"
title = "How did you come?"
mechanism = "krr"
[attributes.categorical]
values = ["bus", "train", "bike, or foot"]
[[attributes]]
name = "drink"
mechanism = "oue"
[attributes.categorical]
values = ["tea", "water"]
[[attributes]]
name = "hours"
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 10
step = 1
[[attributes]]
name = "apps"
mechanism = "set_pairs"
[attributes.set]
values = ["maps", "news", "=SUM(1)"]
at_most = 2
"""
ASKED = [
    "estimate how",
    "estimate how --level open --consistent norm-sub --top 2",
    "estimate how --sum bus,train --sum '\"bike, or foot\"'",
    "by how level --simultaneous",
    "by drink period",
    "sizes apps",
    "pairs apps --top 2 --confidence 0.9",
    "compare how level=strict,open",
    "change how {0} {1}",
    "joint how drink",
    "independent how drink",
    "given how drink",
    "differences how drink",
    "distribution hours",
    "quantiles hours --quantile 0.5 --quantile 0.9",
    "cdf hours",
    "between hours 2 5",
    "forged how",
    "suspicions drink --suspect tea --suspect water",
    "forecast how --goal 0.01",
]
"""Views with what a command says of each, for attributes of each kind."""


@pytest.fixture(scope="module")
def asked(address: str) -> Iterator[tuple[str, Analyst]]:
    with Analyst(address) as analyst:
        _, plan = register(address, TOML)
        rng = np.random.default_rng(8)
        sets = np.array([[0, 1], [0, -1], [-1, -1], [1, 2]])
        for number, (level, day) in enumerate(
            (level, day) for level in ("strict", "open") for day in DAYS[:2]
        ):
            answers = {
                "how": rng.choice(3, 400, p=[0.5, 0.3, 0.2]),
                "drink": rng.integers(0, 2, 400),
                "hours": rng.beta(2, 4, 400) * 2 - 1,
                "apps": sets[rng.integers(0, 4, 400)],
            }
            submit(address, batch(plan, level, day, answers, 1 + number))
        yield address, analyst


def ask(
    asked: tuple[str, Analyst], words: str, *more: object, code: int = 0, **environ: str
) -> Any:
    view, *given = shlex.split(words.format(*DAYS))
    done = hearsay("ask", view, "trips", *given, *more, "--target", asked[0], **environ)
    assert done.returncode == code, done.stderr
    return done


def test_every_view_of_attributes_is_asked() -> None:
    of_attributes = {name for name, view in VIEWS.items() if view.kinds}
    over_days = {"trend", "breaks", "words"}  # of more days, and of strings: the same code
    missing = of_attributes - over_days - {words.partition(" ")[0] for words in ASKED}
    assert not missing, "give each a line in ASKED"


@pytest.mark.parametrize("words", ASKED)
def test_a_command_answers_as_analyst_does(asked: tuple[str, Analyst], words: str) -> None:
    view, attribute, *rest = shlex.split(words.format(*DAYS))
    pairs, options = [("attribute", attribute)], {each.name: each for each in VIEWS[view].options}
    needed = [each.name for each in VIEWS[view].options if each.needed]
    while rest:
        name = rest.pop(0)
        if not name.startswith("--"):
            pairs.append((needed[0], name))
        elif options[name[2:]].kind == "flag":
            pairs.append((name[2:], "1"))
        else:
            pairs.append((name[2:], rest.pop(0)))
    with quietly():
        question = VIEWS[view].question("trips", Given(pairs, VIEWS[view].options))
        answer = question.ask(asked[1])
    assert json.loads(ask(asked, words, "--json").stdout) == json.loads(answer.to_json())
    lines = list(csv.reader(io.StringIO(ask(asked, words, "--csv").stdout, newline="")))
    assert lines[0] == next(csv.reader(answer.to_csv().splitlines()))
    assert len(lines) == 1 + len(answer.table())
    printed = ask(asked, words).stdout
    assert max(map(len, printed.splitlines())) <= 80
    for label in answer.table().index[0].labels:
        assert (f"{label:g}" if isinstance(label, float) else label[:4]) in printed


def test_a_regression_is_a_view_of_a_formula(asked: tuple[str, Analyst]) -> None:
    with quietly():
        answer = asked[1].logit("trips", "drink ~ C(how)")
    said = ask(asked, 'fit "drink ~ C(how)" --logit', "--json").stdout
    assert json.loads(said) == json.loads(answer.to_json())
    assert "give logit" in ask(asked, 'fit "drink ~ C(how)" --method forward', code=1).stderr


def test_tables_of_long_labels_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    long = [f"C(profession, Treatment('none'))[T.{'x' * length}much]" for length in (9, 60, 200)]
    numbers = (-1234.5678, 0.0131, -12.345, 1e-300, -1234.5678, 1234.5678, 0.5)
    each = zip(FIT_COLUMNS, numbers, strict=True)
    columns = tuple(roles.column(name, [number] * 3, "own") for name, number in each)
    terms = Table("rows", roles.index(("wage", long)), columns)
    subject = Subject("wage", "wage ~ C(profession)")
    fitted = Answer("fit", "pay", (subject,), "coefficient", (terms,), 0.95, reports=9)
    answered.show(fitted, [], False, False)
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert said.count("-1234.5678 to 1234.5678") == 3 and "…" in said
    numbers = (0.1, 0.2, 0.1, 0.0131, -0.1234, 0.1234, 0.5, 1.0)
    each = zip(DIFFERENCE_COLUMNS, numbers, strict=True)
    columns = tuple(roles.column(name, [number] * 3, "share") for name, number in each)
    rows = Table("rows", roles.index(("a" * 40, long)), columns)
    compared = Answer("compare", "pay", (Subject("a" * 40),), "frequency", (rows,), 0.99)
    answered.show(compared, [], False, False)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_what_can_be_asked_is_listed_as_on_the_pages(asked: tuple[str, Analyst]) -> None:
    survey = survey_of(asked[1].show_survey("trips"))
    said = hearsay("ask", "--list", "trips", "--target", asked[0]).stdout
    for name in survey.attributes:
        for view in survey.views(name):
            assert f"{view.name} trips {name}" in said and view.title in said
    assert "pairs trips how" not in said
    assert "leave out" in hearsay("ask", "--list", "trips", "estimate", "trips", "how").stderr
    assert hearsay("ask").stdout == hearsay("ask", "--help").stdout


def test_csv_has_the_table_that_is_named(asked: tuple[str, Analyst]) -> None:
    said = ask(asked, "given how drink", "--csv", "--table", "differences").stdout
    assert said.startswith("attribute,first_group,second_group,how,first,second,difference,")
    assert "has no table 'x', only" in ask(asked, "sizes apps --csv --table x", code=1).stderr
    assert "--table is of --csv" in ask(asked, "sizes apps --table rows", code=1).stderr


def test_a_spreadsheet_runs_no_value(asked: tuple[str, Analyst]) -> None:
    said = ask(asked, "estimate apps --csv").stdout
    assert ",'=SUM(1)," in said and ",=SUM(1)," not in said


def test_margins_are_read_from_files(asked: tuple[str, Analyst], tmp_path: Path) -> None:
    file = tmp_path / "platform.csv"
    file.write_text("platform,share\nios,1\n")
    assert "declares no properties" in ask(asked, "estimate how", "--margins", file, code=1).stderr
    file.write_text("platform\nios\n")
    heading = "the heading must be properties and then"
    assert heading in ask(asked, "estimate how", "--margins", file, code=1).stderr
    assert "No such file" in ask(asked, "estimate how --margins /nowhere.csv", code=1).stderr


def test_a_question_that_cannot_be_asked_says_why(asked: tuple[str, Analyst]) -> None:
    for words, why in {
        "estimate where": "'trips' has no attribute 'where'",
        "estimate how --confidence x": "confidence must be a number, got 'x'",
        "estimate how --top -1": "top must be a whole number from 0 to 999,999,999, got '-1'",
        "estimate how --top 9999999999": "top must be a whole number from 0 to 999,999,999, got",
        "compare how levels": "compare must read like level=A,B",
        "between hours 2 x": "between must be a number, got 'x'",
        "estimate how --json --csv": "choose one of --json and --csv",
        "estimate how --watch 1 --plot x.png": "--watch does not draw",
        "estimate how --plot x.bmp": "--plot must name a file that ends in",
    }.items():
        assert why in ask(asked, words, code=1).stderr, words
    assert "No such option: --watch" in ask(asked, "pairs apps --watch 1", code=2).stderr
    assert "'trips' has no attribute 'where'" in ask(asked, "by where", code=1).stderr
    assert "No such command" in hearsay("ask", "nothing", "trips").stderr


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        ("by how", "level"),
        ("compare how", "level=strict,open"),
        ("change how", "{0} {1}"),
        ("joint how", "drink"),
        ("given hours", "how"),
        ("between hours", "2 7"),
    ],
)
def test_what_is_left_out_is_what_the_survey_suggests(
    asked: tuple[str, Analyst], words: str, suggested: str
) -> None:
    view, attribute = words.split()
    done = ask(asked, words, "--json")
    given = suggested.format(*DAYS)
    assert f"asking: hearsay ask {view} trips {attribute} {given}\n" in done.stderr
    assert done.stdout == ask(asked, f"{words} {given}", "--json").stdout


@pytest.mark.parametrize("words", ["estimate how", "given how drink", "independent how drink"])
def test_a_question_is_drawn_with_its_answer(
    asked: tuple[str, Analyst], words: str, tmp_path: Path
) -> None:
    file = tmp_path / "answer.png"
    ask(asked, words, "--plot", file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_watched_question_is_printed_again_when_its_answer_changes(
    asked: tuple[str, Analyst], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hearsay_server.commands import questions as module

    plan = survey_of(asked[1].show_survey("trips")).plan
    times = iter([None, None])

    def slept(seconds: float) -> None:
        assert seconds == 3
        if next(times, 0) == 0:
            raise KeyboardInterrupt
        if not slept.sent:  # type: ignore[attr-defined]
            slept.sent = True  # type: ignore[attr-defined]
            more = {"drink": np.ones(40, dtype=int)}
            submit(asked[0], batch(plan, "open", DAYS[1], more, 99))

    slept.sent = False  # type: ignore[attr-defined]
    monkeypatch.setattr(module.time, "sleep", slept)
    done = hearsay("ask", "estimate", "trips", "drink", "--watch", 3, "--target", asked[0])
    assert done.stdout.count("trips, drink:") == 2  # of three times, once nothing had come in


def test_the_commands_are_those_of_the_catalogue() -> None:
    command = cli.load("ask")
    assert list(command.commands) == list(VIEWS)
    for name, view in VIEWS.items():
        names = {each.name for each in view.options}
        options = {opt for each in command.commands[name].params for opt in each.opts}
        assert {f"--{each.name}" for each in view.options if not each.needed} <= options
        assert len(view.options) == len(names)


def test_methods_are_those_that_there_are() -> None:
    named = {each.name: set(each.choices) for each in VIEWS["estimate"].options if each.choices}
    assert named == {"method": set(get_args(Method)), "consistent": set(consistency.METHODS)}


@pytest.mark.parametrize("words", ["joint how drink", "given how drink"])
def test_a_table_of_two_takes_the_methods_that_its_command_offers(
    asked: tuple[str, Analyst], words: str
) -> None:
    (option,) = (o for o in VIEWS[words.split()[0]].options if o.name == "method")
    assert option.choices
    for method in option.choices:
        ask(asked, words, "--method", method)


def test_every_view_has_a_picture_or_a_reason() -> None:
    assert set(VIEWS) - {"forged", "fit"} - set(charts._DRAWN) == {
        "independent",
        "mixing",
        "suspicions",
    }
    assert views.__doc__
