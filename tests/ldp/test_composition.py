"""Composition against exact sums and exact enumeration."""

import itertools
import math
import random
from fractions import Fraction

import mpmath
import pytest
from exact_powers import exact_power

from ldp import InvalidInput
from ldp.core.channel import Channel
from ldp.core.exact import ONE, exp_bounds
from ldp.core.losses import bounded, losses_of, unbounded
from ldp.core.mechanism import Mechanism
from ldp.core.policy import Policy
from ldp.mechanisms import (
    KRR,
    ChannelTable,
    LaplaceMechanism,
    OneBitMean,
    SubsetSelection,
    UnaryEncoding,
)
from ldp.planning.composition import (
    Guarantee,
    of_channels,
    optimal,
    parallel,
    repeated,
    sequential,
)
from ldp.planning.design import design


def test_reports_about_one_record_add_up() -> None:
    assert sequential([Guarantee(0.5, 0.25), Guarantee(1.0), Guarantee(0.25, 0.125)]) == Guarantee(
        1.75, 0.375
    )


@pytest.mark.parametrize("times", range(1, 12))
def test_a_sum_is_never_below_the_exact_one(times: int) -> None:
    parts = [0.1, 0.2, 0.3, 1e-17, 0.7] * times
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
    ("mechanism", "epsilon"),
    [
        (KRR(10, 1.0), 102.2),
        (KRR(100, 1.0), 24.8),
        (KRR(1024, 1.0), 7.87),
        (SubsetSelection(100, 1.0), 144.6),
        (OneBitMean(1.0), 244.6),
        (KRR(10, 0.5), 33.0),
        (KRR(100, 0.5), 8.83),
        (SubsetSelection(100, 0.5), 53.4),
        (OneBitMean(0.5), 86.9),
        (KRR(1000, 2.87), 59.8),
        (SubsetSelection(1000, 1.0), 143.5),
    ],
)
def test_a_year_of_daily_answers_costs_what_their_channel_says(
    mechanism: Mechanism, epsilon: float
) -> None:
    found = of_channels([(mechanism, 365)])
    assert found == pytest.approx(epsilon, rel=3e-3)
    assert found <= optimal(mechanism.epsilon, 365, 1e-6).epsilon * (1 + 1e-7)


Rows = tuple[tuple[Fraction, ...], ...]
Pairs = list[tuple[int, int]]


def every_pair(rows: Rows) -> Pairs:
    return list(itertools.permutations(range(len(rows)), 2))


def adaptive_delta(steps: list[tuple[Rows, Pairs]], epsilon: float) -> Fraction:
    """The largest divergence of an adversary who picks each report's two answers in the light of
    the codes before."""
    low = exp_bounds(Fraction(epsilon))[0]

    def worst(at: int, p: Fraction, q: Fraction) -> Fraction:
        if at == len(steps):
            return max(p - low * q, Fraction(0))
        rows, pairs = steps[at]
        return max(
            sum(
                (worst(at + 1, p * a, q * b) for a, b in zip(rows[x], rows[y], strict=True)),
                Fraction(0),
            )
            for x, y in [*pairs, (0, 0)]
        )

    return worst(0, Fraction(1), Fraction(1))


UNEVEN = ChannelTable.from_rows(1.1, [[0.5, 0.3, 0.2], [0.25, 0.5, 0.25], [0.2, 0.2, 0.6]])


@pytest.mark.parametrize(
    "mechanisms",
    [
        [KRR(3, 1.0)] * 2,
        [UNEVEN] * 2,
        [UNEVEN, KRR(2, 0.7), OneBitMean(0.4)],
        [KRR(2, 2.0), KRR(3, 0.3), OneBitMean(1.0)],
        [UnaryEncoding(2, 0.5), UNEVEN],
        [LaplaceMechanism(1.0, grid=2)] * 2,
    ],
    ids=lambda mechanisms: "+".join(m.name for m in mechanisms),
)
@pytest.mark.parametrize("delta", [1e-3, 0.1])
def test_no_adaptive_choice_of_answers_exceeds_the_composition(
    mechanisms: list[Mechanism], delta: float
) -> None:
    epsilon = of_channels([(mechanism, 1) for mechanism in mechanisms], delta)
    steps = [(m.channel().rows, every_pair(m.channel().rows)) for m in mechanisms]
    assert adaptive_delta(steps, epsilon) <= delta
    if all(m.two_valued for m in mechanisms) and epsilon > 0:  # of tables no pair is always worst
        assert adaptive_delta(steps, epsilon - 1e-3) > delta * (1 - 1e-6)


