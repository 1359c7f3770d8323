"""The odds that a person is told are those of the mechanism's exact channel."""

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from hearsay.plans.kinds import Binned, Categorical, Numeric, Ratings, SetOf
from hearsay.plans.plan import Plan, parse
from hearsay_server.pages.person import facts
from hearsay_server.pages.person.chances import factor, of_many
from hearsay_server.pages.person.odds import odds
from hearsay_server.pages.person.sentences import Odds
from hearsay_server.surveys import catalogue, revealing
from hearsay_server.surveys.describe import describe
from hearsay_server.surveys.readings import reading
from hearsay_server.surveys.survey import from_toml, resolve
from ldp import Mechanism, PolicyUnary, SetBits, SetSelection, Waves
from ldp.core.channel import Channel
from ldp.core.policy import Policy
from ldp.mechanisms import PolicySubsets
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.planning.design import design
from ldp.testing import SeededCoins

SUBSETS = design(Policy.one_sided(40, range(20, 40), 2.0)).mechanism


@cache
def every(mechanism: Mechanism) -> Channel:
    return mechanism.channel()


def domain(k: int) -> Categorical:
    return Categorical(tuple(f"v{v}" for v in range(k)))


def planned(toml: str) -> Plan:
    return parse(resolve(from_toml(toml, "survey.toml")))


def told(found: Odds) -> list[Fraction]:
    """Return the chances in the lines, as the page shows them."""
    amounts = {"none": "0", "all": "1/1"}
    pairs = re.findall(r"(none|all|[\d,]+) of ([\d,]+)", " ".join(found.lines))
    return [
        Fraction(a == "all")
        if a in amounts
        else Fraction(int(a.replace(",", "")), int(b.replace(",", "")))
        for a, b in pairs
    ]


def chance(mechanism: Mechanism, value: int, says: Callable[[Any], bool]) -> Fraction:
    """Return how likely a value's code is one that says something, by the exact channel."""
    channel = mechanism.channel()
    return sum(
        (q for y, q in zip(channel.outputs, channel.rows[value], strict=True) if says(y)),
        Fraction(),
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("krr", lambda y, v: y == v),
        ("oue", lambda y, v: bool(y >> v & 1)),
        ("sue", lambda y, v: bool(y >> v & 1)),
        ("subset", lambda y, v: v in y),
    ],
)
def test_of_a_value_the_chances_are_those_of_the_channel(
    name: str, names: Callable[[Any, int], bool], epsilon: float
) -> None:
    mechanism = catalogue.categorical(name, 4, epsilon)
    own, other = told(odds(domain(4), mechanism))
    for value, exact in ((2, own), (1, other)):
        found = chance(mechanism, value, lambda y: names(y, 2))
        assert abs(exact - found) <= Fraction(1, 2 * exact.denominator)
    assert own > other


def test_a_yes_and_a_no_are_told_by_name() -> None:
    found = odds(Categorical(("no", "<b>yes")), catalogue.categorical("krr", 2, 1.0))
    assert found.lines == (
        "Of 100 people who say <bdi>&lt;b&gt;yes</bdi>, 73 send <bdi>&lt;b&gt;yes</bdi>.",
        "Of 100 who say <bdi>no</bdi>, 27 send <bdi>&lt;b&gt;yes</bdi> too.",
    )


@pytest.mark.parametrize("name", catalogue.CATEGORICAL)
def test_every_mechanism_of_categories_has_odds_and_a_reading(name: str) -> None:
    mechanism = catalogue.categorical(name, 5, 1.0)
    found = odds(domain(5), mechanism)
    assert found.sent and found.lines
    assert reading(domain(5), mechanism)["form"]


@pytest.mark.parametrize("name", catalogue.CHAINS)
def test_every_chain_has_odds_of_a_report(name: str) -> None:
    mechanism = catalogue.chain(name, 4, 0.5, 1.0)
    own, other = told(odds(domain(4), mechanism))[-2:]
    p, q = mechanism.support  # type: ignore[attr-defined]
    assert abs(own - p) < Fraction(1, 100) and abs(other - q) < Fraction(1, 100)


def test_a_value_that_may_be_revealed_is_said_to_be() -> None:
    for mechanism in (
        design(Policy.one_sided(4, [0], 1.0)).mechanism,
        PolicyUnary.utility_optimised(4, [0], 1.0),
    ):
        lines = odds(domain(4), mechanism).lines
        (ordinary,) = [line for line in lines if "reveals their answer" in line]
        (sensitive,) = [line for line in lines if "reveals their answer" not in line]
        assert "v0" in sensitive and "v0" not in ordinary and "v3" in ordinary


