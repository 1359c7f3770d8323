"""Logistic regression from randomised records: unbiased, with errors that cover."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from ldp import KRR, InvalidInput, PiecewiseMechanism, UnaryEncoding
from ldp.core.mechanism import Mechanism
from ldp.errors import NotReady
from ldp.estimating.forward import forward
from ldp.estimating.logistic import logistic
from ldp.estimating.regression import Indicator, Number, Records
from ldp.testing import SeededCoins

BETA = np.array([-1.0, 0.5, 1.0, -0.7])
COLUMNS = [(), (Indicator(1, 1),), (Indicator(1, 2),), (Indicator(2, 1),)]


def people(n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return y, an age group and a sex of n people, whose truth is BETA."""
    age, sex = rng.integers(0, 3, n), rng.integers(0, 2, n)
    odds = BETA[0] + BETA[1] * (age == 1) + BETA[2] * (age == 2) + BETA[3] * sex
    return [(rng.random(n) < expit(odds)).astype(np.int64), age, sex]


def asked(make: type[Mechanism], epsilon: float, n: int, seed: int) -> Records:
    """Return the randomised records of n people."""
    mechanisms = [make(k, epsilon) for k in (2, 3, 2)]  # type: ignore[call-arg]
    coins = SeededCoins(seed)
    values = people(n, np.random.default_rng(seed))
    each = zip(mechanisms, values, strict=True)
    return Records(mechanisms, [m.randomize_many(v, coins) for m, v in each])


def test_without_noise_it_is_the_maximum_likelihood_of_the_answers() -> None:
    records = asked(KRR, 30.0, 2000, 1)
    found = logistic([records], Indicator(0, 1), COLUMNS)
    y, age, sex = people(2000, np.random.default_rng(1))
    design = np.stack([np.ones(2000), age == 1, age == 2, sex], axis=1).astype(float)
    expected = np.zeros(4)
    for _ in range(30):
        chance = expit(design @ expected)
        inverse = np.linalg.inv((design.T * (chance * (1 - chance))) @ design)
        expected = expected + inverse @ design.T @ (y - chance)
    score = (y - chance)[:, None] * design
    robust = np.sqrt(np.diag(inverse @ score.T @ score @ inverse))
    assert found.value == pytest.approx(expected, abs=1e-6)
    assert found.naive == pytest.approx(expected, abs=1e-6)
    assert found.standard_error == pytest.approx(robust, rel=1e-3)


@pytest.mark.parametrize(
    ("make", "runs"),
    [(KRR, 200), pytest.param(UnaryEncoding, 100, marks=pytest.mark.slow)],
    ids=["krr", "unary"],
)
def test_intervals_cover_the_truth(make: type[Mechanism], runs: int) -> None:
    fits = [
        logistic([asked(make, 2.0, 20_000, seed)], Indicator(0, 1), COLUMNS) for seed in range(runs)
    ]
    values = np.array([fit.value for fit in fits])
    errors = np.array([fit.standard_error for fit in fits])
    noise = 1.2533 * values.std(axis=0) / runs**0.5
    assert (np.abs(np.median(values, axis=0) - BETA) < 4 * noise).all()
    assert errors.mean(axis=0) == pytest.approx(values.std(axis=0), rel=0.2)
    covered = np.abs(values - BETA) < 1.96 * errors
    assert covered.mean() == pytest.approx(0.95, abs=0.02 if make is KRR else 0.04)
    if make is KRR:
        naive = np.mean([fit.naive for fit in fits], axis=0)
        assert (np.abs(naive) < 0.75 * np.abs(BETA)).all()  # what it would be without correction


def test_levels_count_alike_or_by_their_precision() -> None:
    records = [asked(KRR, 5.0, 10_000, 1), asked(KRR, 1.5, 10_000, 2)]
    mixed = logistic(records, Indicator(0, 1), COLUMNS)
    alike = logistic(records, Indicator(0, 1), COLUMNS, alike=True)
    assert (mixed.method, alike.method) == ("corrected, stratified", "corrected, pooled")
    assert (alike.standard_error < 0.75 * mixed.standard_error).all()
    for fit in (mixed, alike):
        assert (np.abs(fit.value - BETA) < 4 * fit.standard_error).all()


def test_interactions_are_products_of_indicators() -> None:
    records = asked(KRR, 4.0, 50_000, 3)
    both = [(Indicator(1, 1), Indicator(2, 1)), (Indicator(1, 2), Indicator(2, 1))]
    found = logistic([records], Indicator(0, 1), [*COLUMNS, *both])
    assert (np.abs(found.value[4:]) < 4 * found.standard_error[4:]).all()
    only = logistic([records], Indicator(0, 1), [()])
    share = np.mean(people(50_000, np.random.default_rng(3))[0])
    assert expit(only.value[0]) == pytest.approx(share, abs=0.01)


