"""Joint tables from split rows, shares and means within groups, differences between groups."""

import numpy as np
import pytest
from every_mechanism import POLICIES
from numpy.typing import NDArray

from ldp import KRR, InvalidInput, OneBitMean, PiecewiseMechanism, SubsetSelection, UnaryEncoding
from ldp.core.estimation import Cohorts
from ldp.core.mechanism import Categorical
from ldp.core.repeated import Repeats
from ldp.core.tally import Tally
from ldp.estimating.joint import (
    Groups,
    JointTable,
    check_cells,
    differences_between,
    joint,
    means_within,
    of_cohorts,
    within,
)
from ldp.estimating.pairs import PairTally, count_pairs, second_moments
from ldp.testing import SeededCoins

Floats = NDArray[np.float64]

SHARES = np.array([[0.20, 0.10, 0.10, 0.05], [0.05, 0.10, 0.10, 0.10], [0.05, 0.05, 0.05, 0.05]])


def pair(first: Categorical, second: Categorical, truth: Floats, n: float) -> PairTally:
    """Return the expected pair tally of n records of a population, of mechanisms that count codes.

    It is rounded to whole records, so that the first of its records may be a few fewer or more.
    """
    one, other = first.matrix(), second.matrix()
    assert one is not None
    assert other is not None
    return of_table(np.rint(n * one.T @ truth @ other).astype(np.int64))


def drawn(
    first: Categorical, second: Categorical, truth: Floats, n: int, rng: np.random.Generator
) -> PairTally:
    """Return the pair tally of n records of a sample of the population."""
    one, other = first.matrix(), second.matrix()
    assert one is not None
    assert other is not None
    chances = one.T @ truth @ other
    return of_table(rng.multinomial(n, chances.ravel() / chances.sum()).reshape(chances.shape))


def of_table(codes: NDArray[np.int64]) -> PairTally:
    """Return the pair tally of a table of pairs of codes."""
    n = int(codes.sum())
    return PairTally(Tally(n, codes.sum(axis=1)), Tally(n, codes.sum(axis=0)), codes)


@pytest.mark.parametrize(
    ("each", "split", "together"),
    [(0.5, 1502.54, 51.91), (1.0, 73.15, 10.19), (2.0, 4.924, 1.581)],
)
def test_the_error_of_a_joint_table_is_that_of_the_formula(
    each: float, split: float, together: float
) -> None:
    mechanism, k, n = KRR(4, each), 4, 100_000_000
    uniform = np.full((k, k), 1 / k**2)
    found = joint([(mechanism, mechanism, pair(mechanism, mechanism, uniform, n))])
    trace = float((found.standard_error**2).sum()) * found.n
    assert trace == pytest.approx(split, rel=1e-3)
    e = np.exp(each)
    one = ((e + k - 1) / (e - 1)) ** 2
    formula = (2 * (k - 1) * one + (k - 1) ** 2 * one**2) / k**2
    assert trace == pytest.approx(formula, rel=1e-4)
    # One question about the pair, at the epsilon of the whole record: k-RR or subset selection.
    asked = [make(k * k, 2 * each) for make in (KRR, SubsetSelection)]
    assert min(m.variance(np.full(k * k, 1 / k**2), 1).sum() for m in asked) == pytest.approx(
        together, rel=2e-3
    )


