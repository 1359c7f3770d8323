"""Answers that are sets and ratings, on a device."""

import itertools
import math
from collections import UserList
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from branching import distribution
from hypothesis import given
from hypothesis import strategies as st

from hearsay import InvalidInput
from hearsay.plans.kinds import Ratings, SetOf
from hearsay.plans.plan import Plan, parse
from hearsay.testing import RecordingTransport
from hearsay_server.surveys import survey as surveys
from ldp import Coins, SetSelection
from ldp.core.exact import ONE, certainly_at_most
from ldp.testing import SeededCoins
from support import device

APPS = SetOf(("mail", "maps", "chess"), 2)
CLAMPED = SetOf(("mail", "maps", "chess"), 2, clamp=True)
STARS = Ratings(("food", "staff", "7"), 1, 5, 2)
TOML = """
name = "phones"
[levels]
strict = 2.0
[[attributes]]
name = "apps"
[attributes.set]
values = ["mail", "maps", "chess", "secret"]
at_most = 2
[[attributes]]
name = "stars"
[attributes.ratings]
keys = ["food", "staff"]
low = 1
high = 5
"""


@pytest.fixture(scope="module")
def frozen() -> bytes:
    return surveys.resolve(surveys.from_toml(TOML, "test"))


# --- the domains -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        ["maps", "mail"],
        ("mail", "maps", "mail"),
        {"maps", "mail"},
        frozenset({"maps", "mail"}),
        {"maps": 1, "mail": 2}.keys(),
        UserList(["maps", "mail"]),
        np.array(["maps", "mail"]),
        pd.Series(["mail", "maps"]),
    ],
)
def test_a_set_is_any_collection_in_any_order(answer: Any) -> None:
    assert APPS.encode(answer) == (0, 1)


def test_the_empty_set_is_an_answer() -> None:
    assert APPS.encode([]) == ()
    assert STARS.encode({}) == ()


NO_SETS = [
    "mail",
    b"mail",
    bytearray(b"m"),
    {"mail": True},
    None,
    1,
    math.nan,
    iter(["mail"]),
    (name for name in ["mail"]),
    ["mail", "other"],
    [None],
    [["mail"]],
    [True],
    [np.timedelta64(7)],
    ["mail", "maps", "chess"],
    np.array(1),
    np.array([0, 1]),
    [float("nan")],
]


@pytest.mark.parametrize("answer", NO_SETS, ids=lambda answer: type(answer).__name__)
def test_what_is_no_set_of_the_domain_is_refused(answer: Any) -> None:
    with pytest.raises((InvalidInput, TypeError)):  # a numpy array of no dimension has no length
        APPS.encode(answer)


def test_a_larger_set_counts_at_random_where_it_is_clamped() -> None:
    everything = CLAMPED.encode(["chess", "mail", "maps"])
    assert everything == (0, 1, 2)
    coins = SeededCoins(1)
    drawn = [CLAMPED.settled(everything, coins) for _ in range(3000)]
    for pair in itertools.combinations(range(3), 2):
        assert drawn.count(pair) == pytest.approx(1000, abs=110)  # 4 standard errors
    assert CLAMPED.settled((1,), coins) == (1,)