def test_reports_compose_in_any_order() -> None:
    parts = [(KRR(5, 1.0), 30), (OneBitMean(0.3), 12), (UNEVEN, 4)]
    found = of_channels(parts)
    assert of_channels(parts[::-1]) == pytest.approx(found, rel=1e-6)
    split = [(KRR(5, 1.0), 10), *parts[1:], (KRR(5, 1.0), 20)]
    assert of_channels(split) == pytest.approx(found, rel=1e-12)


def test_mixed_levels_lie_between_the_levels() -> None:
    strict, open_ = KRR(10, 0.5), KRR(10, 1.3)
    mixed = of_channels([(strict, 100), (open_, 100)])
    assert of_channels([(strict, 200)]) < mixed < of_channels([(open_, 200)])
    apart = of_channels([(strict, 100)], 5e-7) + of_channels([(open_, 100)], 5e-7)
    assert mixed < apart


def test_a_common_lattice_loses_little() -> None:
    """Epsilons without a common unit are put on a finer lattice, from above."""
    exact = of_channels([(KRR(10, 1.0), 50), (KRR(10, 0.5), 50)])
    near = of_channels([(KRR(10, 1.0), 50), (KRR(10, 0.5 + 1e-9), 50)])
    assert exact <= near + 1e-6
    assert near <= exact * 1.001


def test_the_pure_sum_is_taken_where_delta_allows_no_less() -> None:
    assert of_channels([(KRR(4, 1.0), 3)], 0.0) == sequential([Guarantee(1.0)] * 3).epsilon
    assert of_channels([(KRR(2, 1.0), 3)], 1e-300) == 3.0
    assert of_channels([(bounded(1.15), 15)], 1e-300) == pytest.approx(17.25)
    assert of_channels([]) == of_channels([(KRR(4, 1.0), 0)]) == 0.0


@pytest.mark.parametrize("epsilons", [(0.1, 0.2), (0.7, 0.1, 1e-9), (0.3,)])
def test_without_a_delta_the_sum_is_never_rounded_down(epsilons: tuple[float, ...]) -> None:
    for times in (1, 3, 7, 10, 1001):
        exact = sum(Fraction(each) * times for each in epsilons)
        found = of_channels([(KRR(4, each), times) for each in epsilons], 0.0)
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 2**52))


def test_a_delta_above_the_total_variation_leaves_nothing() -> None:
    assert of_channels([(KRR(2, 0.1), 1)], 0.06) == 0.0


@pytest.mark.parametrize("delta", [1e-3, 1e-40])
def test_delta_is_exact_however_small(delta: float) -> None:
    """Against the exact sum over the trinomial law of 100 reports' losses."""
    times, mechanism = 100, KRR(10, 1.0)
    epsilon = of_channels([(mechanism, times)], delta)
    p, q = (int(chance * ONE) for chance in mechanism.support)
    law = exact_power([q, ONE - p - q, p], times)

    def exact(at: float) -> Fraction:
        """The masses of the losses -100..100, each times what is above `at`."""
        limit = exp_bounds(Fraction(at))[0]
        excess = sum(
            max(Fraction(0), mass * (1 - limit * Fraction(q, p) ** loss))
            for loss, mass in enumerate(law, start=-times)
        )
        return excess / ONE**times

    assert exact(epsilon) <= delta
    assert exact(epsilon * (1 - 1e-5)) > delta


def law_of_three(parts: list[tuple[float, float]]) -> dict[mpmath.mpf, mpmath.mpf]:
    """The exact law of the sum of losses, each of an epsilon and a total variation."""
    law = {mpmath.mpf(0): mpmath.mpf(1)}
    for epsilon, variation in parts:
        grown = mpmath.exp(epsilon)
        up = min(mpmath.mpf(variation), (grown - 1) / (grown + 1)) * grown / (grown - 1)
        steps = {epsilon: up, 0: 1 - up - up / grown, -epsilon: up / grown}
        summed: dict[mpmath.mpf, mpmath.mpf] = {}
        for (loss, mass), (step, chance) in itertools.product(law.items(), steps.items()):
            summed[loss + step] = summed.get(loss + step, 0) + mass * chance
        law = summed
    return law