def test_models_that_cannot_be_are_refused() -> None:
    records = asked(KRR, 2.0, 100, 1)
    number = Records(
        [*records.mechanisms[:2], PiecewiseMechanism(2.0)],
        [*records.codes[:2], np.zeros(100, "u2")],
    )
    with pytest.raises(InvalidInput, match="on categories: collect the number in bins"):
        logistic([number], Indicator(0, 1), [(), (Number(2),)])
    with pytest.raises(InvalidInput, match="what is explained cannot explain itself"):
        logistic([records], Indicator(0, 1), [(Indicator(0, 0),)])
    large = KRR(101, 1.0)
    many = Records([records.mechanisms[0], large, large], [np.zeros(100, "u1")] * 3)
    with pytest.raises(InvalidInput, match="5000 combinations of values at most, got 101 x 101"):
        logistic([many], Indicator(0, 1), [(), (Indicator(1, 1),), (Indicator(2, 1),)])
    with pytest.raises(NotReady, match="no solution in 60 randomised records"):
        logistic([asked(KRR, 0.3, 60, 5)], Indicator(0, 1), COLUMNS)


# --- by maximum likelihood ---------------------------------------------------------------------


def test_without_noise_forward_is_the_maximum_likelihood_of_the_answers() -> None:
    records = asked(KRR, 30.0, 2000, 1)
    corrected = logistic([records], Indicator(0, 1), COLUMNS)
    found = forward([records], Indicator(0, 1), COLUMNS)
    assert found.value == pytest.approx(corrected.value, abs=1e-5)
    assert found.standard_error == pytest.approx(corrected.standard_error, rel=0.05)
    other = forward([records], Indicator(0, 0), COLUMNS)
    assert other.value == pytest.approx(-found.value, abs=1e-5)


def test_forward_is_as_precise_as_the_corrected_score_and_covers() -> None:
    runs = 60
    records = [asked(KRR, 2.0, 20_000, seed) for seed in range(runs)]
    fits = [forward([each], Indicator(0, 1), COLUMNS) for each in records]
    values = np.array([fit.value for fit in fits])
    errors = np.array([fit.standard_error for fit in fits])
    corrected = np.array([logistic([own], Indicator(0, 1), COLUMNS).value for own in records])
    assert values.std(axis=0) == pytest.approx(corrected.std(axis=0), rel=0.06)
    assert errors.mean(axis=0) == pytest.approx(values.std(axis=0), rel=0.3)
    covered = np.abs(values - BETA) < 1.96 * errors
    assert covered.mean() == pytest.approx(0.95, abs=0.04)


def test_forward_takes_levels_together() -> None:
    records = [asked(KRR, 5.0, 10_000, 1), asked(KRR, 1.5, 10_000, 2)]
    found = forward(records, Indicator(0, 1), COLUMNS)
    alone = forward(records[:1], Indicator(0, 1), COLUMNS)
    assert found.method == "forward, pooled"
    assert (found.standard_error < alone.standard_error).all()
    assert (np.abs(found.value - BETA) < 4 * found.standard_error).all()


def test_a_likelihood_needs_codes_that_are_counted() -> None:
    with pytest.raises(InvalidInput, match="unary reports cannot be had of their counts"):
        forward([asked(UnaryEncoding, 2.0, 100, 1)], Indicator(0, 1), COLUMNS)
    records = asked(KRR, 2.0, 100, 1)
    with pytest.raises(InvalidInput, match="explains one of two values, got 3"):
        forward([records], Indicator(1, 1), [(), (Indicator(0, 1),)])
    with pytest.raises(NotReady, match="no maximum in 30"):
        forward([asked(KRR, 0.2, 30, 5)], Indicator(0, 1), COLUMNS)


def test_forward_refuses_a_likelihood_that_grows_on_to_infinity() -> None:
    """Where y = x, its slope has no maximum, and noise sends that of the other column along."""
    m, columns = KRR(2, 2.0), [(), (Indicator(0, 1),), (Indicator(2, 1),)]
    coins, rng, p, refused = SeededCoins(1), np.random.default_rng(1), [], 0
    for _ in range(40):
        x, other = rng.integers(0, 2, (2, 400))
        records = Records([m] * 3, [m.randomize_many(v, coins) for v in (x, x, other)])
        try:
            p.append(forward([records], Indicator(1, 1), columns).p_value[2])
        except NotReady:
            refused += 1
    assert refused > 20
    assert min(p) > 0.001


def test_forward_refuses_columns_that_say_the_same() -> None:
    columns = [(), (Indicator(2, 0),), (Indicator(2, 1),)]
    with pytest.raises(NotReady, match="some columns of this model say the same"):
        forward([asked(KRR, 2.0, 500, 1)], Indicator(0, 1), columns)