@pytest.mark.parametrize(
    ("rating", "share"),
    [(1, 0), (5, ONE), (3.0, ONE // 2), (np.int64(2), ONE // 4), (Decimal(4), 3 * ONE // 4),
     (np.float32(3), ONE // 2), (Fraction(3), ONE // 2)],
)  # fmt: skip
def test_a_rating_is_its_exact_share_of_the_scale(rating: Any, share: int) -> None:
    assert STARS.encode({"staff": rating}) == ((1, share),)


def test_ratings_come_in_the_order_of_the_keys() -> None:
    assert (
        STARS.encode({7: 1, "food": 5}) == STARS.encode({"food": 5, "7": 1}) == ((0, ONE), (2, 0))
    )


@pytest.mark.parametrize(
    "answer",
    [
        ["food"], "food", None, {"other": 3}, {"food": 0.999}, {"food": 5.001}, {"food": math.nan},
        {"food": math.inf}, {"food": True}, {"food": "3"}, {"food": None}, {"food": 1j},
        {"food": np.timedelta64(3)}, {"food": np.timedelta64("NaT")},
        {"food": 10**400}, {"food": 1, "staff": 2, "7": 3}, {7: 1, "7": 2}, {None: 3},
        {"food": np.array([3])}, {"food": Decimal("nan")}, {"food": np.str_("3")},
    ],
    ids=repr,
)  # fmt: skip
def test_what_are_no_ratings_of_the_domain_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidInput):
        STARS.encode(answer)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.floats()
        | st.text(max_size=5)
        | st.sampled_from(["mail", 7]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=5,
    )
)
def test_any_answer_becomes_items_or_is_refused_without_being_repeated(answer: Any) -> None:
    for domain in (APPS, CLAMPED, STARS):
        try:
            items = domain.settled(domain.encode(answer), Coins())  # type: ignore[arg-type]
        except InvalidInput:
            continue
        assert len(items) <= 2
        assert list(items) == sorted(set(items))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: SetOf(("a",)), "at least two"),
        (lambda: SetOf(("a", "a")), "'a' twice"),
        (lambda: SetOf(("a", "")), "empty"),
        (lambda: SetOf(("a", "b"), 3), r"at_most must lie in 1\.\.2"),
        (lambda: Ratings((), 1, 5), "at least one"),
        (lambda: Ratings(("a",), 5, 5), "low < high"),
        (lambda: Ratings(("a",), 1, math.inf), "low < high"),
        (lambda: Ratings(("a",), 1, 5, 2), r"at_most must lie in 1\.\.1"),
    ],
)
def test_a_domain_that_is_none_is_refused(make: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        make()


# --- privacy of the whole answer ---------------------------------------------------------------


def settled(domain: Ratings, answer: dict[str, float]) -> dict[tuple[int, ...], Fraction]:
    """Return the exact distribution of the items that a table of ratings becomes."""
    value = domain.encode(answer)
    return distribution(lambda coins: domain.settled(value, coins), bits=0)


@pytest.mark.parametrize(
    "mechanism", [SetSelection(4, 1.0, 1, 1, 1), SetSelection(4, 1.0, 1, 2, 1)], ids=str
)
def test_no_two_tables_of_ratings_are_told_apart_by_more_than_epsilon(
    mechanism: SetSelection,
) -> None:
    """Over all rounding of ratings and the draw of one of two: a mixture of the channel's rows."""
    domain = Ratings(("food", "staff"), 1, 5, 1, clamp=True)
    scale = (None, 1, 2.2, 5)
    rows = dict(zip(mechanism.sets(), mechanism.channel().rows, strict=True))
    reports = []
    for food, staff in itertools.product(scale, scale):
        answer = {k: v for k, v in (("food", food), ("staff", staff)) if v is not None}
        mixed = [Fraction(0)] * len(rows[()])
        for items, chance in settled(domain, answer).items():
            mixed = [x + chance * p for x, p in zip(mixed, rows[items], strict=True)]
        assert sum(mixed) == 1
        reports.append(mixed)
    worst = max(
        x / y for one in reports for other in reports for x, y in zip(one, other, strict=True)
    )
    assert certainly_at_most(worst, 1.0)
    assert math.log(worst) > 0.999


# --- a device ----------------------------------------------------------------------------------


def test_a_device_reports_sets_and_ratings(frozen: bytes) -> None:
    transport = RecordingTransport(frozen)
    with device(transport, "phones") as client:
        assert client.record(apps=[], stars={"food": 4}).taken == ("apps", "stars")
        person = client.person("other", level="strict")
        person.grant()
        assert person.record(apps={"mail", "maps"}).dropped == {}
        assert client.flush()
    assert transport.tally("apps", "strict").n == 2
    assert transport.tally("stars", "strict").n == 1


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("apps", ["mail", "maps", "secret"]),
        ("apps", ["secret", "unknown"]),
        ("apps", "secret"),
        ("stars", {"food": 5.5}),
        ("stars", {"secret": 3}),
    ],
)
def test_an_answer_outside_the_domain_is_replaced_and_not_repeated(
    frozen: bytes, name: str, answer: Any
) -> None:
    transport = RecordingTransport(frozen)
    with device(transport, "phones", strict=False) as client:
        done = client.record(**{name: answer})
        assert done.invalid == (name,)
        assert client.flush()
        assert transport.tally(name, "strict").n == 1  # a random answer is reported in its place
    with device(RecordingTransport(frozen), "phones", strict=True) as client:
        with pytest.raises(InvalidInput, match=f"^{name} must ") as refused:
            client.record(**{name: answer})
        told = str(refused.value)
        assert told.count("secret") <= str(parse(frozen).attributes[name].domain).count("secret")
        assert "5.5" not in told
        assert "unknown" not in told


def test_reports_have_one_size_and_take_as_many_words_for_every_set() -> None:
    mechanism = SetSelection(100, 1.0, 5)

    class Counting(SeededCoins):
        words_taken = 0

        def _bytes(self, count: int) -> bytes:
            self.words_taken += count // 8
            return super()._bytes(count)

    seen = set()
    for seed, items in enumerate([(), (99,), (0, 1, 2, 3, 4), (7, 50, 98)] * 25):
        coins = Counting(seed)
        code = mechanism.encode_one(mechanism.randomize(items, coins))
        seen.add((len(code), coins.words_taken))
    assert seen == {(5, 2 + 5)}


def test_a_memo_of_a_set_is_refused() -> None:
    text = TOML.replace('name = "phones"', 'name = "phones"\nperiod = "P1D"')
    text = text.replace('name = "apps"', 'name = "apps"\nmemo = 1')
    with pytest.raises(InvalidInput, match="memo is for categorical answers and strings only"):
        surveys.resolve(surveys.from_toml(text, "test"))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("at_most = 2", "at_most = 5", r"attributes\[0\] \(apps\): at_most must lie in 1\.\.4"),
        ("at_most = 2", "at_most = -1", r"attributes\[0\]"),
        ('"secret"]', '"mail"]', "'mail' twice"),
        ("high = 5", "high = 1", "low < high"),
        ('name = "apps"', 'name = "apps"\nmechanism = "krr"', "mechanism must be one of auto, set"),
        ('name = "stars"', 'name = "stars"\nmechanism = "set_bits"', "auto or set_selection"),
        ("at_most = 2", 'at_most = 2\nsensitive = ["mail"]', "unknown key 'sensitive'"),
    ],
)
def test_a_survey_that_cannot_be_is_refused(old: str, new: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        surveys.resolve(surveys.from_toml(TOML.replace(old, new, 1), "test"))


def test_the_largest_domain_is_registered_within_its_limits() -> None:
    def text(items: int, most: int) -> str:
        values = ", ".join(f'"v{i}"' for i in range(items))
        return (
            'name = "large"\n[levels]\na = 1.0\n[[attributes]]\nname = "apps"\n'
            f'mechanism = "set_selection"\n[attributes.set]\nvalues = [{values}]\n'
            f"at_most = {most}\n"
        )

    plan: Plan = parse(surveys.resolve(surveys.from_toml(text(20_000, 5), "test")))
    assert plan.levels["a"].mechanisms["apps"].code_bytes <= 2501
    with pytest.raises(InvalidInput, match="most <= 1024"):
        surveys.resolve(surveys.from_toml(text(2000, 1025), "test"))
