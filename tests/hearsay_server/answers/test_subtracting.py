"""An analyst who asks about many public groups and subtracts the answers from each other."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest
from collected import register
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import submit

import hearsay.plans.plan
from hearsay import Analyst, NotReady
from hearsay.plans.plan import Plan
from hearsay.plans.properties import group_of
from hearsay.v1 import collector_pb2
from hearsay_server.answers import few
from hearsay_server.answers.queries import NoReports
from hearsay_server.surveys import survey as surveys
from ldp.core.mechanism import Categorical
from ldp.testing import SeededCoins

TODAY = datetime.now(UTC)
DAYS = [(TODAY - timedelta(days=back)).strftime("%Y-%m-%d") for back in (1, 0)]
TOML = """
name = "subtracted"
period = "P1D"
panels = 4
[levels]
strict = 1.0
open = 3.0
[[attributes]]
name = "mood"
[attributes.categorical]
values = ["bad", "so-so", "good"]
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["no", "yes"]
[[properties]]
name = "platform"
values = ["ios", "android", "web"]
[[properties]]
name = "version"
values = ["1", "2"]
"""
VALUES = {
    "platform": ("ios", "android", "web", ""),
    "version": ("1", "2", ""),
    "panel": (1, 2, 3, 4),
}
SENT = [
    (DAYS[0], "open", "ios", "1", 1, 40),
    (DAYS[0], "open", "ios", "2", 2, 30),
    (DAYS[0], "open", "android", "1", 3, 30),
    (DAYS[0], "open", "web", "1", 2, 5),
    (DAYS[0], "strict", "ios", "1", 1, 25),
    (DAYS[0], "strict", "android", "2", 3, 24),
    (DAYS[0], "strict", "", "", 4, 30),
    (DAYS[1], "open", "ios", "2", 1, 60),
    (DAYS[1], "open", "android", "1", 2, 19),
    (DAYS[1], "open", "web", "1", 3, 21),
    (DAYS[1], "open", "web", "2", 4, 1),
]
"""Day, level, platform, version, panel and rows."""

Cell = tuple[str, ...]
Question = Mapping[str, Sequence[Any]]


def batch(plan: Plan, seed: int, sent: tuple[Any, ...]) -> collector_pb2.Batch:
    day, level, platform, version, panel, rows = sent
    message = collector_pb2.Batch(
        id=seed.to_bytes(16, "big"),
        survey=plan.survey,
        revision=plan.revision,
        period=day,
        rows=rows,
        panel=panel,
        properties=[platform, version],
    )
    for name, values in (("mood", 3), ("smokes", 2)):
        mechanism = plan.mechanism(level, name, "")
        assert isinstance(mechanism, Categorical)
        truth = np.random.default_rng(seed).integers(0, values, rows)
        codes = mechanism.encode(mechanism.randomize_many(truth, SeededCoins(seed)))
        message.columns.add(attribute=name, level=level, codes=codes)
    return message


@pytest.fixture(scope="module")
def analyst(address: str) -> Iterator[Analyst]:
    _, plan = register(address, TOML)
    results = submit(address, *(batch(plan, n + 1, sent) for n, sent in enumerate(SENT)))
    assert {result.status for result in results} == {collector_pb2.Result.STORED}, results
    with Analyst(address) as found:
        yield found


def subsets(values: Sequence[Any]) -> list[tuple[Any, ...]]:
    sizes = range(1, len(values) + 1)
    return list(chain.from_iterable(combinations(values, size) for size in sizes))


def questions(*names: str) -> list[Question]:
    """Return all questions that select by these, or by some of them."""
    each = [[None, *subsets(VALUES[name])] for name in names]
    found = (
        {name: values for name, values in zip(names, chosen, strict=True) if values}
        for chosen in product(*each)
    )
    return list(found)


def selection(question: Question) -> dict[str, Any]:
    where = {name: list(values) for name, values in question.items() if name != "panel"}
    panels = {"panels": list(question["panel"])} if "panel" in question else {}
    return {**({"where": where} if where else {}), **panels}


def takes(question: Question, sent: tuple[Any, ...]) -> bool:
    of = dict(zip(("platform", "version", "panel"), sent[2:5], strict=True))
    return all(of[name] in values for name, values in question.items())


def told_apart(answered: Sequence[Question], cells: Sequence[tuple[Any, ...]]) -> list[int]:
    """Return how many reports all sums and differences of answers can tell apart: those of cells
    that the same questions are about."""
    found: defaultdict[tuple[bool, ...], int] = defaultdict(int)
    for sent in cells:
        found[tuple(takes(question, sent) for question in answered)] += sent[-1]
    return [n for n in found.values() if n]


PLACES = [{"levels": [level], "periods": [day]} for day, level in product(DAYS, ("open", "strict"))]


@pytest.mark.parametrize(
    "place", [*PLACES, {"first_period": DAYS[0]}, {"levels": ["open"]}], ids=str
)
@pytest.mark.parametrize("name", ["platform", "version"])
def test_no_answers_by_one_property_subtract_to_few_reports(
    analyst: Analyst, name: str, place: Any
) -> None:
    def asks(question: Question) -> bool:
        try:
            analyst.estimate("subtracted", "mood", **place, **selection(question))
        except NotReady:
            return False
        return True

    answered = [question for question in questions(name) if asks(question)]
    assert {} in answered or not any(_in(place, sent) for sent in SENT)
    for day, level in product(DAYS, ("open", "strict")):
        cells = [sent for sent in SENT if sent[:2] == (day, level) and _in(place, sent)]
        assert all(n >= few.LEAST for n in told_apart(answered, cells))


def _in(place: Mapping[str, Any], sent: tuple[Any, ...]) -> bool:
    return sent[0] in place.get("periods", DAYS) and sent[1] in place.get("levels", [sent[1]])


def test_all_but_one_small_group_is_not_answered_about(analyst: Analyst) -> None:
    first = {"levels": ["open"], "periods": DAYS[:1]}
    others: Any = {"where": {"platform": ["ios", "android"]}, **first}
    together: Any = {"where": {"platform": ["android", "web"]}, **first}
    asked: list[Callable[[Any], Any]] = [
        lambda of: analyst.estimate("subtracted", "mood", **of),
        lambda of: analyst.by_property("subtracted", "mood", "version", **of).to_frame(),
        lambda of: analyst.crosstab("subtracted", "mood", "smokes", **of).to_frame(),
        lambda of: analyst.ols("subtracted", "smokes ~ mood", success="yes", **of).to_frame(),
        lambda of: analyst.suspicions("subtracted", "mood", **of).to_frame(),
    ]
    for ask in asked:
        with pytest.raises(NotReady, match=r"android and web .35 reports. together|of web, 1"):
            ask(others)
    assert analyst.estimate("subtracted", "mood", **together).reports == 35
    assert (
        analyst.crosstab("subtracted", "mood", "smokes", **together).to_frame().attrs["reports"]
        == 35
    )
    with pytest.warns(UserWarning, match=r"android .30 reports., web .5 reports."):
        by = analyst.by_property("subtracted", "mood", "platform", **first).to_frame()  # type: ignore[arg-type]
    assert by.attrs["reports"] == {"ios": 70}


PLAN = hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(TOML, "x.toml")))
COUNTS = st.sampled_from([0, 0, 1, 5, 19, 20, 25, 60])
COMBINED = list(product(("ios",), VALUES["version"], VALUES["panel"]))


@settings(max_examples=40)
@given(counts=st.lists(COUNTS, min_size=len(COMBINED), max_size=len(COMBINED)))
def test_no_answers_by_the_same_properties_subtract_to_few_reports(counts: list[int]) -> None:
    cells = [("", "", *cell, n) for cell, n in zip(COMBINED, counts, strict=True)]
    by_cell = {(panel, group_of([p, v])): n for _, _, p, v, panel, n in cells}

    def asks(question: Question) -> bool:
        taken = {(sent[4], group_of(sent[2:4])) for sent in cells if takes(question, sent)}
        try:
            few.check(few.tables(PLAN, tuple(question), [("here", by_cell)], taken.__contains__))
        except NoReports:
            return False
        return True

    by_panel, by_version, by_both = (
        [{}, *filter(asks, questions(*names)[1:])]
        for names in (["panel"], ["version"], ["version", "panel"])
    )
    # Where combinations of both are told apart, so are they by one of them.
    parts = [sum(sent[-1] for sent in cells if takes(each, sent)) for each in by_both]
    proper = any(
        len(each) > 1 and 0 < n < sum(counts) for each, n in zip(by_both, parts, strict=True)
    )
    together = by_both if proper else [{}]
    for answered in (by_panel, by_version, together):
        assert all(n >= few.LEAST or n == sum(counts) for n in told_apart(answered, cells))
