"""Composition against exact sums and exact enumeration."""

import itertools
import math
from fractions import Fraction

import mpmath
import pytest

from ldp import InvalidInput
from ldp.core.exact import exp_bounds
from ldp.planning.composition import Guarantee, optimal, parallel, repeated, sequential


def test_reports_about_one_record_add_up() -> None:
    assert sequential([Guarantee(0.5, 0.25), Guarantee(1.0), Guarantee(0.25, 0.125)]) == Guarantee(
        1.75, 0.375
    )


def test_a_sum_is_never_below_the_exact_one() -> None:
    parts = [0.1, 0.2, 0.3, 1e-17, 0.7]
    total = sequential([Guarantee(epsilon) for epsilon in parts]).epsilon
    exact = sum(Fraction(epsilon) for epsilon in parts)
    assert Fraction(total) >= exact > Fraction(math.nextafter(total, 0))


def test_no_report_costs_nothing() -> None:
    assert sequential([]) == Guarantee(0.0, 0.0)


def test_repetition_is_sequential_composition() -> None:
    once = Guarantee(0.1, 1e-7)
    assert repeated(once, 10) == sequential([once] * 10)


def test_deltas_stop_at_one() -> None:
    assert repeated(Guarantee(1.0, 0.4), 3).delta == 1.0


def test_disjoint_records_pay_the_worst_of_their_guarantees() -> None:
    assert parallel([Guarantee(0.5, 1e-6), Guarantee(1.0)]) == Guarantee(1.0, 1e-6)


def exact_delta(epsilon: float, times: int, total: float) -> float:
    """The hockey-stick of `times` randomized responses at `total`, over all their answers."""
    truth = Fraction(exp_bounds(Fraction(epsilon))[1])
    p, q, e = truth / (1 + truth), 1 / (1 + truth), exp_bounds(Fraction(total))[0]
    terms = []
    for answers in itertools.product((0, 1), repeat=times):
        ones = sum(answers)
        excess = p**ones * q ** (times - ones) - e * q**ones * p ** (times - ones)
        terms.append(max(excess, Fraction(0)))
    return float(sum(terms))


@pytest.mark.parametrize(("epsilon", "times"), [(0.5, 6), (1.0, 8), (0.1, 9)])
def test_the_optimal_bound_is_that_of_randomized_responses(epsilon: float, times: int) -> None:
    for i in range(1, times // 2 + 1):
        delta = exact_delta(epsilon, times, (times - 2 * i) * epsilon)
        result = optimal(epsilon, times, delta * (1 + 2e-6))
        assert result.epsilon == pytest.approx((times - 2 * i) * epsilon)
        assert delta <= result.delta <= delta * (1 + 2e-6)


def test_long_compositions_lose_nothing_in_logarithms() -> None:
    epsilon, times = 0.01, 20_000
    found = optimal(epsilon, times, 1e-6)
    i = round((times - found.epsilon / epsilon) / 2)
    with mpmath.workdps(40):
        grown, term, exact = mpmath.exp(epsilon), (1 + mpmath.exp(-epsilon)) ** -times, 0
        for j in range(i):
            exact += term * (1 - grown ** (2 * (j - i)))
            term *= mpmath.mpf(times - j) / (j + 1) / grown
    assert exact <= found.delta <= float(exact) * (1 + 2e-6)
    assert found.delta <= 1e-6


def test_the_optimal_bound_takes_pure_composition_where_delta_allows_no_less() -> None:
    assert optimal(1.0, 3, 1e-9) == Guarantee(3.0)


def test_many_small_reports_compose_far_below_their_sum() -> None:
    assert optimal(0.01, 10_000, 1e-6).epsilon < 5.4  # the sum is 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Guarantee(-1.0), "epsilon must be finite and >= 0, got -1.0"),
        (lambda: Guarantee(float("nan")), "epsilon must be finite and >= 0, got nan"),
        (lambda: Guarantee(1.0, 1.5), r"delta must lie in \[0, 1\], got 1.5"),
        (lambda: parallel([]), "parallel composition needs at least one guarantee"),
        (lambda: repeated(Guarantee(1.0), -1), "times must be at least 0, got -1"),
        (lambda: optimal(1.0, 0, 1e-6), "times must lie in 1..10..6, got 0"),
    ],
)
def test_nonsense_is_refused(call: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()  # type: ignore[operator]
