"""Weights of public groups that meet known margins, and what is refused."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

from ldp import InvalidInput
from ldp.estimating.raking import Margin, Weights, rake

PLACES = ("platform", "country")
GROUPS = [("ios", "de"), ("ios", "fr"), ("web", "de"), ("web", "fr")]
COUNTS = [400, 100, 300, 200]
PLATFORM = Margin(("platform",), [("ios",), ("web",)], np.array([0.3, 0.7]))
COUNTRY = Margin(("country",), [("fr",), ("de",)], np.array([0.6, 0.4]))


def raked(*margins: Margin, counts: Sequence[int] = COUNTS, least: int = 10) -> Weights:
    return rake(PLACES, GROUPS, counts, margins, least=least)


def test_one_margin_of_all_groups_gives_post_stratification() -> None:
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    found = raked(Margin(PLACES, GROUPS, shares))
    assert found.shares == pytest.approx(shares)
    assert found.each == pytest.approx(1000 * shares / COUNTS)
    naive = np.repeat(found.each, COUNTS)
    kish = naive.size * (naive**2).sum() / naive.sum() ** 2
    assert found.design_effect == pytest.approx(kish)
    assert naive.mean() == pytest.approx(1)
    assert found.n == 1000
    assert found.range == pytest.approx((0.25, 2.0))


def test_raked_weights_meet_all_margins_and_keep_the_odds_ratio() -> None:
    found = raked(PLATFORM, COUNTRY)
    table = found.shares.reshape(2, 2)
    assert table.sum(axis=1) == pytest.approx([0.3, 0.7], abs=1e-8)
    assert table.sum(axis=0) == pytest.approx([0.4, 0.6], abs=1e-8)
    odds = table[0, 0] * table[1, 1] / table[0, 1] / table[1, 0]
    assert odds == pytest.approx(400 * 200 / (100 * 300))  # what raking leaves as it was
    # Weights are products of one factor for each property (Deville and Särndal).
    assert found.each[0] * found.each[3] == pytest.approx(found.each[1] * found.each[2])


def test_a_share_of_nothing_leaves_respondents_out() -> None:
    none = Margin(("platform",), [("ios",), ("web",)], np.array([0.0, 1.0]))
    found = raked(none)
    assert found.each[:2].tolist() == [0, 0]
    assert found.n == 500
    assert found.design_effect == pytest.approx(1)


def test_small_rows_join_the_smallest_row_that_is_alike_in_all_but_the_last_property() -> None:
    groups = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1"), ("c", "2")]
    shares = np.full(6, 1 / 6)
    margin = Margin(("platform", "version"), groups, shares)
    found = rake(("platform", "version"), groups, [100, 3, 50, 4, 200, 60], [margin])
    # a/2 joins a/3; b/1 has no row of its platform, and joins the smallest of all.
    assert found.joined == ("platform and version a / 3 + a / 2 + b / 1 (57 people)",)
    together = found.shares[[1, 2, 3]]
    assert together.sum() == pytest.approx(0.5)
    assert together / together.sum() == pytest.approx(np.array([3, 50, 4]) / 57)
    assert found.shares[[0, 4, 5]] == pytest.approx([1 / 6] * 3)


def test_margins_with_common_properties_are_reconciled_within_their_rounding() -> None:
    both = Margin(PLACES, GROUPS, np.array([0.101, 0.2, 0.3, 0.399]))
    found = raked(PLATFORM, both)
    assert found.shares[:2].sum() == pytest.approx(0.3)
    assert found.shares[:2] == pytest.approx(np.array([0.101, 0.2]) * 0.3 / 0.301)


@pytest.mark.parametrize(
    ("margins", "message"),
    [
        ([Margin(("size",), [("s",)], np.ones(1))], "a margin is of 'size', but the properties"),
        ([Margin(("platform",), [("ios",)], np.ones(1))], "500 respondents have platform 'web'"),
        (
            [PLATFORM, Margin(PLACES, GROUPS, np.full(4, 0.25))],
            "contradict each other: the share of platform 'ios' is 0.3 in one and 0.5 in another",
        ),
        ([], "give one margin at least"),
        ([PLATFORM] * 65, "there may be 64 margins, got 65"),
    ],
)
def test_margins_that_do_not_fit_are_refused(margins: list[Margin], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        raked(*margins)


@pytest.mark.parametrize(
    ("rows", "shares", "message"),
    [
        ([("ios",), ("web",)], [0.5, 0.6], "must have shares that sum to 1, got 1.1"),
        ([("ios",), ("web",)], [-0.5, 1.5], "must have shares >= 0, got -0.5"),
        ([("ios",), ("ios",)], [0.5, 0.5], "has the row 'ios' twice"),
        ([("ios", "de")], [1.0], "has a row of 2 values"),
        ([("ios",)], [0.5, 0.5], "has 1 rows and 2 shares"),
    ],
)
def test_what_is_no_margin_is_refused(
    rows: list[tuple[str, ...]], shares: list[float], message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        Margin(("platform",), rows, np.array(shares))


def test_margins_that_need_groups_without_respondents_are_refused_by_name() -> None:
    # All of ios is in de, all of web in fr: the two margins would have to be the same.
    with pytest.raises(InvalidInput, match=r"no weights meet all margins: .* the share of"):
        raked(PLATFORM, COUNTRY, counts=[500, 0, 0, 500])


def test_a_value_that_no_respondent_has_is_joined_and_too_few_respondents_are_refused() -> None:
    found = raked(PLATFORM, counts=[500, 100, 0, 0])
    assert found.joined == ("platform ios + web (600 people)",)
    assert found.design_effect == pytest.approx(1)
    with pytest.raises(InvalidInput, match="weighting needs 10 at least"):
        raked(PLATFORM, counts=[2, 3, 1, 1])


def test_margins_that_differ_a_little_in_many_shares_contradict_each_other() -> None:
    values = [(str(value),) for value in range(200)]
    one = Margin(("platform",), values, np.full(200, 1 / 200))
    other = Margin(("platform",), values, np.repeat([0.0095, 0.0005], 100))
    with pytest.raises(InvalidInput, match=r"In all they differ for 45.00% of the population"):
        rake(("platform",), values, [50] * 200, [one, other])


@pytest.mark.parametrize(
    ("counts", "german"), [([5000, 15, 15, 5000], 0.499), ([20000, 60, 15, 8000], 0.5)]
)
def test_margins_of_properties_that_nearly_determine_each_other_are_met(
    counts: list[int], german: float
) -> None:
    found = raked(
        Margin(("platform",), [("ios",), ("web",)], np.array([0.5, 0.5])),
        Margin(("country",), [("de",), ("fr",)], np.array([german, 1 - german])),
        counts=counts,
    )
    assert found.rounds < 110
    table = found.shares.reshape(2, 2)
    assert table.sum(axis=1) == pytest.approx([0.5, 0.5], abs=1e-8)
    assert table.sum(axis=0) == pytest.approx([german, 1 - german], abs=1e-8)
    assert found.each[0] * found.each[3] == pytest.approx(found.each[1] * found.each[2])
