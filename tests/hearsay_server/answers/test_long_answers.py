"""Answers of many rows: in several messages, cut to some rows, and limited at a terminal."""

import csv
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from serving import serving, submit

from hearsay import Analyst
from hearsay.asking import Answer
from hearsay.asking.analyst import Options
from ldp import InvalidInput
from support import rows_of

K = 4_000
PAGES = [f"https://www.example.org/articles/2026/{'long/' * 90}page-{i:06}" for i in range(K)]
SHORT = ["red", "green, dark", "blue"]
TOML = f"""
name = "visits"
period = "P1D"
[levels]
strict = 2.0
open = 4.0
[[attributes]]
name = "page"
[attributes.categorical]
values = {PAGES}
[[attributes]]
name = "colour"
[attributes.categorical]
values = {SHORT}
[[attributes]]
name = "age"
[attributes.numeric]
low = 0
high = 100
"""
ROWS = 3000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("visits")) as address:
        _, plan = register(address, TOML)
        source = np.random.default_rng(1)
        for seed, level in enumerate(("strict", "open")):
            answers = {
                "page": source.choice(60, ROWS) ** 2,
                "colour": source.choice(3, ROWS, p=[0.2, 0.5, 0.3]),
                "age": source.uniform(-1, 1, ROWS),
            }
            submit(address, batch(plan, level, DAYS[seed], answers, seed))
        yield address


@pytest.fixture
def analyst(address: str) -> Iterator[Analyst]:
    with Analyst(address) as analyst:
        yield analyst


def test_a_long_answer_is_one_message(analyst: Analyst) -> None:
    answer = analyst.estimate("visits", "page")
    assert answer.table().index[0].labels == PAGES
    assert (len(answer.cohorts), answer.table().left_out) == (2, 0)


def test_an_answer_of_too_many_numbers_is_refused_before_it_is_computed(
    analyst: Analyst, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay_server.serving.analyst._NUMBERS", 8 * 2 * K - 1)
    with pytest.raises(InvalidInput, match=f"2 groups of {K:,} rows would have more"):
        analyst.by_level("visits", "page")
    assert len(analyst.by_level("visits", "page", top=7).table()) == 2 * 7


def test_more_sums_than_a_question_has_are_refused_before_they_are_made(analyst: Analyst) -> None:
    assert len(analyst.sums("visits", "colour", [["red"]] * 1_024).table()) == 1_024
    with pytest.raises(InvalidInput, match="at most 1024 sums, got 1025"):
        analyst.sums("visits", "colour", [["red"]] * 1_025)


def test_rows_that_an_answer_has_count_and_no_others(
    analyst: Analyst, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay_server.serving.analyst._NUMBERS", 100)
    whole = analyst.by_level("visits", "colour").table()
    assert len(whole) == 2 * 3
    assert len(analyst.by_level("visits", "colour", top=1_000).table()) == 2 * 3
    assert len(analyst.by_level("visits", "colour", values=["red"] * 1_000).table()) == 2
    options: Options = {"consistency": "norm-sub", "forged": 10}
    more = analyst.by_level("visits", "colour", **options).table()
    numbers = len(more) * (len(more.index) + len(more.columns))
    monkeypatch.setattr("hearsay_server.serving.analyst._NUMBERS", numbers - 1)
    with pytest.raises(InvalidInput, match="2 groups of 3 rows would have more"):
        analyst.by_level("visits", "colour", **options)


ASKED: dict[str, Callable[[Analyst, Options], Answer]] = {
    "estimate": lambda analyst, options: analyst.estimate("visits", "page", **options),
    "by_level": lambda analyst, options: analyst.by_level("visits", "page", **options),
    "watch": lambda analyst, options: next(analyst.watch("visits", "page", **options)),
}


def groups(answer: Answer) -> list[list[Any]]:
    """The rows of each group of an answer, or of the whole."""
    found: dict[str, list[Any]] = {}
    for row in rows_of(answer):
        found.setdefault(row.label if answer.parts else "", []).append(row)
    return list(found.values())


@pytest.mark.filterwarnings("ignore::UserWarning")  # that the levels were not tested
@pytest.mark.parametrize("way", ASKED)
def test_the_top_rows_are_those_of_the_whole_answer(analyst: Analyst, way: str) -> None:
    options: Options = {"simultaneous": True, "consistency": "norm-sub", "forged": 10}
    whole, cut = (ASKED[way](analyst, each) for each in (options, {**options, "top": 7}))
    assert (cut.parts, cut.reports) == (whole.parts, whole.reports)
    for every, some in zip(groups(whole), groups(cut), strict=True):
        assert len(every) == K
        assert some == sorted(every, key=lambda row: -row.estimate)[:7]
    assert cut.table().left_out == (K - 7) * len(groups(whole))


@pytest.mark.parametrize("way", ASKED)
def test_the_rows_of_some_values_are_those_of_the_whole_answer(analyst: Analyst, way: str) -> None:
    chosen = [PAGES[3000], PAGES[0], PAGES[3000]]
    whole = ASKED[way](analyst, {"simultaneous": True})
    cut = ASKED[way](analyst, {"simultaneous": True, "values": chosen})
    for every, some in zip(groups(whole), groups(cut), strict=True):
        assert some == [every[3000], every[0]]
    assert cut.table().left_out == (K - 2) * len(groups(whole))


def test_more_rows_than_there_are_leave_none_out(analyst: Analyst) -> None:
    table = analyst.estimate("visits", "colour", top=10).to_frame()
    assert sorted(table.index) == sorted(SHORT)
    assert table["estimate"].is_monotonic_decreasing
    assert table.attrs["rows_left_out"] == 0
    (mean,) = rows_of(analyst.estimate("visits", "age", top=1))
    assert mean.label == "mean"


@pytest.mark.parametrize(
    ("attribute", "options", "message"),
    [
        ("colour", {"values": ["red", "pink"]}, "'colour' has no value 'pink'; its values are red"),
        ("age", {"values": ["mean"]}, "'age' is a number: it has no values to choose from"),
        ("colour", {"values": ["red"], "top": 1}, "the top rows or for the rows of some values"),
        ("colour", {"top": 0}, "top must be >= 1, got 0"),
        ("colour", {"values": "red"}, "values must be a list of values, got 'red'"),
    ],
)
def test_rows_that_cannot_be_chosen_are_refused(
    analyst: Analyst, attribute: str, options: Options, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        analyst.estimate("visits", attribute, **options)
    assert message in str(refused.value)


def test_a_terminal_shows_the_largest_rows_of_a_long_answer_and_says_so(address: str) -> None:
    target = ("--target", address)
    shown = hearsay("query", "visits", "page", *target, COLUMNS="200")
    assert shown.stdout.count("https://") == 40
    assert f"{K - 40:,} more rows are not shown: --csv has all" in shown.stdout
    some = hearsay("query", "visits", "page", "--top", 50, *target, COLUMNS="200").stdout
    assert some.count("https://") == 50
    assert f"{K - 50:,} more rows" in some
    assert "more rows" not in hearsay("query", "visits", "colour", *target).stdout


def test_programs_get_all_rows_unless_they_ask_for_some(address: str) -> None:
    target = ("--target", address)
    table = csv.DictReader(hearsay("query", "visits", "page", "--csv", *target).stdout.split())
    assert [line["value"] for line in table] == PAGES
    one = hearsay("query", "visits", "colour", "--values", '"green, dark",red', "--json", *target)
    document = json.loads(one.stdout)
    rows = document["tables"]["rows"]
    assert rows["index"]["colour"] == ["green, dark", "red"]
    assert rows["left_out"] == 1
