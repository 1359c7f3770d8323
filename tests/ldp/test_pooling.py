"""Pooling against enumeration, published bounds, naive references and simulation."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from every_mechanism import subsets
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from populations import LEVELS, SHARES, revealing, tallies, zipf
from scipy.stats import chi2, ncx2

from ldp import (
    HRR,
    KRR,
    ChannelTable,
    DBitFlip,
    HadamardResponse,
    InvalidInput,
    KRRChain,
    LocalHashing,
    OneBitMean,
    OrderedExponential,
    PolicyTable,
    PolicyUnary,
    ProjectiveGeometry,
    SubsetSelection,
    SummingHistogram,
    Tally,
    UnaryEncoding,
)
from ldp.core.estimation import Cohorts, Estimate
from ldp.core.mechanism import Categorical, Mechanism
from ldp.core.policy import Policy
from ldp.estimating.likelihood import fisher_covariance
from ldp.estimating.pooling import (
    Method,
    fit,
    homogeneity,
    planned_covariance,
    pool,
    pool_with_covariance,
)
from ldp.estimating.strata import answer
from ldp.planning.columns import utility_optimised_rr
from ldp.planning.design import design
from ldp.testing import SeededCoins

Floats = NDArray[np.float64]

N = 20_000
METHODS: tuple[Method, ...] = ("mle", "gls", "inverse_variance", "scalar")


UNIFORM, SKEWED = np.full(8, 1 / 8), zipf(8, 1.5)


def matrix(mechanism: Categorical) -> Floats:
    found = mechanism.matrix()
    assert found is not None
    return found


def expected(mechanism: Categorical, truth: Floats, n: float) -> Tally:
    """The tally of codes that n reports give on average, rounded."""
    counts = np.round(n * truth @ matrix(mechanism)).astype(np.int64)
    return Tally(int(counts.sum()), counts)


def of_levels(truths: Sequence[Floats]) -> Cohorts:
    """The expected cohorts of k-RR at four levels."""
    levels = zip(LEVELS, SHARES, truths, strict=True)
    return Cohorts(
        [(m := KRR(8, epsilon), expected(m, f, N * share)) for epsilon, share, f in levels]
    )


def simulated(
    mechanism: Mechanism, truth: Floats, n: int, runs: int, coins: SeededCoins
) -> list[Tally]:
    # Seeded by the mechanism too: two cohorts are never the same people.
    seed = [n, *mechanism.name.encode()]
    return tallies(
        mechanism, np.random.default_rng(seed).choice(truth.size, (runs, n), p=truth), coins
    )


def total_variance(estimate: Estimate) -> float:
    return float(np.sum(estimate.standard_error**2))


# --- what a mechanism says ---------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [
        KRR(5, 1.0),
        KRRChain.calibrate(5, 1.0, 2.0),
        HRR(5, 1.0),
        HRR(8, 2.0),
        HadamardResponse(7, 2.0),
        HadamardResponse(9, 0.3),
        ProjectiveGeometry(9, 1.0),
        ChannelTable.from_rows(2.0, [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]]),
    ],
    ids=repr,
)
def test_a_mechanism_that_counts_codes_says_its_channel_in_doubles(mechanism: Categorical) -> None:
    exact = np.array(mechanism.channel().rows, dtype=float)
    assert matrix(mechanism) == pytest.approx(exact, rel=1e-12)


def as_bits(outputs: tuple[Any, ...]) -> NDArray[Any]:
    return np.array(outputs, dtype="u1")[:, np.newaxis]


def as_typed_bits(outputs: tuple[Any, ...]) -> NDArray[Any]:
    return np.array([[t, sum(1 << v for v in chosen)] for t, chosen in outputs], dtype="u1")


@pytest.mark.parametrize(
    ("mechanism", "codes"),
    [
        (KRR(4, 1.0), np.array),
        (OrderedExponential(4, 1.0), np.array),
        (HRR(5, 1.0), np.array),
        (HadamardResponse(7, 2.0), np.array),
        (ProjectiveGeometry(7, 1.0), np.array),
        (UnaryEncoding(4, 1.0), as_bits),
        (UnaryEncoding.symmetric(3, 4.0), as_bits),
        (
            SubsetSelection(5, 1.0, size=2),
            lambda sets: as_bits(tuple(sum(1 << v for v in chosen) for chosen in sets)),
        ),
        (
            SubsetSelection(6, 0.5, size=3),
            lambda sets: as_bits(tuple(sum(1 << v for v in chosen) for chosen in sets)),
        ),
        (SubsetSelection(2, 1.0), lambda sets: as_bits(tuple(1 << v for (v,) in sets))),
        (SummingHistogram.on_grid(3, 2.0, 1, 1), lambda levels: np.array(levels, dtype="u1")),
        (DBitFlip(4, 1.0, 2), lambda answers: np.array(answers, dtype="u1")),
        (PolicyUnary.utility_optimised(5, [0, 3], 1.0), as_bits),
        (utility_optimised_rr(5, [1, 3], 1.0), np.array),
        (subsets(Policy.input_discriminative([0, 1, 0, 1, 1], [0.5, 2.0])), as_typed_bits),
        (subsets(Policy.input_discriminative([0, 0, 1, 1, 1, 2], [0.5, 1.0, 3.0])), as_typed_bits),
        (subsets(Policy.one_sided(6, [0, 2, 5], 1.0)), as_typed_bits),
        (subsets(Policy.block([0, 1, 0, 1, 1], 1.0)), as_typed_bits),
        (subsets(Policy.uniform(7, 0.5)), as_typed_bits),
    ],
    ids=lambda part: getattr(part, "name", None),
)
def test_the_covariance_is_that_of_the_enumerated_reports(
    mechanism: Categorical, codes: Callable[[tuple[Any, ...]], NDArray[Any]]
) -> None:
    channel = mechanism.channel()
    truth = zipf(mechanism.k, 1.0)
    chances = truth @ np.array(channel.rows, dtype=float)
    possible = chances > 0  # the channel's table also lists codes that no category can cause
    reports, chances = codes(channel.outputs)[possible], chances[possible]
    values = np.array(
        [mechanism.debias(mechanism.tally(reports[i : i + 1])) for i in range(len(reports))]
    )
    mean = chances @ values
    assert mean == pytest.approx(truth)
    exact = (values.T * chances) @ values - np.outer(mean, mean)
    assert mechanism.covariance(truth, 7) == pytest.approx(exact / 7, rel=1e-9, abs=1e-12)
    assert np.diag(exact) == pytest.approx(mechanism.variance(truth, 1))


# --- published numbers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "numbers"),
    [(UNIFORM, (3.451, 3.451, 3.451, 3.451)), (SKEWED, (2.901, 2.901, 2.927, 3.033))],
    ids=["uniform", "skewed"],
)
def test_the_errors_of_four_levels(truth: Floats, numbers: tuple[float, ...]) -> None:
    cohorts = of_levels([truth] * 4)
    for method, number in zip(METHODS, numbers, strict=True):
        assert 1e4 * total_variance(pool(cohorts, method)) == pytest.approx(number, rel=1e-3)


@pytest.mark.parametrize(("truth", "strict"), [(UNIFORM, 77.76), (SKEWED, 77.66)])
def test_the_errors_of_the_strictest_level_for_all(truth: Floats, strict: float) -> None:
    assert 1e4 * KRR(8, 0.5).variance(truth, N).sum() == pytest.approx(strict, rel=1e-4)


@pytest.mark.parametrize(
    ("maps", "best", "scalar"),
    [(((0, 1), (4, 5)), 1.137, 1.646), (((0, 1, 2), (3, 4, 5)), 1.678, 2.839)],
)
def test_the_errors_of_two_sensitivity_maps(
    maps: tuple[tuple[int, ...], ...], best: float, scalar: float
) -> None:
    # Mixed with 1e-12 of uniform, as a table takes no zeros.
    channels = [(1 - 1e-12) * revealing(6, 1.0, sensitive) + 1e-12 / 6 for sensitive in maps]
    mechanisms = [ChannelTable.from_rows(32.0, channel.tolist()) for channel in channels]
    cohorts = Cohorts([(m, expected(m, zipf(6, 1.0), 10_000)) for m in mechanisms])
    assert 1e4 * total_variance(pool(cohorts, "mle")) == pytest.approx(best, rel=1e-3)
    assert 1e4 * total_variance(pool(cohorts, "gls")) == pytest.approx(best, rel=1e-3)
    assert 1e4 * total_variance(pool(cohorts, "scalar")) == pytest.approx(scalar, rel=1e-3)


# --- maximum likelihood ------------------------------------------------------------------


def test_maximum_likelihood_is_where_bayes_rule_report_by_report_leads() -> None:
    rng = np.random.default_rng(2)
    mechanisms = [
        KRR(4, 1.0),
        HRR(4, 2.0),
        ChannelTable.from_rows(3.0, rng.dirichlet(np.full(5, 9.0), size=4).tolist()),
    ]
    truth = np.array([0.5, 0.3, 0.15, 0.05])
    cohorts = [(m, Tally(2000, rng.multinomial(2000, truth @ matrix(m)))) for m in mechanisms]
    f = np.full(4, 0.25)
    for _ in range(3000):
        after = np.zeros(4)
        for m, tally in cohorts:
            for y, count in enumerate(tally.counts):
                joint = f * matrix(m)[:, y]
                after += count * joint / joint.sum() / 6000
        f = after
    assert fit(Cohorts(cohorts)).value == pytest.approx(f, abs=1e-5)


def test_the_quasi_likelihood_of_codes_is_their_likelihood() -> None:
    rng = np.random.default_rng(3)
    mechanisms = [KRR(6, epsilon) for epsilon in LEVELS]
    counts = [rng.multinomial(5000, zipf(6, 1.0) @ matrix(m)) for m in mechanisms]
    cohorts = Cohorts([(m, Tally(5000, c)) for m, c in zip(mechanisms, counts, strict=True)])
    exact, moments = pool(cohorts, "mle"), pool(cohorts, "gls")
    # Both have their weights at the same maximum, to the accuracy with which it is sought.
    assert moments.value == pytest.approx(exact.value, abs=1e-4)
    assert moments.standard_error == pytest.approx(exact.standard_error, rel=1e-3)


def test_the_covariance_of_mixed_cohorts_is_the_inverse_of_the_sum_of_informations() -> None:
    truth = zipf(4, 1.0)
    bits, codes = UnaryEncoding(4, 1.0), KRR(4, 2.0)
    p, q = (float(x) for x in bits.support)
    supports = np.round(30_000 * (q + (p - q) * truth)).astype(np.int64)
    each = [(bits, Tally(30_000, supports)), (codes, expected(codes, truth, 10_000))]
    found = fit(Cohorts(each))
    channel = np.array(bits.channel().rows, dtype=float)
    each = np.arange(16)[:, np.newaxis] >> np.arange(4) & 1
    debiased = (each - q) / (p - q)
    covariance = (debiased.T * (truth @ channel)) @ debiased - np.outer(truth, truth)
    information = 30_000 * np.linalg.inv(covariance)
    information += 10_000 * matrix(codes) @ np.diag(1 / (truth @ matrix(codes))) @ matrix(codes).T
    basis = np.vstack([np.eye(3), -np.ones(3)])
    exact = basis @ np.linalg.inv(basis.T @ information @ basis) @ basis.T
    assert found.unconstrained.value == pytest.approx(truth, abs=1e-3)
    assert found.covariance == pytest.approx(exact, rel=5e-3)


MIXED = (
    (UnaryEncoding(8, 0.5), 2000),
    (SubsetSelection(8, 1.0, size=2), 1500),
    (LocalHashing(8, 2.0), 1500),
    (HRR(8, 1.0), 1000),
    (KRR(8, 4.0), 1000),
)


@pytest.mark.slow
def test_mixed_mechanisms_pool_without_bias_with_their_stated_error(coins: SeededCoins) -> None:
    runs, truth = 1500, SKEWED
    each = [simulated(mechanism, truth, n, runs, coins) for mechanism, n in MIXED]
    errors: dict[Method, list[Floats]] = {"mle": [], "inverse_variance": []}
    covered, stated, p_values = [], [], []
    for run in zip(*each, strict=True):
        cohorts = Cohorts([(m, tally) for (m, _), tally in zip(MIXED, run, strict=True)])
        for method, found in errors.items():
            estimate = pool(cohorts, method)
            found.append(estimate.value - truth)
            if method == "mle":
                covered.append(np.abs(found[-1]) <= 1.959964 * estimate.standard_error)
                stated.append(total_variance(estimate))
        if len(p_values) < 400:
            p_values.append(homogeneity(cohorts).p_value)
    best, simple = (np.array(errors[method]) for method in errors)
    assert np.abs(best.mean(axis=0) / (best.std(axis=0) / np.sqrt(runs))).max() < 4
    squared = float(np.mean(best**2, axis=0).sum())
    assert squared == pytest.approx(np.mean(stated), rel=0.07)  # three standard errors of 600 runs
    assert squared < 0.97 * float(np.mean(simple**2, axis=0).sum())
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)
    # Hashing is the one whose covariance is approximate.
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=4 * doubt(0.05, 400))


def test_the_most_likely_distribution_of_mixed_cohorts_leaves_nothing_to_gain(
    coins: SeededCoins,
) -> None:
    truth = np.array([0.6, 0.3, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0])
    cohorts = Cohorts([(m, simulated(m, truth, n, 1, coins)[0]) for m, n in MIXED])
    found = fit(cohorts)
    assert found.gap <= 1e-2
    assert found.value.min() >= 0
    assert np.count_nonzero(found.value == 0) >= 1
    assert found.value.sum() == pytest.approx(1)
    assert found.unconstrained.value.sum() == pytest.approx(1)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_few_reports_of_any_mechanisms_are_pooled(seed: int, k: int, size: int) -> None:
    rng, coins = np.random.default_rng(seed), SeededCoins(seed)
    makers = [KRR, HRR, HadamardResponse, LocalHashing, ProjectiveGeometry, SubsetSelection]
    makers += [SummingHistogram, UnaryEncoding, UnaryEncoding.symmetric]
    truth = rng.dirichlet(np.full(k, 0.2))
    each = []
    for _ in range(size):
        mechanism = makers[rng.integers(len(makers))](k, float(rng.choice([0.1, 1, 4, 16])))
        values = rng.choice(k, rng.choice([1, 3, 10, 1000]), p=truth)
        each.append((mechanism, mechanism.tally(mechanism.randomize_many(values, coins))))
    cohorts = Cohorts(each)
    found = fit(cohorts)
    assert found.gap <= 1e-2
    assert found.value.min() >= 0
    for estimate in [answer(cohorts).estimate, *(pool(cohorts, method) for method in METHODS)]:
        assert np.isfinite(estimate.value).all()
        assert (estimate.standard_error > 0).all()


# --- the choice of a method --------------------------------------------------------------


def test_an_estimate_is_tagged_with_its_method() -> None:
    cohorts = of_levels([SKEWED] * 4)
    assert [pool(cohorts, method).method for method in METHODS] == list(METHODS)
    assert pool(cohorts).method == "mle"
    assert pool(cohorts.alone()[0], "inverse_variance").method == "debias"


def test_means_and_large_domains_are_pooled_by_inverse_variance() -> None:
    means = Cohorts([(OneBitMean(e), Tally(100, np.array([40, 60]))) for e in (1.0, 2.0)])
    assert pool(means).method == "inverse_variance"
    ones = Tally(5000, np.ones(5000, dtype=int))
    large = Cohorts([(KRR(5000, e), ones) for e in (1.0, 2.0)])
    assert pool(large).method == "inverse_variance"
    with pytest.raises(InvalidInput, match=r"for 2\.\.4096 categories, not for krr of 5000"):
        pool(large, "mle")
    with pytest.raises(InvalidInput, match="not for onebit of 1 parameters: use inverse_variance"):
        pool(means, "gls")


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"method must be one of mle, gls, .* got 'em'"):
        pool(of_levels([UNIFORM] * 4), "em")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", [None, *METHODS])
def test_no_reports_are_an_error_and_empty_cohorts_do_not_count(method: Method | None) -> None:
    cohorts = of_levels([SKEWED] * 4)
    empty = (KRR(8, 3.0), Tally.empty(8))
    more = Cohorts([*cohorts, empty])
    assert np.array_equal(pool(more, method).value, pool(cohorts, method).value)
    with pytest.raises(InvalidInput, match="no reports to estimate from"):
        Cohorts([empty])


# --- homogeneity -------------------------------------------------------------------------

ABOVE = 0.075
"""The level that a test of 0.05 may have in small samples, up to what its runs tell."""


def rejected(draws: Iterable[Cohorts]) -> NDArray[np.bool_]:
    """Which of them are found to differ, at a level of 0.05."""
    return np.array([homogeneity(cohorts).p_value < 0.05 for cohorts in draws])


def doubt(share: float, runs: int) -> float:
    """Return the standard deviation of a share of so many runs."""
    return float(np.sqrt(share * (1 - share) / runs))


def shifted(f: Floats, source: int, target: int, mass: float) -> Floats:
    other = f.copy()
    other[[source, target]] += -mass, mass
    return other


@pytest.mark.slow
@pytest.mark.parametrize(
    "truth", [SKEWED, np.array([0.7, 0.3, 0, 0, 0, 0, 0, 0])], ids=["skewed", "zeros"]
)
def test_the_test_of_homogeneity_rejects_like_cohorts_as_often_as_it_says(truth: Floats) -> None:
    rng, runs, sizes = np.random.default_rng(7), 1500, [round(N * share) for share in SHARES]
    mechanisms = [KRR(8, epsilon) for epsilon in LEVELS]
    found = rejected(drawn(mechanisms, [truth] * 4, sizes, rng) for _ in range(runs))
    assert np.mean(found) == pytest.approx(0.05, abs=4 * doubt(0.05, runs))


def test_its_power_for_a_shift_of_five_points() -> None:
    # Five points from the third value to the first, in the cohort of epsilon 2.
    truths = [SKEWED, SKEWED, shifted(SKEWED, 2, 0, 0.05), SKEWED]
    found = homogeneity(of_levels(truths))
    assert found.degrees == 3 * 7
    power = ncx2.sf(chi2.isf(0.05, found.degrees), found.degrees, found.statistic)
    assert power == pytest.approx(0.675, abs=0.003)


@pytest.mark.slow
def test_its_simulated_power_is_the_predicted_one() -> None:
    rng, runs, sizes = np.random.default_rng(8), 800, [round(N * share) for share in SHARES]
    truths = [SKEWED, SKEWED, shifted(SKEWED, 2, 0, 0.05), SKEWED]
    mechanisms = [KRR(8, epsilon) for epsilon in LEVELS]
    found = rejected(drawn(mechanisms, truths, sizes, rng) for _ in range(runs))
    assert np.mean(found) == pytest.approx(0.675, abs=4 * doubt(0.675, runs))


def test_its_statistic_is_twice_the_log_likelihood_ratio_in_large_samples() -> None:
    truths = [SKEWED, SKEWED, shifted(SKEWED, 2, 0, 0.01), SKEWED]
    cohorts = Cohorts([(m, Tally(100 * t.n, 100 * t.counts)) for m, t in of_levels(truths)])

    def log_likelihood(part: Cohorts) -> float:
        f = fit(part).value
        return sum(float(t.counts @ np.log(f @ matrix(m))) for m, t in part)

    ratio = 2 * (sum(log_likelihood(one) for one in cohorts.alone()) - log_likelihood(cohorts))
    assert homogeneity(cohorts).statistic == pytest.approx(ratio, rel=0.02)
    assert ratio > 50


TAIL = zipf(50, 1.5)


def with_a_tail() -> list[PolicyTable]:
    """Tables for four levels: the four most frequent of fifty values are sensitive."""
    made = [design(Policy.one_sided(50, range(4), epsilon)).mechanism for epsilon in LEVELS]
    return [m for m in made if isinstance(m, PolicyTable)]


def drawn(
    mechanisms: Sequence[Categorical],
    truths: Sequence[Floats],
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> Cohorts:
    """Cohorts of so many reports each, from the laws that their channels give."""
    each = []
    for mechanism, truth, n in zip(mechanisms, truths, sizes, strict=True):
        chances = truth @ matrix(mechanism)
        each.append((mechanism, Tally(n, rng.multinomial(n, chances / chances.sum()))))
    return Cohorts(each)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "shift", "power"), [(500, 0.1, 0.15), (2500, 0.07, 0.42)])
def test_homogeneity_keeps_level_and_power_where_most_values_are_rare(
    n: int, shift: float, power: float
) -> None:
    # `power` is that of the same shift in the limit, where no value is rare.
    rng, runs, mechanisms = np.random.default_rng(21), 400, with_a_tail()
    differing = [TAIL] * 3 + [shifted(TAIL, 0, 1, shift)]
    level, found = (
        np.mean(rejected(drawn(mechanisms, f, [n] * 4, rng) for _ in range(runs)))
        for f in ([TAIL] * 4, differing)
    )
    large = 10**9
    parts = zip(mechanisms, differing, strict=True)
    ideal = homogeneity(Cohorts([(m, expected(m, f, large)) for m, f in parts]))
    assert ideal.degrees == 3 * 49
    limit = ncx2.sf(chi2.isf(0.05, 147), 147, ideal.statistic * n / large)
    assert limit == pytest.approx(power, abs=0.02)
    # Nearly nominal; never above one and a half times it, up to what 400 runs tell.
    assert 0.02 <= level <= ABOVE + 2 * doubt(0.05, runs)
    assert found >= power


@pytest.mark.slow
@pytest.mark.parametrize("n", [150, 700])
@pytest.mark.parametrize(
    ("truth", "policy"),
    [
        (
            np.full(20, 0.05),
            lambda e: Policy.input_discriminative([0] * 10 + [1] * 10, [e / 10, e]),
        ),
        (zipf(24, 1.5), lambda e: Policy.one_sided(24, range(4), e)),
    ],
    ids=["two levels", "tail"],
)
def test_homogeneity_keeps_its_level_for_mixtures_of_subsets(
    truth: Floats, policy: Callable[[float], Policy], n: int, coins: SeededCoins
) -> None:
    runs, rng = 400, np.random.default_rng(22)
    mechanisms = [subsets(policy(epsilon)) for epsilon in (1.0, 2.0, 4.0)]
    each = [tallies(m, rng.choice(truth.size, (runs, n), p=truth), coins) for m in mechanisms]
    found = rejected(
        Cohorts(list(zip(mechanisms, run, strict=True))) for run in zip(*each, strict=True)
    )
    assert 0.02 <= np.mean(found) <= ABOVE + 2 * doubt(0.05, runs)


@pytest.mark.slow
@pytest.mark.parametrize("n", [300, 700])
def test_homogeneity_keeps_its_level_where_there_are_about_as_many_codes_as_reports(n: int) -> None:
    rng, runs, truth = np.random.default_rng(24), 100, zipf(256, 1.2)
    mechanisms = [HadamardResponse(256, epsilon) for epsilon in (1.0, 2.0, 4.0, 6.0)]
    found = rejected(drawn(mechanisms, [truth] * 4, [n] * 4, rng) for _ in range(runs))
    assert np.mean(found) <= ABOVE + 2 * doubt(0.05, runs)


def test_nothing_is_tested_where_nothing_is_frequent() -> None:
    few = [(m, Tally(2, np.eye(1, m.codes, 0, dtype=np.int64)[0] * 2)) for m in with_a_tail()]
    found = homogeneity(Cohorts(few))
    assert found.degrees == 0
    assert found.p_value == 1


@pytest.mark.slow
@pytest.mark.parametrize("n", [125, 500, 2500])
def test_mle_is_unbiased_and_no_worse_than_inverse_variances_where_most_values_are_rare(
    n: int,
) -> None:
    rng, runs, mechanisms = np.random.default_rng(23), 300, with_a_tail()
    errors: dict[str, list[Floats]] = {"mle": [], "inverse_variance": []}
    covered = []
    for _ in range(runs):
        cohorts = drawn(mechanisms, [TAIL] * 4, [n] * 4, rng)
        default, simple = pool(cohorts), pool(cohorts, "inverse_variance")
        for estimate in (default, simple):
            errors[estimate.method].append(estimate.value - TAIL)
        covered.append(np.abs(default.value - TAIL) <= 1.959964 * default.standard_error)
    best, other = (np.array(errors[method]) for method in errors)
    assert np.abs(best.mean(axis=0) / (best.std(axis=0) / np.sqrt(runs))).max() < 4
    assert np.mean(best**2) < np.mean(other**2)
    coverage = np.mean(covered, axis=0)
    assert np.mean(coverage) >= 0.95
    assert coverage.min() >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / runs)


def test_means_are_compared_by_their_weighted_spread() -> None:
    cohorts = [(OneBitMean(1.0), Tally(10_000, np.array([4000, 6000]))) for _ in range(2)]
    assert homogeneity(Cohorts(cohorts)).statistic == pytest.approx(0, abs=1e-9)
    other = (OneBitMean(1.0), Tally(10_000, np.array([4200, 5800])))
    found = homogeneity(Cohorts([cohorts[0], other]))
    # Two shares of 0.6 and 0.58 of 10000 each; how their variances are pooled matters little.
    assert found.degrees == 1
    assert found.statistic == pytest.approx(0.02**2 / (2 * 0.59 * 0.41 / 10_000), rel=1e-2)


def test_one_cohort_has_nothing_to_be_compared_with() -> None:
    with pytest.raises(InvalidInput, match="two or more cohorts with reports"):
        homogeneity(of_levels([SKEWED] * 4).alone()[0])


def test_the_bound_for_mixed_levels_is_attained_by_codes() -> None:
    cohorts = of_levels([SKEWED] * 4)
    channels = [(matrix(m), t.n) for m, t in cohorts]  # type: ignore[arg-type]
    bound = fisher_covariance(channels, SKEWED)
    assert fit(cohorts).covariance == pytest.approx(bound, rel=0.01, abs=1e-8)


@pytest.mark.parametrize("truth", [UNIFORM, SKEWED], ids=["uniform", "skewed"])
def test_the_planned_covariance_is_what_pooling_has_once_reports_come(truth: Floats) -> None:
    """Of codes, and of supports, and of both, at the tallies that are expected."""
    codes: list[Categorical] = [KRR(8, 0.5), design(Policy.one_sided(8, [0, 1], 1.0)).mechanism]
    supports: list[Categorical] = [SubsetSelection(8, 1.0, 2), UnaryEncoding(8, 2.0)]
    assert np.allclose(
        planned_covariance([(each, N) for each in codes], truth),
        fisher_covariance([(matrix(each), N) for each in codes], truth),
    )
    for mechanisms in (codes, supports, codes + supports):
        told = [(each, expected_tally(each, truth)) for each in mechanisms]
        planned = planned_covariance([(each, N) for each in mechanisms], truth)
        _, covariance = pool_with_covariance(Cohorts(told), "mle")
        assert np.diag(covariance) == pytest.approx(np.diag(planned), rel=0.1)


def expected_tally(mechanism: Categorical, truth: Floats) -> Tally:
    """Return the tally of N reports that comes nearest to what is expected of them."""
    people = np.rint(N * truth).astype(int)
    codes = mechanism.randomize_many(np.repeat(np.arange(truth.size), people), SeededCoins(3))
    return mechanism.tally(codes)
