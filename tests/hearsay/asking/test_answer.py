"""An answer as a value: its tables, JSON, CSV, frames and HTML, made from messages of each kind."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from hearsay.asking import Answer, Cohort, Column, Note, Subject, Table, cautions, roles, wire
from hearsay.asking.answer import Unit
from hearsay.asking.columns import FIT_COLUMNS, PAIR_COLUMNS, change_columns
from hearsay.asking.plots import figure, over_time
from hearsay.v1 import analyst_pb2, answer_pb2
from hearsay_server.answers.tables import by, estimates, rated
from ldp import InvalidInput

Request = analyst_pb2.ChangeRequest
HOSTILE = '<b onmouseover="x()">tea</b>'


def estimated(*labels: str, statistic: str = "frequency", **more: Any) -> Answer:
    """Estimates of these labels, which all have the same numbers; `more` are further columns, or
    what else an answer has."""
    columns = {"estimate": 0.25, "standard_error": 0.05, "low": 0.2, "high": 0.4}
    columns |= {name: more.pop(name) for name in list(more) if name in roles.ROLES}
    made = {name: np.full(len(labels), number) for name, number in columns.items()}
    rows = estimates("rows", ("drink", list(labels)), made, roles.unit_of(statistic))
    tables = (rows, rated(rows)) if "share" in columns else (rows,)
    about = {"reports": 100, "method": "mle", **more}
    subjects = (Subject("drink", about.pop("title", "")),)
    return Answer("estimate", "s", subjects, statistic, tables, 0.9, **about)


def of_columns(view: str, labels: dict[str, str], names: Sequence[str], unit: Unit) -> Answer:
    """An answer of one row, whose numbers are 0.5 and the integers 3."""
    columns = [roles.column(name, [0.5], unit) for name in names]
    columns = [replace(c, values=np.array([3.0])) if c.whole else c for c in columns]
    index = roles.index(*((name, [label]) for name, label in labels.items()))
    return Answer(view, "s", (Subject("drink"),), "", (Table("rows", index, tuple(columns)),))


def broken() -> Answer:
    """A break of one value, in the period D2."""
    names = [*change_columns(Request.BREAKS), "mix"]
    answer = of_columns("breaks", {"drink": "tea"}, names, "share")
    columns = (Column("period", "text", "none", ["D2"]), *answer.table().columns)
    return replace(answer, confidence=0.9, tables=(replace(answer.table(), columns=columns),))


FIRST_TABLES = {
    "estimate": (
        lambda: estimated("tea", raw=0.3, effective_sample_size=9.0, alike=0.2, alike_low=0.1),
        "estimate:estimate:share standard_error:error:share low:low:share high:high:share "
        "raw:reference:share effective_sample_size:n:count alike:reference:share "
        "alike_low:low:share",
    ),
    "ratings": (
        lambda: estimated("tea", share=0.5, statistic="rating"),
        "estimate:estimate:own standard_error:error:own low:low:own high:high:own "
        "share:estimate:share",
    ),
    "pairs": (
        lambda: of_columns("pairs", {"first": "a", "second": "b"}, PAIR_COLUMNS, "share"),
        "estimate:estimate:share standard_error:error:share low:low:share high:high:share "
        "independent:reference:share",
    ),
    "trend": (
        lambda: of_columns(
            "trend", {"drink": "tea"}, [*change_columns(Request.TREND), "mix"], "share"
        ),
        "first:reference:share second:reference:share slope:estimate:per period "
        "standard_error:error:share low:low:share high:high:share p_value:p:none "
        "adjusted_p_value:p:none mix:reference:share",
    ),
    "breaks": (
        broken,
        "period:text:none before:reference:share after:reference:share difference:estimate:share "
        "standard_error:error:share low:low:share high:high:share p_value:p:none "
        "adjusted_p_value:p:none mix:reference:share",
    ),
    "fit": (
        lambda: of_columns("fit", {"pay": "Intercept"}, FIT_COLUMNS, "own"),
        "estimate:estimate:own standard_error:error:own z:statistic:none p_value:p:none "
        "low:low:own high:high:own naive:reference:own",
    ),
    "suspicions": (
        lambda: of_columns(
            "suspicions",
            {"level": "one", "test": "together"},
            ("statistic", "p_value", "reports"),
            "none",
        ),
        "statistic:statistic:none p_value:p:none reports:n:count",
    ),
    "independent": (
        lambda: of_columns(
            "independent",
            {"attributes": "a and b"},
            ("statistic", "dof", "pvalue", "noncentrality", "detectable", "reports"),
            "none",
        ),
        "statistic:statistic:none dof:statistic:none pvalue:p:none noncentrality:statistic:none "
        "detectable:statistic:none reports:n:count",
    ),
}


@pytest.mark.parametrize("view", FIRST_TABLES)
def test_each_column_says_what_it_is_and_in_which_unit(view: str) -> None:
    made, expected = FIRST_TABLES[view]
    columns = [f"{c.name}:{c.role}:{c.unit}" for c in made().table().columns]
    assert " ".join(columns) == expected


def same(answer: Answer, other: Answer) -> bool:
    """Tell whether two answers have the same values, texts and types, nan where the other has."""
    plain = [each.to_dict() for each in (answer, other)]
    levels = [
        [type(label) for table in each.tables for level in table.index for label in level.labels]
        for each in (answer, other)
    ]
    return plain[0] == plain[1] and levels[0] == levels[1]


@pytest.mark.parametrize("view", FIRST_TABLES)
def test_an_answer_is_the_same_after_the_wire(view: str) -> None:
    answer = FIRST_TABLES[view][0]()
    message = answer_pb2.Answer.FromString(wire.to_message(answer).SerializeToString())
    assert same(wire.from_message(message), answer)


def test_what_is_not_told_of_one_row_comes_over_the_wire_too() -> None:
    columns = (
        roles.column("estimate", [0.25, math.nan, 1e-300], "share"),
        Column("period", "text", "none", ["D1", "", "D2"]),
        roles.column("reports", [2**53, 0, 1], "none"),
    )
    index = roles.index(("group", ["a", "a", "b"]), ("at", [0.1, 0.2, 1e9]))
    answer = Answer(
        "by",
        "s",
        (Subject("drink", "What?"), Subject("food")),
        "frequency",
        (Table("rows", index, columns, 7, "share"), Table("sums", roles.index(("x", [])), ())),
        0.9,
        True,
        12,
        {"a": 5, "b": 7},
        2.5,
        "mle",
        (
            Note("no_pairs", {"levels": ["strict"]}, "a"),
            Note.of(
                cautions.no_distribution,
                reports=1,
                epsilons=[0.5],
                values=9,
                known=1.0,
                needed=5e4,
                goal=0.05,
            ),
            Note.of(cautions.mean_size_alone, of_all=True),
            Note.of(cautions.share_moved, kind="map", name="x", first=0.25, second=1.0),
            Note.of(cautions.curve),
        ),
        {
            "none": None,
            "one": 1.5,
            "count": 3,
            "two": [1.0, 2.0],
            "texts": ["x"],
            "by": {"b": 0.5, "a": 1.0},
            "is": True,
            "no numbers": [],
        },
        (Cohort(b"r", "open", "D1", "", 1.25, "krr", 3),),
    )
    assert same(wire.from_message(wire.to_message(answer)), answer)
    assert math.isnan(wire.from_message(wire.to_message(answer)).table().columns[0].values[1])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m: m.tables[0].columns[0].numbers.append(1.0), "'estimate' has 3 of 2 rows"),
        (lambda m: m.tables[0].index[0].labels.append("milk"), "other labels than the 2 given"),
        (lambda m: m.tables[0].index[0].places.append(3), "other labels than the 1 given"),
        (lambda m: m.tables[0].columns.add(name="estimate", role=1, unit=1), "a column once"),
        (lambda m: m.tables[0].index.append(m.tables[0].index[0]), "a column once"),
        (lambda m: setattr(m.tables[0].columns[0], "role", 99), "nothing that a column can be"),
        (lambda m: m.tables.append(m.tables[0]), "tables: one comes twice"),
        (lambda m: m.ClearField("tables"), "an answer has a table"),
        (lambda m: [m.figures.add(name="one") for _ in range(2)], "figures: one comes twice"),
        (
            lambda m: m.figures.add(name="by").numbers.names.extend(["a", "b"]),
            "'by' has a number for each of its names",
        ),
    ],
)
def test_a_message_that_is_no_answer_is_refused(change: Any, why: str) -> None:
    index = roles.index(("drink", ["tea", "tea"]))
    rows = Table("rows", index, (roles.column("estimate", [0.5, 0.25], "share"),))
    message = wire.to_message(Answer("estimate", "s", (Subject("drink"),), "share", (rows,)))
    change(message)
    with pytest.raises(InvalidInput, match=why):
        wire.from_message(message)


@pytest.mark.parametrize("view", FIRST_TABLES)
def test_frame_json_and_csv_have_the_same_numbers(view: str) -> None:
    answer = FIRST_TABLES[view][0]()
    table, frame = answer.table(), answer.to_frame()
    document = json.loads(answer.to_json())["tables"][table.name]
    (line,) = csv.DictReader(answer.to_csv().splitlines())
    assert list(document["columns"]) == list(frame.columns)
    assert [list(labels) for labels in document["index"].values()] == [
        frame.index.get_level_values(level).tolist() for level in range(frame.index.nlevels)
    ]
    for name, column in document["columns"].items():
        (number,) = column["values"]
        if isinstance(number, str):
            assert number == frame[name].item() == line[name]
        elif number is None:
            assert math.isnan(frame[name].item()) and line[name] == ""
        else:
            assert number == frame[name].item() == float(line[name])


def test_csv_names_each_column_once_and_has_the_reports_of_each_group() -> None:
    for name in ("low", "reports", "confidence", "attribute"):
        answer = estimated("tea")
        rows = replace(answer.table(), index=roles.index((name, ["tea"])))
        heading, line = csv.reader(replace(answer, tables=(rows,)).to_csv().splitlines())
        assert heading[:2] == ["attribute", f"{name}.value"] and heading[-1] == "reports"
        assert len(set(heading)) == len(heading) and line[-1] == "100"
    groups = {"open": estimated("tea"), "strict": replace(estimated("tea"), reports=7)}
    lines = list(csv.DictReader(by(groups, "level").to_csv().splitlines()))
    assert [(line["level"], line["reports"]) for line in lines] == [
        ("open", "100"),
        ("strict", "7"),
    ]


def test_what_there_is_not_is_nan_in_frames_null_in_json_and_empty_in_csv() -> None:
    answer = estimated("tea", estimate=math.nan, figures={"homogeneity": None})
    assert math.isnan(answer.to_frame()["estimate"].item())
    document = json.loads(answer.to_json(indent=1))
    assert document["tables"]["rows"]["columns"]["estimate"]["values"] == [None]
    assert document["figures"] == {"homogeneity": None}
    assert answer.to_csv().splitlines()[1] == "drink,tea,,0.05,0.2,0.4,0.9,100"


def test_an_answer_without_rows_has_its_columns() -> None:
    answer = estimated()
    assert list(answer.to_frame().columns) == ["estimate", "standard_error", "low", "high"]
    assert answer.to_csv().count("\n") == 1
    assert len(answer.table()) == 0


def test_a_table_or_column_that_is_not_there_is_named_with_those_that_are() -> None:
    answer = estimated("tea", share=0.5, statistic="rating")
    assert answer.to_frame("shares").index.tolist() == ["tea"]
    with pytest.raises(InvalidInput, match="no table 'bins', only rows, shares"):
        answer.to_frame("bins")
    with pytest.raises(InvalidInput, match="no column 'z', only estimate, standard_error"):
        answer.table().column("z")


def test_groups_are_one_answer_and_a_note_says_of_which_group_it_is() -> None:
    groups = {
        "ios": estimated("tea", alike=0.2, notes=(Note.of(cautions.no_pairs, levels=["strict"]),)),
        "web": estimated("tea", "milk"),
    }
    left_out = Note.of(cautions.small_groups, least=20, groups=["android (3 reports)"])
    answer = by(groups, "platform", left_out)
    frame = answer.to_frame()
    assert frame.index.tolist() == [("ios", "tea"), ("web", "tea"), ("web", "milk")]
    assert np.isnan(frame["alike"]).tolist() == [False, True, True]
    assert answer.parts == {"ios": 100, "web": 100} and answer.reports == 200
    assert answer.warning == f"{left_out.words}; ios: reports of strict tell no pairs"
    assert [note.part for note in answer.notes] == ["", "ios"]


def test_shares_of_people_who_rated_are_a_table_of_ratings() -> None:
    answer = estimated("tea", share=0.5, share_low=0.4, share_high=0.6, statistic="rating")
    frame = answer.to_frame("shares")
    assert frame.loc["tea"].to_dict() == {"estimate": 0.5, "low": 0.4, "high": 0.6}
    assert frame.attrs["statistic"] == "share who rated"
    assert rated(replace(answer.table(), left_out=3)).left_out == 3
    assert len(figure(answer).axes) == 2


def test_texts_of_others_are_no_markup_in_a_notebook() -> None:
    answer = estimated(
        HOSTILE, title=f"Which {HOSTILE}?", notes=(Note.of(cautions.joined, groups=[HOSTILE]),)
    )
    answer = replace(answer, survey=HOSTILE)
    shown = answer._repr_html_()
    assert "<b onmouseover" not in shown
    assert "Which &lt;b onmouseover" in shown and "Warning:" in shown
    assert "100 reports, mle" in shown and "90% intervals" in shown


def test_a_printed_answer_has_its_question_table_and_warnings() -> None:
    answer = estimated(
        "tea", title="Which drink?", notes=(Note.of(cautions.no_pairs, levels=["strict"]),)
    )
    lines = str(answer).splitlines()
    assert lines[0] == "Which drink?"
    assert lines[3].split() == ["tea", "0.25", "0.05", "0.2", "0.4"]
    assert lines[4:] == [
        "s, drink: 100 reports, mle",
        "low and high: 90% intervals",
        "warning: reports of strict tell no pairs",
    ]


def test_many_groups_are_counted_as_what_they_are() -> None:
    groups = {f"c{number}": estimated("tea") for number in range(13)}
    assert by(groups, "country").counted == "s, drink: 13 groups by country, 1,300 reports"
    assert by(groups, "period").counted == "s, drink: 13 periods, 1,300 reports"


def test_a_trend_is_drawn_over_the_estimates_of_periods() -> None:
    days = {day: estimated("tea") for day in ("D1", "D2")}
    change = broken()
    answer = over_time(by(days, "period"), change)
    assert answer.figures["drawn"] == {"tea": [0.5, 0.5, "D2"]}
    assert len(figure(answer, change).axes) == 2


def test_an_answer_is_drawn_beside_other_plots() -> None:
    answer = estimated("tea", "water")
    assert len(answer.plot().axes) == 1
    whole = Figure()
    left, right = whole.subplots(1, 2)
    assert answer.plot(right) is whole
    assert not left.lines and [text.get_text() for text in right.get_yticklabels()] == [
        "tea",
        "water",
    ]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: [], "give one answer at least"),
        (lambda: [FIRST_TABLES["independent"][0]()], "a plot is of an answer with intervals"),
        (lambda: [estimated()], "nothing to draw"),
    ],
)
def test_what_has_no_picture_is_refused(made: object, reason: str) -> None:
    answers: list[Answer] = made()  # type: ignore[operator]
    with pytest.raises(InvalidInput, match=reason):
        figure(*answers)


@pytest.mark.parametrize("field", ["tables", "subjects", "figures", "notes", "columns", "index"])
def test_more_of_anything_than_an_answer_has_is_refused_before_it_is_read(field: str) -> None:
    message = wire.to_message(of_columns("pairs", {"drink": "tea"}, ["estimate"], "share"))
    holder = message.tables[0] if field in ("columns", "index") else message
    for _ in range(99):
        getattr(holder, field).add()
    with pytest.raises(InvalidInput, match=rf"{field}: \d+ are more than an answer has"):
        wire.from_message(message)


def of_group(estimate: float) -> Answer:
    more = (
        {}
        if not math.isnan(estimate)
        else dict.fromkeys(("standard_error", "low", "high"), estimate)
    )
    answer = estimated("tea", estimate=estimate, share=0.1, statistic="rating", **more)
    return replace(
        answer,
        subjects=(Subject("level"),),
        tables=tuple(
            replace(table, index=roles.index(("level", ["tea"]))) for table in answer.tables
        ),
    )


def test_groups_of_an_attribute_that_is_called_as_they_are_keep_their_labels() -> None:
    answer = by({"open": of_group(1.5), "strict": of_group(2.0)}, "level")
    index = answer.to_dict()["tables"]["rows"]["index"]
    assert index == {"level": ["open", "strict"], "value": ["tea", "tea"]}


def test_a_rating_that_is_not_known_in_any_of_many_periods_is_drawn_without_a_line() -> None:
    periods = [f"2026-07-{day:02}" for day in range(1, 9)]
    answer = by({period: of_group(math.nan) for period in periods}, "period")
    assert len(figure(answer).axes) == 1