@pytest.mark.parametrize(
    "mechanisms",
    [(KRR(3, 1.0), KRR(4, 2.0)), (UnaryEncoding(3, 1.0), KRR(4, 1.0))],
    ids=["krr", "unary"],
)
def test_the_covariance_is_that_of_the_products_enumerated(
    mechanisms: tuple[Categorical, Categorical],
) -> None:
    first, second = mechanisms
    one, other = second_moments(first), second_moments(second)
    exact = np.einsum("xy,xab,yvw->avbw", SHARES, one, other).reshape(12, 12)
    exact = exact - np.outer(SHARES, SHARES)
    coins, rng, n = SeededCoins(1), np.random.default_rng(2), 200_000
    values = rng.choice(12, n, p=SHARES.ravel())
    found = joint(
        [
            (
                first,
                second,
                count_pairs(
                    first,
                    first.randomize_many(values // 4, coins),
                    second,
                    second.randomize_many(values % 4, coins),
                ),
            )
        ]
    )
    assert n * found.covariance == pytest.approx(exact, abs=0.03 * np.abs(exact).max())
    assert (np.abs(found.value - SHARES) < 4.5 * found.standard_error).all()
    assert found.covariance.sum() == pytest.approx(0, abs=1e-9) or first.name == "unary"


def test_levels_are_mixed_or_weighed_by_their_covariances() -> None:
    rng = np.random.default_rng(5)
    precise, vague = (KRR(3, 3.0), KRR(4, 3.0)), (KRR(3, 0.5), KRR(4, 0.5))
    few, many = drawn(*precise, SHARES, 4000, rng), drawn(*vague, SHARES, 16_000, rng)
    cohorts = [(*precise, few), (*vague, many)]
    mixed, alike = joint(cohorts), joint(cohorts, alike=True)
    alone = joint([cohorts[0]])
    assert (mixed.method, alike.method, alone.method) == ("stratified", "gls", "debias")
    assert mixed.n == alike.n == 20_000
    expected = 0.2 * alone.value + 0.8 * joint([cohorts[1]]).value
    assert mixed.value == pytest.approx(expected)
    assert (alike.standard_error < alone.standard_error * 1.001).all()
    assert (mixed.standard_error > 5 * alike.standard_error).all()
    assert alike.value.sum() == pytest.approx(1)
    assert (np.abs(alike.value - SHARES) < 4.5 * alike.standard_error).all()


def test_alike_levels_are_weighed_as_generalised_least_squares_weighs_them() -> None:
    rng = np.random.default_rng(7)
    levels = [(KRR(2, 0.7), KRR(3, 1.5)), (KRR(2, 2.0), KRR(3, 0.4))]
    truth = np.array([[0.3, 0.1, 0.1], [0.1, 0.1, 0.3]])
    cohorts = [(*level, drawn(*level, truth, 50_000, rng)) for level in levels]
    found = joint(cohorts, alike=True)
    # On the first five cells, the sixth being what is left.
    each = [joint([one]) for one in cohorts]
    inverses = [np.linalg.inv(one.covariance[:5, :5]) for one in each]
    total = np.linalg.inv(sum(inverses))
    value = total @ sum(i @ one.value.ravel()[:5] for i, one in zip(inverses, each, strict=True))
    # The covariances are taken at one table, those of the check at each level's own.
    assert found.value.ravel()[:5] == pytest.approx(value, abs=0.05 * np.sqrt(total.max()))
    assert found.covariance[:5, :5] == pytest.approx(total, rel=0.05)


def test_repeats_widen_errors_by_their_factor_at_most() -> None:
    m = KRR(4, 2.0)
    cohort = (m, m, pair(m, m, np.full((4, 4), 1 / 16), 10_000))
    once = joint([cohort])
    fresh = joint([cohort], [Repeats(3.0)])
    memo = joint([cohort], [Repeats(3.0, codes=True)])
    assert memo.covariance == pytest.approx(3 * once.covariance, rel=1e-3)
    truth = (1 / 16 - 1 / 256) / 10_000
    assert fresh.covariance[0, 0] == pytest.approx(once.covariance[0, 0] + 2 * truth, rel=1e-3)


def test_the_likely_table_is_a_distribution_near_the_estimate() -> None:
    rng = np.random.default_rng(3)
    first, second = KRR(3, 0.7), KRR(4, 0.7)
    found = joint([(first, second, drawn(first, second, SHARES, 3000, rng))])
    assert found.value.min() < 0
    likely = found.likely
    assert likely.min() >= 0
    assert likely.sum() == pytest.approx(1)
    precise = joint([(KRR(3, 9.0), KRR(4, 9.0), pair(KRR(3, 9.0), KRR(4, 9.0), SHARES, 10**6))])
    assert precise.likely == pytest.approx(precise.value, abs=1e-6)


def test_shares_within_groups_are_quotients_with_the_error_of_the_delta_method() -> None:
    first, second = KRR(3, 1.0), KRR(4, 1.0)
    table = joint([(first, second, pair(first, second, SHARES, 20_000))])
    groups = within(table)
    assert groups.value == pytest.approx(SHARES / SHARES.sum(axis=1, keepdims=True), abs=1e-3)
    assert groups.value.sum(axis=1) == pytest.approx(np.ones(3))
    assert groups.share == pytest.approx(SHARES.sum(axis=1), abs=1e-3)
    assert groups.clear.all()

    def quotients(flat: Floats) -> Floats:
        cells = flat.reshape(3, 4)
        return (cells / cells.sum(axis=1, keepdims=True)).ravel()

    at, step = table.value.ravel(), 1e-6
    slopes = np.array(
        [(quotients(at + step * u) - quotients(at - step * u)) / (2 * step) for u in np.eye(12)]
    ).T
    expected = slopes @ table.covariance @ slopes.T
    assert groups.covariance == pytest.approx(expected, abs=1e-8)
    share = np.diag(
        np.kron(np.eye(3), np.ones(4)) @ table.covariance @ np.kron(np.eye(3), np.ones(4)).T
    )
    assert groups.share_error == pytest.approx(np.sqrt(share))
    columns = within(table.transposed())
    assert columns.value == pytest.approx((SHARES / SHARES.sum(axis=0)).T, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("each", "error"), [(0.5, 0.282), (1.0, 0.0661), (2.0, 0.0179)])
def test_intervals_of_differences_cover(each: float, error: float) -> None:
    # The published table is not known; with these shares the error is near its own.
    first, second, n, runs = KRR(3, each), KRR(4, each), 20_000, 400
    rng = np.random.default_rng(11)
    within_truth = SHARES / SHARES.sum(axis=1, keepdims=True)
    truth = within_truth[1] - within_truth[0]
    found, errors = [], []
    for _ in range(runs):
        table = joint([(first, second, drawn(first, second, SHARES, n, rng))])
        pairs = differences_between(within(table))
        assert pairs.pairs == [(0, 1), (0, 2), (1, 2)]
        found.append(pairs.value[0])
        errors.append(pairs.standard_error[0])
    clear = ~np.isnan(found).any(axis=1)
    away = np.array(found)[clear] - truth
    if clear.all():
        covered = np.abs(away) < 1.96 * np.array(errors)[clear]
        assert covered.mean() == pytest.approx(0.95, abs=0.015)
        assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(away.std(), rel=0.05)
        assert np.mean(errors) == pytest.approx(error, rel=0.35)


def test_intervals_of_shares_within_groups_are_fiellers() -> None:
    """Their ends m are where p_gv - m p_g is z of its standard errors from zero."""
    first, second = KRR(3, 2.0), KRR(4, 2.0)
    table = joint([(first, second, drawn(first, second, SHARES, 3000, np.random.default_rng(1)))])
    low, high = within(table).interval(0.95)
    inside = (low > 0) & (high < 1)
    assert inside.any()
    for g, v in np.argwhere(inside).tolist():
        for m in (low[g, v], high[g, v]):
            direction = np.zeros((3, 4))
            direction[g] = -m
            direction[g, v] += 1
            error = np.sqrt(direction.ravel() @ table.covariance @ direction.ravel())
            assert abs((direction * table.value).sum()) == pytest.approx(1.95996 * error, rel=1e-4)
    together = within(table).interval(0.95, simultaneous=True)
    assert (together[0] <= low).all()
    assert (together[1] >= high).all()


def test_intervals_of_means_within_groups_are_fiellers_on_any_scale() -> None:
    mechanism, group, coins = PiecewiseMechanism(2.0), KRR(2, 1.0), SeededCoins(4)
    rng = np.random.default_rng(1)
    codes = (
        mechanism.randomize_many(rng.choice([-0.4, 0.6], 4000), coins),
        group.randomize_many(rng.integers(0, 2, 4000), coins),
    )
    found = means_within([(mechanism, group, count_pairs(mechanism, codes[0], group, codes[1]))])
    low, high = found.interval()
    scaled = found.rescaled((0.0, 10.0)).interval()
    assert scaled[0] == pytest.approx(5 + 5 * low)
    assert scaled[1] == pytest.approx(5 + 5 * high)
    wald = 1.95996 * found.standard_error
    assert (high - low > 2 * wald).all()
    assert high - low == pytest.approx(2 * wald, rel=0.1)


def test_a_group_that_is_not_clear_has_no_difference_and_all_of_the_range() -> None:
    groups = Groups(
        np.array([[0.5], [0.7], [-3.0]]),
        np.diag([0.01, 0.01, 9.0]),
        np.array([0.5, 0.5, 0.001]),
        np.array([0.01, 0.01, 0.01]),
        1000,
    )
    assert groups.clear.tolist() == [True, True, False]
    low, high = groups.interval()
    assert (low[2, 0], high[2, 0]) == (0.0, 1.0)
    assert low[0, 0] == pytest.approx(0.5 - 1.96 * 0.1, abs=1e-4)
    found = differences_between(groups)
    assert np.isnan(found.value[1:]).all()
    assert found.p_value[1:, 0].tolist() == [1.0, 1.0]
    assert found.value[0, 0] == pytest.approx(0.2)
    assert found.standard_error[0, 0] == pytest.approx(np.sqrt(0.02))
    assert found.adjusted_p_value[0, 0] == pytest.approx(3 * found.p_value[0, 0])
    others = differences_between(groups, reference=1)
    assert others.pairs == [(1, 0), (1, 2)]
    assert others.value[0, 0] == pytest.approx(-0.2)
    with pytest.raises(InvalidInput, match="the reference is one of 3 groups, got 3"):
        differences_between(groups, reference=3)


@pytest.mark.parametrize("mechanism", [PiecewiseMechanism(1.0, 64), OneBitMean(1.0)], ids=str)
def test_means_within_groups_cover(mechanism: PiecewiseMechanism | OneBitMean) -> None:
    group = UnaryEncoding(2, 1.0)
    rng, coins, covered = np.random.default_rng(1), SeededCoins(4), []
    truth = np.array([-0.2, 0.4])
    for _ in range(60):
        groups = (rng.random(4000) < 0.4).astype(np.int64)
        numbers = np.clip(truth[groups] + rng.choice([-0.5, 0.5], 4000), -1, 1)
        codes = mechanism.randomize_many(numbers, coins), group.randomize_many(groups, coins)
        tally = count_pairs(mechanism, codes[0], group, codes[1])
        found = means_within([(mechanism, group, tally)])
        low, high = found.interval()
        covered.append((low[:, 0] < truth) & (truth < high[:, 0]))
        assert (np.abs(found.value[:, 0] - truth) < 4.5 * found.standard_error[:, 0]).all()
    assert np.mean(covered) > 0.88
    rescaled = found.rescaled((0.0, 10.0))
    assert rescaled.value == pytest.approx(5 + 5 * found.value)
    assert rescaled.standard_error == pytest.approx(5 * found.standard_error)


def test_what_cannot_be_asked_is_refused() -> None:
    m, number = KRR(3, 1.0), OneBitMean(1.0)
    cohort = (m, m, pair(m, m, np.full((3, 3), 1 / 9), 900))
    with pytest.raises(InvalidInput, match="there are no records that report both attributes"):
        joint([])
    with pytest.raises(InvalidInput, match="there are 1 cohorts, but 2 repeats"):
        joint([cohort], [Repeats(), Repeats()])
    mixed = (number, m, count_pairs(number, np.zeros(2, "u1"), m, np.zeros(2, "u1")))
    with pytest.raises(InvalidInput, match="a number has means within groups"):
        joint([mixed])
    with pytest.raises(InvalidInput, match="means within groups are of a number within values"):
        means_within([cohort])
    with pytest.raises(InvalidInput, match="1024 cells at most, got 33 x 32"):
        check_cells(33, 32)
    with pytest.raises(InvalidInput, match="confidence must lie strictly between 0 and 1"):
        joint([cohort]).interval(1.0)
    with pytest.raises(InvalidInput, match=r"a table of \(2, 2\) has not 9 cells"):
        of_cohorts(Cohorts([(KRR(9, 1.0), KRR(9, 1.0).tally(np.zeros(5, "u1")))]), (2, 2))
    with pytest.raises(InvalidInput, match=r"shape \(k1, k2\) and a covariance"):
        JointTable(np.zeros((2, 2)), np.zeros((3, 3)), 1)


@pytest.mark.parametrize("name", ["uRR", "uOUE", "one-sided", "designed subsets"])
def test_intervals_cover_where_some_values_may_be_revealed(name: str) -> None:
    first, second = POLICIES[name], KRR(2, 1.0)
    assert isinstance(first, Categorical)
    rng, coins, runs, n = np.random.default_rng(3), SeededCoins(5), 60, 3000
    shares = rng.dirichlet(np.full(first.k, 3.0))[:, None] * np.array([[0.6, 0.4]])
    covered = []
    for _ in range(runs):
        values = rng.choice(shares.size, n, p=shares.ravel())
        codes = (
            first.randomize_many(values // 2, coins),
            second.randomize_many(values % 2, coins),
        )
        tally = count_pairs(first, codes[0], second, codes[1])
        low, high = joint([(first, second, tally)]).interval()
        covered.append((low <= shares) & (shares <= high))
    assert np.mean(covered) > 0.935
    assert np.mean(covered, axis=0).min() > 0.8


def test_a_question_about_pairs_gives_the_same_kind_of_table() -> None:
    rng, asked = np.random.default_rng(2), [KRR(12, 2.0), KRR(12, 4.0)]
    cohorts = [
        (m, Tally(n, rng.multinomial(n, SHARES.ravel() @ m.matrix())))
        for m, n in zip(asked, (30_000, 10_000), strict=True)
    ]
    alone = of_cohorts(Cohorts(cohorts[1:]), (3, 4))
    mixed = of_cohorts(Cohorts(cohorts), (3, 4))
    alike = of_cohorts(Cohorts(cohorts), (3, 4), alike=True)
    assert (alone.method, mixed.method, alike.method) == ("debias", "stratified", "gls")
    for table in (alone, mixed, alike):
        assert table.value.sum() == pytest.approx(1)
        assert (np.abs(table.value - SHARES) < 4.5 * table.standard_error).all()
    assert (alike.standard_error < mixed.standard_error).all()
    assert alone.value.ravel() == pytest.approx(asked[1].debias(cohorts[1][1]), abs=1e-9)


def test_simultaneous_intervals_cover_all_at_once() -> None:
    first, second, rng = KRR(3, 2.0), KRR(4, 2.0), np.random.default_rng(8)
    truth = SHARES / SHARES.sum(axis=1, keepdims=True)
    apart = np.array([truth[1] - truth[0], truth[2] - truth[0], truth[2] - truth[1]])
    missed = np.zeros(3)
    for _ in range(150):
        table = joint([(first, second, drawn(first, second, SHARES, 20_000, rng))])
        groups = within(table)
        for place, (answer, true) in enumerate(
            ((table, SHARES), (groups, truth), (differences_between(groups), apart))
        ):
            low, high = answer.interval(simultaneous=True)
            missed[place] += not ((low <= true) & (true <= high)).all()
    assert (missed / 150 < 0.1).all()