@pytest.mark.parametrize("hidden", [0, 1])
def test_of_two_answers_the_chance_of_a_proof_is_that_of_the_channel(hidden: int) -> None:
    mechanism = design(Policy.one_sided(2, [hidden], 1.5)).mechanism
    (line,) = odds(domain(2), mechanism).lines
    found = re.search(
        r"Of 100 people who say <bdi>v(\d)</bdi>, (\d+) send .* The other (\d+)", line
    )
    assert found
    proven, proofs, rest = map(int, found.groups())
    assert proven == 1 - hidden and proofs + rest == 100
    matrix = mechanism.matrix()
    assert matrix is not None
    assert 100 * matrix[proven, matrix[hidden] == 0].sum() == pytest.approx(proofs, abs=0.5)


def test_of_subsets_the_chances_of_each_class_are_those_of_the_channel() -> None:
    k, sensitive, mechanism = 40, range(20, 40), SUBSETS
    assert isinstance(mechanism, PolicySubsets)
    rows = np.array(every(mechanism).rows, dtype=float)
    named = rows >= rows.max(axis=0) * (1 - 1e-9)
    alone = (rows > 0).sum(axis=0) == 1
    also = rows @ named.T
    np.fill_diagonal(also, 0)
    for value, found in enumerate(revealing.chances(mechanism)):
        assert float(found.own) == pytest.approx((rows[value] * named[value]).sum())
        assert float(found.other) == pytest.approx(also[:, value].max())
        assert float(found.reveals) == pytest.approx((rows[value] * alone).sum())
        assert (value in sensitive) == (not found.reveals)
    said = odds(domain(k), mechanism).lines
    assert not any("times as likely" in line for line in said)
    (ordinary,) = [line for line in said if "reveals their answer" in line]
    share = revealing.chances(mechanism)[0].reveals
    assert f"{of_many(share)[0]} people whose answer it is send a code that nobody" in ordinary


@pytest.mark.parametrize(
    "mechanism",
    [
        PolicyUnary.utility_optimised(5, [3, 4], 2.0),
        SUBSETS,
    ],
)
def test_a_code_that_proves_the_answer_names_it_alone(mechanism: Mechanism) -> None:
    categories = domain(mechanism.k)  # type: ignore[attr-defined]
    channel = every(mechanism)
    told = []
    columns = list(zip(channel.outputs, *channel.rows, strict=True))
    for output, *column in columns if len(columns) < 100 else columns[::7]:
        possible = [label for label, q in zip(categories.labels, column, strict=True) if q]
        if not possible:  # two answers revealed at once
            continue
        code = (
            output.to_bytes(1, "little")
            if isinstance(mechanism, PolicyUnary)
            else bytes([output[0]]) + sum(1 << v for v in output[1]).to_bytes(5, "little")
        )
        words = describe(categories, mechanism, code).partition("  ")[2]
        assert (words == f"reveals: {possible[0]}") == (len(possible) == 1), words
        assert len(possible) == 1 or words.startswith("says: ")
        told.append(words)
    assert sum(words.startswith("reveals: ") for words in told) >= 3


def test_no_bound_is_told_where_answers_may_be_revealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearsay_server.pages.person.odds._CELLS", 0)
    table = design(Policy.one_sided(4, [0], 1.0)).mechanism
    assert odds(domain(4), table).lines == (
        "A report may prove that you answered <bdi>v1</bdi>, <bdi>v2</bdi> or <bdi>v3</bdi>.",
    )


@pytest.mark.parametrize("name", [*catalogue.NUMERIC])
def test_of_a_number_the_chances_are_those_of_the_channel(name: str) -> None:
    mechanism = catalogue.numeric(name, 1.0, 8 if name in ("piecewise", "hybrid", "laplace") else 0)
    assert isinstance(mechanism, MeanMechanism)
    found = odds(Numeric(0.0, 10.0, clamp=False), mechanism)
    line = re.search(
        r"Of ([\d,]+) people at 10, ([\d,]+) send .* at 0, ([\d,]+) do", found.lines[0]
    )
    assert line
    many, high, low = (int(each.replace(",", "")) for each in line.groups())
    matrix = mechanism.matrix()
    above = [score > 0 for score in mechanism.scores]
    for row, shown in ((-1, high), (0, low)):
        exact = sum(q for q, up in zip(matrix[row].tolist(), above, strict=True) if up)
        assert abs(exact - shown / many) <= 0.5 / many + 1e-12


@pytest.mark.parametrize("name", catalogue.NUMERIC)
def test_a_code_of_a_number_counts_as_its_score(name: str) -> None:
    mechanism = catalogue.numeric(name, 1.0)
    assert isinstance(mechanism, MeanMechanism)
    found: Any = reading(Numeric(-5.0, 15.0, clamp=False), mechanism)
    for code, score in enumerate(mechanism.scores):
        beyond = code - len(found["head"])
        counts = found["first"] + found["step"] * beyond if beyond >= 0 else found["head"][code]
        assert counts == pytest.approx(5 + 10 * float(score), abs=1e-6)


def test_of_sets_the_chances_are_those_of_the_channel() -> None:
    items = SetOf(("a", "b", "c"), at_most=2, clamp=False)
    selection, bits = SetSelection(3, 1.0, 2), SetBits(3, 1.0)
    own, other = told(odds(items, selection))
    p, q = selection.support
    assert abs(own - p) < Fraction(1, 100) and abs(other - q) < Fraction(1, 100)
    (true,) = told(odds(items, bits))
    assert float(true) == pytest.approx(math.e / (1 + math.e), abs=0.005)