@pytest.mark.parametrize("seed", range(12))
def test_reports_of_any_epsilons_and_variations_are_never_understated(seed: int) -> None:
    """At deltas down to 1e-30, and by less than 1e-3 in epsilon."""
    rng = random.Random(seed)
    parts = [(10 ** rng.uniform(-2, 0.8), rng.random()) for _ in range(rng.randint(1, 5))]
    delta = 10 ** rng.uniform(-30, -0.3)
    found = of_channels([(bounded(*part), 1) for part in parts], delta)
    with mpmath.workdps(50):
        law = law_of_three(parts)

        def exact(at: float) -> mpmath.mpf:
            return sum(m * (1 - mpmath.exp(at - x)) for x, m in law.items() if x > at)

        assert exact(found) <= delta
        assert found < 1e-3 or exact(found - 1e-3) > delta


def test_what_a_policy_leaves_open_is_infinite() -> None:
    mechanism = design(Policy.one_sided(3, [0, 1], 1.0)).mechanism
    channel = mechanism.channel()
    assert of_channels([(channel, 1)]) == math.inf
    assert of_channels([(KRR(3, 1.0), 5), (channel, 1)], 1e-3) == math.inf
    # Of the answers that it protects, in the order in which it does, reports add up, or less.
    protected = of_channels([(mechanism, 20)])
    assert mechanism.realised_epsilon < protected <= 20 * mechanism.epsilon
    pairs = [(0, 1), (1, 0), (0, 2), (1, 2)]
    for delta in (0.01, 0.1, 0.4):
        epsilon = of_channels([(mechanism, 2)], delta)
        assert adaptive_delta([(channel.rows, pairs)] * 2, epsilon) <= delta


def test_a_code_that_rules_an_input_out_takes_its_chance_from_delta() -> None:
    third = Fraction(1, 1000)
    rows = ((1 - third, third, Fraction(0)), (1 - third, Fraction(0), third))
    channel = Channel((0, 1, 2), rows)
    assert of_channels([(channel, 1)], 1.01e-3) == 0.0
    assert of_channels([(channel, 2)], 1.01e-3) == math.inf
    assert of_channels([(channel, 2)], 2.02e-3) == 0.0


def test_losses_of_unknown_shape_add_up() -> None:
    assert of_channels([(unbounded(0.5), 7)]) == pytest.approx(3.5, abs=2e-6)
    known = of_channels([(KRR(10, 1.0), 50)])
    assert of_channels([(unbounded(0.5), 7), (KRR(10, 1.0), 50)]) == pytest.approx(known + 3.5)


def test_a_bound_by_variation_is_above_the_channel() -> None:
    exact = of_channels([(UNEVEN, 50)])
    variation = losses_of(UNEVEN).divergence(0.0)
    assert exact < of_channels([(bounded(UNEVEN.epsilon, variation), 50)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Guarantee(-1.0), "epsilon must be finite and >= 0, got -1.0"),
        (lambda: Guarantee(float("nan")), "epsilon must be finite and >= 0, got nan"),
        (lambda: Guarantee(1.0, 1.5), r"delta must lie in \[0, 1\], got 1.5"),
        (lambda: parallel([]), "parallel composition needs at least one guarantee"),
        (lambda: repeated(Guarantee(1.0), -1), "times must be at least 0, got -1"),
        (lambda: optimal(1.0, 0, 1e-6), "times must lie in 1..10..6, got 0"),
        (lambda: of_channels([], 1.0), r"delta must lie in \[0, 1\), got 1.0"),
        (lambda: of_channels([], float("nan")), r"delta must lie in \[0, 1\), got nan"),
        (lambda: of_channels([(KRR(2, 1.0), -1)]), "number of reports must be >= 0, got -1"),
    ],
)
def test_nonsense_is_refused(call: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()  # type: ignore[operator]
