"""Linear regression from randomised records: unbiased, with errors that cover."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import (
    KRR,
    HybridMechanism,
    InvalidInput,
    LaplaceMechanism,
    OneBitMean,
    PiecewiseMechanism,
    SquareWave,
    UnaryEncoding,
)
from ldp.core.mechanism import Mechanism
from ldp.core.repeated import Repeats
from ldp.errors import NotReady
from ldp.estimating.logistic import logistic
from ldp.estimating.regression import (
    Fit,
    Indicator,
    Number,
    Product,
    Records,
    linear,
    square_scores,
)
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.testing import SeededCoins

BETA = np.array([0.1, 0.5, -0.3])
COLUMNS = [(), (Number(1),), (Indicator(2, 1),)]


def people(n: int, rng: np.random.Generator) -> list[NDArray[np.float64]]:
    """Return y, x and a group of n people, whose truth is BETA."""
    x = rng.uniform(-0.7, 0.7, n)
    group = (rng.random(n) < 0.4).astype(np.int64)
    return [0.1 + 0.5 * x - 0.3 * group + rng.uniform(-0.2, 0.2, n), x, group]


def asked(
    mechanisms: list[Mechanism], values: list[NDArray[np.float64]], coins: SeededCoins
) -> Records:
    """Return the randomised records of these answers."""
    each = zip(mechanisms, values, strict=True)
    return Records(mechanisms, [m.randomize_many(v, coins) for m, v in each])


@pytest.mark.parametrize(
    "mechanism",
    [
        PiecewiseMechanism(1.0, 32),
        PiecewiseMechanism.optimal(2.0, 64),
        SquareWave(1.0, 32),
        HybridMechanism.optimal(2.0),
        LaplaceMechanism(1.0, 16),
    ],
    ids=lambda m: m.name,
)
def test_squares_are_estimated_without_bias_at_every_point_of_the_grid(
    mechanism: MeanMechanism,
) -> None:
    grid = np.linspace(-1, 1, mechanism.steps + 1)
    assert mechanism.matrix() @ square_scores(mechanism) == pytest.approx(grid**2, abs=1e-8)


def test_squares_of_a_fine_grid_are_those_of_the_continuum() -> None:
    mechanism = PiecewiseMechanism(2.0)
    s = np.exp(1.0)
    scores = np.array([float(score) for score in mechanism.scores])
    expected = (scores**2 - (s + 3) / (3 * (s - 1) ** 2)) / (1 + 1 / (s - 1))
    assert square_scores(mechanism) == pytest.approx(expected, abs=0.02)


def test_one_bit_tells_nothing_of_a_square() -> None:
    with pytest.raises(InvalidInput, match="onebit reports tell nothing of a number's square"):
        square_scores(OneBitMean(1.0))


def test_without_noise_it_is_least_squares() -> None:
    rng = np.random.default_rng(1)
    values = people(500, rng)
    values[2] = rng.integers(0, 3, 500)
    mechanisms = [PiecewiseMechanism(30.0), PiecewiseMechanism(30.0), KRR(3, 30.0)]
    records = asked(mechanisms, values, SeededCoins(2))
    two, three = Indicator(2, 1), Indicator(2, 2)
    columns = [(), (Number(1),), (two,), (three,), (Number(1), two), (Number(1), three)]
    found = linear([records], Number(0), columns)
    y, x, group = values
    dummies = [(group == v).astype(float) for v in (1, 2)]
    design = np.stack([np.ones(500), x, *dummies, *(x * d for d in dummies)], axis=1)
    expected, *_ = np.linalg.lstsq(design, y, rcond=None)
    assert found.value == pytest.approx(expected, abs=5e-3)
    assert found.naive == pytest.approx(expected, abs=5e-3)
    residual = (y - design @ expected)[:, None] * design
    inverse = np.linalg.inv(design.T @ design)
    sandwich = inverse @ residual.T @ residual @ inverse
    assert found.standard_error == pytest.approx(np.sqrt(np.diag(sandwich)), rel=0.05)
    assert (found.method, found.n, found.is_doubtful) == ("corrected", 500, False)


def test_units_of_a_number_are_those_of_its_range() -> None:
    rng, coins = np.random.default_rng(3), SeededCoins(4)
    mechanisms = [PiecewiseMechanism(2.0), PiecewiseMechanism(2.0), KRR(2, 2.0)]
    records = asked(mechanisms, people(2000, rng), coins)
    found = linear([records], Number(0), COLUMNS)
    columns = [(), (Number(1, 0.0, 100.0),), (Indicator(2, 1),)]
    scaled = linear([records], Number(0, 0.0, 20.0), columns)
    assert scaled.value[1] == pytest.approx(found.value[1] * 10 / 50)
    assert scaled.standard_error[1] == pytest.approx(found.standard_error[1] * 10 / 50)
    assert scaled.value[2] == pytest.approx(found.value[2] * 10)
    center = 10 + 10 * (found.value[0] - found.value[1])
    assert scaled.value[0] == pytest.approx(center)


@pytest.mark.slow
@pytest.mark.parametrize(
    "group", [KRR(2, 2.0), UnaryEncoding(2, 2.0)], ids=lambda mechanism: mechanism.name
)
def test_intervals_cover_the_truth(group: Mechanism) -> None:
    rng, coins, runs = np.random.default_rng(5), SeededCoins(6), 300
    mechanisms = [PiecewiseMechanism(2.0), PiecewiseMechanism(2.0), group]
    fits = [
        linear([asked(mechanisms, people(20_000, rng), coins)], Number(0), COLUMNS)
        for _ in range(runs)
    ]
    _check_covers(fits)


def _check_covers(fits: list[Fit]) -> None:
    values = np.array([fit.value for fit in fits])
    errors = np.array([fit.standard_error for fit in fits])
    deviation = values.std(axis=0)
    assert (np.abs(values.mean(axis=0) - BETA) < 4 * deviation / len(fits) ** 0.5).all()
    assert np.median(errors, axis=0) == pytest.approx(deviation, rel=0.12)
    covered = np.abs(values - BETA) < 1.96 * errors
    assert covered.mean() == pytest.approx(0.95, abs=0.02)
    naive = np.array([fit.naive for fit in fits]).mean(axis=0)
    assert np.abs(naive[1]) < 0.3 * BETA[1]  # what it would be without correction


def test_levels_count_alike_or_by_their_precision() -> None:
    rng, coins = np.random.default_rng(7), SeededCoins(8)
    levels = [[PiecewiseMechanism(e), PiecewiseMechanism(e), KRR(2, e)] for e in (6.0, 1.5)]
    records = [asked(level, people(20_000, rng), coins) for level in levels]
    alone = linear([records[0]], Number(0), COLUMNS)
    mixed = linear(records, Number(0), COLUMNS)
    alike = linear(records, Number(0), COLUMNS, alike=True)
    assert (mixed.method, alike.method) == ("corrected, stratified", "corrected, pooled")
    assert (alike.standard_error < 1.02 * alone.standard_error).all()
    assert (mixed.standard_error > 2 * alike.standard_error).all()
    for fit in (alone, mixed, alike):
        assert (np.abs(fit.value - BETA) < 4 * fit.standard_error).all()


def test_a_level_of_one_record_has_no_weight_of_its_own() -> None:
    rng, coins = np.random.default_rng(7), SeededCoins(8)
    levels = [[PiecewiseMechanism(e), PiecewiseMechanism(e), KRR(2, e)] for e in (6.0, 1.5)]
    records = [asked(levels[0], people(5000, rng), coins), asked(levels[1], people(1, rng), coins)]
    alone, both = (
        linear(records[:1], Number(0), COLUMNS),
        linear(records, Number(0), COLUMNS, alike=True),
    )
    assert both.value == pytest.approx(alone.value, abs=0.02)
    assert both.standard_error == pytest.approx(alone.standard_error, rel=0.02)


def test_repeats_multiply_the_covariance() -> None:
    rng, coins = np.random.default_rng(9), SeededCoins(10)
    once = asked(
        [PiecewiseMechanism(2.0), PiecewiseMechanism(2.0), KRR(2, 2.0)], people(2000, rng), coins
    )
    again = Records(once.mechanisms, once.codes, Repeats(3.0))
    one, other = (linear([each], Number(0), COLUMNS) for each in (once, again))
    assert other.covariance == pytest.approx(3 * one.covariance)
    low, high = one.interval()
    assert high - low == pytest.approx(2 * 1.95996 * one.standard_error, rel=1e-4)
    z = np.abs(one.value / one.standard_error)
    assert (one.p_value < 0.05).tolist() == (z > 1.95996).tolist()


def test_too_few_records_are_told_of() -> None:
    rng, coins = np.random.default_rng(11), SeededCoins(12)
    mechanisms = [PiecewiseMechanism(0.5), PiecewiseMechanism(0.5), KRR(2, 0.5)]
    records = asked(mechanisms, people(300, rng), coins)
    try:
        is_told = linear([records], Number(0), COLUMNS).is_doubtful
    except NotReady as error:
        is_told = "too few to tell the columns" in str(error)
    assert is_told
    with pytest.raises(NotReady, match="0 records are too few for a model of 3 columns"):
        linear([asked(mechanisms, people(0, rng), coins)], Number(0), COLUMNS)
    same = [(), (Indicator(2, 0),), (Indicator(2, 1),)]
    with pytest.raises(NotReady, match="some columns say the same"):
        linear([asked(mechanisms, people(5000, rng), coins)], Number(0), same)


def test_models_that_cannot_be_are_refused() -> None:
    rng, coins = np.random.default_rng(1), SeededCoins(1)
    mechanisms = [PiecewiseMechanism(2.0), OneBitMean(2.0), KRR(2, 2.0)]
    records = [asked(mechanisms, people(100, rng), coins)]
    with pytest.raises(InvalidInput, match="what is explained cannot explain itself"):
        linear(records, Number(0), [(), (Number(0),)])
    with pytest.raises(InvalidInput, match="one variable of an attribute, got two"):
        linear(records, Number(0), [(Indicator(2, 0), Indicator(2, 1))])
    with pytest.raises(InvalidInput, match="each column once"):
        linear(records, Number(0), [(), ()])
    with pytest.raises(InvalidInput, match=r"1\.\.64 columns, got 0"):
        linear(records, Number(0), [])
    with pytest.raises(InvalidInput, match="onebit reports tell nothing of a number's square"):
        linear(records, Number(0), [(), (Number(1),)])
    assert linear(records, Number(1), [(), (Indicator(2, 1),)]).value.size == 2
    with pytest.raises(InvalidInput, match="krr has no value 2"):
        linear(records, Number(0), [(), (Indicator(2, 2),)])
    with pytest.raises(InvalidInput, match="krr reports no number"):
        linear(records, Number(0), [(), (Number(2),)])
    with pytest.raises(InvalidInput, match="3 attributes need as many arrays of codes"):
        Records(mechanisms, records[0].codes[:2])


def _of_unlike_levels(rng: np.random.Generator, factor: float = 1.0) -> list[Records]:
    """Return records of y and x of 2000 people, of whom half have y = 1 nine times more often, and
    answer at another level."""
    levels = [KRR(2, 8.0), KRR(2, 7.0)]
    at, x = rng.integers(0, 2, (2, 2000))
    y = (rng.random(2000) < np.where(at, 0.1, 0.9)).astype(int)
    codes = [
        [m.randomize_many(v[at == i], SeededCoins(int(rng.integers(1 << 30)))) for v in (y, x)]
        for i, m in enumerate(levels)
    ]
    return [Records([m, m], own, Repeats(factor)) for m, own in zip(levels, codes, strict=True)]


@pytest.mark.parametrize(
    ("fit", "truth"), [(linear, 0.5), (logistic, 0.0)], ids=["linear", "logit"]
)
def test_intervals_cover_where_levels_people_differ(fit: Callable[..., Fit], truth: float) -> None:
    rng, runs, covered = np.random.default_rng(1), 200, 0
    for _ in range(runs):
        found = fit(_of_unlike_levels(rng), Indicator(0, 1), [(), (Indicator(1, 1),)])
        low, high = found.interval()
        covered += low[0] <= truth <= high[0]
    assert covered / runs == pytest.approx(0.95, abs=0.035)


@pytest.mark.parametrize("fit", [linear, logistic])
def test_unlike_levels_count_as_one_cohort_of_all_records(fit: Callable[..., Fit]) -> None:
    """With next to no noise the covariance is that of all records in one cohort."""
    levels = _of_unlike_levels(np.random.default_rng(2))
    exact = KRR(2, 20.0), KRR(2, 20.0)
    apart = [Records(exact, own.codes) for own in levels]
    codes = [np.concatenate(each) for each in zip(*(own.codes for own in levels), strict=True)]
    model = Indicator(0, 1), [(), (Indicator(1, 1),)]
    one, two = fit([Records(exact, codes)], *model), fit(apart, *model)
    assert two.value == pytest.approx(one.value)
    assert two.covariance == pytest.approx(one.covariance)
    thrice = fit([Records(exact, own.codes, Repeats(3.0)) for own in apart], *model)
    assert thrice.covariance == pytest.approx(3 * one.covariance)


@pytest.mark.parametrize("columns", [[()], [(), (Indicator(1, 1),)]], ids=["mean", "slope"])
def test_records_that_say_the_same_of_the_response_tell_no_error(columns: list[Product]) -> None:
    m = KRR(2, 2.0)
    records = Records([m, m], [np.zeros(40, "u1"), np.tile(np.array([0, 1], "u1"), 20)])
    with pytest.raises(NotReady, match="40 randomised records say the same of what is explained"):
        linear([records], Indicator(0, 1), columns)
    told = linear([Records([m, m], records.codes[::-1])], Indicator(0, 1), [()])
    assert told.standard_error[0] > 0


def test_an_error_of_zero_makes_nothing_certain() -> None:
    found = Fit(np.array([2.0, 3.0]), np.diag([0.0, 1.0]), 10, "corrected", np.zeros(2))
    assert found.z.tolist() == [0.0, 3.0]
    assert found.p_value[0] == 1.0
