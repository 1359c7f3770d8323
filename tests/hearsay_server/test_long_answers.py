"""Answers of many rows: in several messages, cut to some rows, and limited at a terminal."""

import csv
import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from lying import lying
from serving import connected, serving, submit

from hearsay import Analyst
from hearsay.asking.analyst import Options
from hearsay.sending.transport import Unreachable
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import questions
from ldp import InvalidInput

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


def messages(address: str, request: analyst_pb2.EstimateRequest) -> list[bytes]:
    """Return the messages of an answer as they came."""
    with connected(address) as channel:
        ask = channel.unary_stream(
            "/hearsay.v1.Analyst/Estimate", analyst_pb2.EstimateRequest.SerializeToString
        )
        return list(ask(request, timeout=60))


def test_a_long_answer_comes_in_messages_that_merge_into_it(address: str, analyst: Analyst) -> None:
    request = analyst_pb2.EstimateRequest(survey="visits", attribute="page")
    parts = messages(address, request)
    assert max(map(len, parts)) < 1.1 * (1 << 20)
    more = [analyst_pb2.EstimateResponse.FromString(part).more for part in parts]
    assert more == [*[True] * (len(parts) - 1), False]
    assert len(parts) == 3
    whole = analyst_pb2.EstimateResponse.FromString(b"".join(parts))
    whole.more = False
    answer = analyst.query("visits", "page")
    assert answer == whole
    assert [row.label for row in answer.rows] == PAGES
    assert (len(answer.cohorts), answer.rows_left_out) == (2, 0)


def test_a_short_answer_is_one_message(address: str) -> None:
    request = analyst_pb2.EstimateRequest(survey="visits", attribute="colour")
    (only,) = messages(address, request)
    assert not analyst_pb2.EstimateResponse.FromString(only).more


def test_many_cohorts_come_in_messages_too(
    address: str, analyst: Analyst, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = analyst.query("visits", "colour")
    monkeypatch.setattr(questions, "_MESSAGE", 100)
    parts = list(questions._messages(answer))
    assert len(parts) == 6  # of the rest, three rows and two cohorts
    whole = analyst_pb2.EstimateResponse.FromString(b"".join(parts))
    whole.more = False
    assert whole == answer


ASKED: dict[str, Callable[[Analyst, Options], list[analyst_pb2.EstimateResponse]]] = {
    "query": lambda analyst, options: [analyst.query("visits", "page", **options)],
    "query_by": lambda analyst, options: list(
        analyst.query_by("visits", "page", "LEVEL", **options)
    ),
    "watch_query": lambda analyst, options: [
        next(analyst.watch_query("visits", "page", **options))
    ],
}


@pytest.mark.parametrize("way", ASKED)
def test_the_top_rows_are_those_of_the_whole_answer(analyst: Analyst, way: str) -> None:
    options: Options = {"simultaneous": True, "consistency": "norm-sub", "forged": 10}
    for whole, cut in zip(
        ASKED[way](analyst, options), ASKED[way](analyst, {**options, "top": 7}), strict=True
    ):
        assert len(whole.rows) == K
        largest = sorted(whole.rows, key=lambda row: -row.estimate)[:7]
        assert list(cut.rows) == largest
        assert (cut.group, cut.reports, cut.rows_left_out) == (whole.group, whole.reports, K - 7)


@pytest.mark.parametrize("way", ASKED)
def test_the_rows_of_some_values_are_those_of_the_whole_answer(analyst: Analyst, way: str) -> None:
    chosen = [PAGES[3000], PAGES[0], PAGES[3000]]
    for whole, cut in zip(
        ASKED[way](analyst, {"simultaneous": True}),
        ASKED[way](analyst, {"simultaneous": True, "values": chosen}),
        strict=True,
    ):
        assert list(cut.rows) == [whole.rows[3000], whole.rows[0]]
        assert cut.rows_left_out == K - 2


def test_more_rows_than_there_are_leave_none_out(analyst: Analyst) -> None:
    table = analyst.estimate("visits", "colour", top=10).to_frame()
    assert sorted(table.index) == sorted(SHORT)
    assert table["estimate"].is_monotonic_decreasing
    assert table.attrs["rows_left_out"] == 0
    (mean,) = analyst.query("visits", "age", top=1).rows
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
        analyst.query("visits", attribute, **options)
    assert message in str(refused.value)


def test_an_answer_that_ends_in_the_middle_is_no_answer(address: str) -> None:
    with (
        lying(address) as liar,
        Analyst(liar.address) as analyst,
        liar.saying("Estimate", lambda answers: answers[:-1]),
        pytest.raises(Unreachable, match="ended in the middle of an answer"),
    ):
        analyst.query("visits", "page")


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