def test_of_ranges_the_chances_are_those_of_the_channel() -> None:
    waves = Waves((8,), 1.0)
    found: Any = reading(Binned(0.0, 8.0, clamp=False, count=8), waves)

    def holds(code: int, value: int) -> bool:
        pattern, shift = divmod(code, 8)
        return (value - shift) % 8 in found["patterns"][pattern]

    own, other = told(odds(Binned(0.0, 8.0, clamp=False, count=8), waves))
    assert abs(own - chance(waves, 3, lambda y: holds(y, 3))) < Fraction(1, 100)
    mean = sum(chance(waves, v, lambda y: holds(y, 3)) for v in range(8) if v != 3) / 7
    assert abs(other - mean) < Fraction(1, 100)


def test_chances_are_told_of_as_many_people_as_tell_them_apart() -> None:
    assert of_many(Fraction(73, 100), Fraction(27, 100)) == ("73 of 100", "27 of 100")
    assert of_many(0.5001, 0.4999) == ("5,001 of 10,000", "4,999 of 10,000")
    assert of_many(Fraction(9999, 10_000)) == ("9,999 of 10,000",)
    assert of_many(0, 1) == ("none of 100", "all of 100")
    assert of_many(1e-17) == ("none of 100",)


def test_the_factor_of_odds_is_never_less_than_it_is() -> None:
    for epsilon in (0.01, 0.5, 1.0, math.log(3), 2.0, 5.0, 10.0):
        shown = float(factor(epsilon).replace(",", ""))
        assert math.exp(epsilon) * (1 - 1e-9) <= shown <= math.exp(epsilon) * 1.1


def test_of_rare_questions_it_is_told_of_how_many_reports_they_are_part() -> None:
    questions = "".join(
        f'[[attributes]]\nname = "a{n}"\nmechanism = "krr"\n'
        '[attributes.categorical]\nvalues = ["no", "yes"]\n'
        for n in range(250)
    )
    plan = planned(f'name = "many"\nbudget = "sample"\n[levels]\nl = 1.0\n{questions}')
    (level,) = facts.levels(plan)
    assert {question.chance for question in level.questions} == {"4 of 1,000"}


def test_of_protected_regions_the_codes_that_tell_of_another_number_are_those_of_the_channel() -> (
    None
):
    plan = planned(
        'name = "wages"\n[levels]\nl = 1.0\n[[attributes]]\nname = "wage"\n'
        "[attributes.numeric]\nlow = 0\nhigh = 2000\nsensitive = [{low = 800, high = 2000}]\n"
    )
    numbers, mechanism = plan.questions["wage"].domain, plan.levels["l"].mechanisms["wage"]
    assert isinstance(numbers, Numeric)
    rows = np.array(mechanism.channel().rows, dtype=float)
    step = 2000 / (len(rows) - 1)
    protected = rows[math.floor(800 / step) :].max(axis=0)
    tells = rows > math.e * (1 + 1e-9) * protected
    line = odds(numbers, mechanism).lines[-1]
    share = (rows[0] * tells[0]).sum()
    assert f"people at 0, {share * 100:.0f} send a code that tells" in line
    assert "their number is not in 800 to 2,000" in line and share > 0.4
    found: Any = reading(numbers, mechanism)
    for code in range(rows.shape[1]):
        said = describe(numbers, mechanism, mechanism.encode(np.array([code])))
        assert said.endswith("tells: not in 800..2000") == tells[:, code].any()
        assert (code in found["tells"]) == tells[:, code].any()
    assert facts.may_reveal(plan) == [("wage", (), "800 to 2,000")]


def test_of_ratings_it_is_told_that_they_are_rounded_and_cut() -> None:
    plan = planned(
        'name = "stars"\n[levels]\nl = 2.0\n[[attributes]]\nname = "stars"\n'
        '[attributes.ratings]\nkeys = ["food", "staff", "price"]\n'
        "low = 1\nhigh = 5\nat_most = 2\nclamp = true\n"
    )
    ratings, mechanism = plan.questions["stars"].domain, plan.levels["l"].mechanisms["stars"]
    assert isinstance(ratings, Ratings)
    first, own, other, last = odds(ratings, mechanism).lines
    assert own.startswith("Of people whose rating of <bdi>food</bdi> became high, ")
    assert isinstance(mechanism, SetSelection)
    p, q = of_many(*mechanism.support)
    assert f"{p} send" in own and f"without it, {q} send it" in other
    assert first.endswith("of 100 who rate 3 of 1 to 5, 50 become high.")
    assert last.startswith("Of more than 2 ratings 2 are kept, drawn at random")
    settled = [ratings.settled(ratings.encode({"food": 3}), SeededCoins(n)) for n in range(400)]
    assert abs(sum(kept == (0,) for kept in settled) - 200) < 60
