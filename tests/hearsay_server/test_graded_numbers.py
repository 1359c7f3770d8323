"""Numbers that are protected by their value, from the survey file to the estimate."""

import io
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hearsay import Analyst, PlanRefused
from hearsay.plans.kinds import Numeric
from hearsay.plans.plan import parse
from hearsay.v1 import survey_pb2
from hearsay_server.commands import explained
from hearsay_server.printing import Console
from hearsay_server.surveys import explain
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput, PolicyMeanTable
from ldp.core.exact import exp_bounds
from ldp.mechanisms.numbers.mean_table import place_on
from ldp.testing import SeededCoins
from support import Server, device, rows_of

SURVEY = """
name = "wages"
[levels]
strict = 1.0
open = 4.0
[[attributes]]
name = "wage"
[attributes.numeric]
low = 0
high = 2000
clamp = true
sensitive = [{ low = 801, high = 2000 }]
"""
LINE = SURVEY.replace(
    "sensitive = [{ low = 801, high = 2000 }]",
    "resolution = [{ upto = 800, within = 100 }, { upto = 2000, within = 400 }]\ncap = 2",
).replace("open = 4.0\n", "")


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        ("low = 801, high = 2000", "low = 801, high = 2001", r"must lie in 0\.\.2000"),
        ("low = 801", "from = 801", "unknown key 'from'"),
        ("low = 801, high = 2000 }", "low = 1, high = 9 }, { low = 5, high = 7 }", "not overlap"),
        (
            "low = 801, high = 2000 }",
            "low = 0, high = 9 }, { low = 10, high = 2000 }",
            "9..10 lies",
        ),
        (
            'name = "wage"',
            'name = "wage"\nmechanism = "hybrid"',
            "auto or mean_table where numbers",
        ),
        (
            "clamp = true",
            "clamp = true\nbins = 8",
            "numbers in bins are all protected alike",
        ),
        ('name = "wage"', 'name = "wage"\nmemo = 1', "memo is for categorical answers"),
    ],
)
def test_regions_are_refused_with_the_place(given: str, instead: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^test: .*wage.*{message}|^test: .*{message}"):
        text = SURVEY.replace(given, instead)
        explain.explain(surveys.from_toml(text, "test"), "test", 100)


def shown(text: str) -> str:
    console = Console(file=io.StringIO(), width=100)
    explained.show(explain.explain(surveys.from_toml(text, "test"), "test", 10_000), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_explain_shows_which_numbers_are_protected_and_which_may_be_told_apart() -> None:
    said = shown(SURVEY)
    assert "numbers in 800..2000 from every number by epsilon\n" in said
    assert "a report may reveal other numbers (0..801 is ordinary)\n" in said
    rows = [line.replace("│", "").split() for line in said.splitlines()]
    assert ["0", *["for", "certain"] * 4] in rows
    assert ["2000", "1", "1", "1", "1"] in rows


def test_explain_shows_the_distances_of_a_resolution() -> None:
    said = " ".join(shown(LINE).split())
    assert (
        "numbers from 0 to 800 that are 100 apart by 0.5 epsilon, and that are 200 or more apart "
        "by epsilon" in said
    )
    assert "│ 1400 │ 1 │ 1 │ 0.75 │ │ 0.75 │" in said


def test_a_budget_knows_what_protection_costs() -> None:
    def variance(text: str) -> float:
        (question,) = surveys.questions(surveys.from_toml(text, "test"))
        return question.variance(1.0)

    plain = variance(SURVEY.replace("sensitive = [{ low = 801, high = 2000 }]", ""))
    assert variance(SURVEY) < 0.6 * plain < 0.6 * variance(LINE)


def test_an_app_names_the_ranges_that_its_users_may_reveal(server: Server) -> None:
    server.create(SURVEY)
    wages = np.linspace(0, 2400, 13)
    for number, wage in enumerate(wages):
        options = {"level": "open", "epsilon": 4.0, "coins": SeededCoins(number)}
        with device(server.address, "wages", may_reveal={"wage": ["0..801"]}, **options) as client:
            assert client.record(wage=float(wage)).taken == ("wage",)
    with pytest.raises(PlanRefused, match=r"may reveal 0\.\.801; .*\{'wage': \['0\.\.801'\]\}"):
        device(server.address, "wages", may_reveal={"wage": ["0..800"]})
    with Analyst(server.address) as analyst:
        (row,) = rows_of(analyst.estimate("wages", "wage"))
    assert abs(row.estimate - np.minimum(wages, 2000).mean()) < 4 * row.standard_error
    assert 0 < row.standard_error < 300


# --- whatever is declared ------------------------------------------------------------------


@st.composite
def numerics(draw: st.DrawFn) -> survey_pb2.Numeric:
    """A number with a few regions, or a resolution in a few parts; at times with a step."""
    low = draw(st.sampled_from([0.0, -3.7, 17.0]))
    steps = draw(st.sampled_from([0, 5, 40]))
    width = float(steps or draw(st.sampled_from([1.0, 2000.0, 0.3])))
    wire = survey_pb2.Numeric(low=low, high=low + width, clamp=True, step=1.0 if steps else 0.0)
    ends = sorted(draw(st.lists(st.floats(0.02, 0.98), min_size=1, max_size=4, unique=True)))
    numbers = [low + width * end for end in ends]
    if draw(st.booleans()):
        for first, last in zip(numbers[::2], numbers[1::2] or [wire.high], strict=False):
            wire.sensitive.add(low=first, high=last)
        return wire
    for upto in (*numbers, wire.high):
        wire.resolution.add(upto=upto, within=width * draw(st.floats(0.05, 0.9)))
    wire.cap = draw(st.sampled_from([0.0, 1.0, 1.1]))
    return wire


def length(domain: Numeric, place: Fraction) -> Fraction:
    """Return how many times `within` a place in [0, 1] is from `low`."""
    number = Fraction(domain.low) + place * (Fraction(domain.high) - Fraction(domain.low))
    begin, found = Fraction(domain.low), Fraction(0)
    for upto, within in domain.resolution:
        found += max(Fraction(0), min(number, Fraction(upto)) - begin) / Fraction(within)
        begin = Fraction(upto)
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_two_numbers_keep_what_is_declared(data: st.DataObject) -> None:
    epsilon = data.draw(st.floats(0.2, 5))
    survey = survey_pb2.Survey(name="generated", levels={"only": epsilon})
    survey.attributes.add(name="number", numeric=data.draw(numerics()))
    try:
        plan = parse(surveys.resolve(survey))
    except InvalidInput as error:
        assert re.search("lies between two points|never|`within` apart|finest grid", str(error))
        return
    table, domain = plan.levels["only"].mechanisms["number"], plan.attributes["number"].domain
    assert isinstance(table, PolicyMeanTable)
    assert isinstance(domain, Numeric)
    assert 0.999 * table.promise.epsilon <= table.realised_epsilon <= epsilon
    edges = [end for region in domain.sensitive for end in region]
    edges += [upto for upto, _ in domain.resolution]
    beside = [math.nextafter(edge, end) for edge in edges for end in (-math.inf, math.inf)]
    share = st.floats(0, 1).map(lambda x: domain.low + x * (domain.high - domain.low))
    some = data.draw(st.lists(share, min_size=4, max_size=4))
    numbers = [domain.low, domain.high, *edges, *beside, *some]
    rows, places = [], []
    for number in numbers:
        point, rest = place_on(table.grid, domain.encode(number))
        up = Fraction(rest, 1 << 32)
        below, above = (table.channel().rows[min(p, table.grid)] for p in (point, point + 1))
        rows.append([(1 - up) * a + up * b for a, b in zip(below, above, strict=True)])
        places.append((point + up) / table.grid)
    for x, row, place in zip(numbers, rows, places, strict=True):
        for other, there in zip(rows, places, strict=True):
            apart = Fraction(epsilon)
            if domain.resolution:
                far = abs(length(domain, place) - length(domain, there))
                apart = min(apart, apart * far / Fraction(domain.cap or 1))
            elif not any(a <= x <= b for a, b in domain.sensitive):
                continue
            most = exp_bounds(apart)[1]
            assert all(a <= most * b for a, b in zip(row, other, strict=True))
