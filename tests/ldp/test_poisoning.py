"""What forged reports can do: the bound against every code, real attacks, and brute force."""

import math
from itertools import product

import numpy as np
import pytest
from every_mechanism import subsets
from numpy.typing import NDArray

from hearsay_server.surveys import catalogue
from ldp import (
    KRR,
    DBitFlip,
    InvalidInput,
    LocalHashing,
    Mechanism,
    PolicyUnary,
    SummingHistogram,
    Tally,
    UnaryEncoding,
)
from ldp.assurance.poisoning import largest_shift, report_range
from ldp.core.estimation import Cohorts, estimate, scalar_weighted
from ldp.core.policy import Policy
from ldp.planning.columns import improved_rr, utility_optimised_rr
from ldp.testing import SeededCoins

K = 5


NAMES = ("krr", "oue", "sue", "the", "subset", "projective", "hrr", "hadamard", "ordered")
MECHANISMS: dict[str, Mechanism] = {
    **{name: catalogue.categorical(name, K, 1.0) for name in NAMES},
    **{name: catalogue.numeric(name, 1.0) for name in catalogue.NUMERIC},
    "policy_table": utility_optimised_rr(K, [0, 1], 1.0),
    "mangat": improved_rr(1.0),
    "policy_unary": PolicyUnary.utility_optimised(K, [0, 3], 1.0),
    "policy_subsets": subsets(Policy.input_discriminative([0, 1, 0, 1, 1, 1], [0.5, 2.0])),
    "one_sided_subsets": subsets(Policy.one_sided(6, [2, 3, 5], 1.0)),
    "dbitflip": DBitFlip(4, 1.0, 2),
    "she": SummingHistogram.on_grid(2, 8.0, 2, 3),
}


def every_code(mechanism: Mechanism) -> NDArray[np.generic]:
    """All codes that the mechanism takes, found by offering it everything of their form."""
    most = {"she": 10, "dbitflip": 8}.get(mechanism.name, 64)
    if not mechanism.code_shape:
        most = mechanism.tally_size + 1
    found = []
    for code in product(range(most), repeat=max(1, *mechanism.code_shape, 1)):
        row = np.array([code], dtype=mechanism.code_dtype).reshape(1, *mechanism.code_shape)
        try:
            mechanism.decode(row.tobytes(), 1)
        except InvalidInput:
            continue
        found.append(row)
    return np.concatenate(found)


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_the_range_of_one_report_is_that_over_all_codes(name: str) -> None:
    mechanism = MECHANISMS[name]
    codes = every_code(mechanism)
    assert len(codes) > 1
    values = np.array(
        [mechanism.debias(mechanism.tally(codes[i : i + 1])) for i in range(len(codes))]
    )
    low, high = report_range(mechanism)
    assert low == pytest.approx(values.min(axis=0))
    assert high == pytest.approx(values.max(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["olh", "blh", "cms", "hcms"])
def test_a_report_reaches_the_range_of_a_hashing_mechanism(name: str) -> None:
    mechanism = catalogue.categorical(name, K, 1.0)
    codes = mechanism.randomize_many(np.zeros(60, dtype=np.int64), SeededCoins(5))
    values = np.array([mechanism.debias(mechanism.tally(codes[i : i + 1])) for i in range(60)])
    low, high = report_range(mechanism)
    assert low == pytest.approx(values.min(axis=0))
    assert high == pytest.approx(values.max(axis=0))


def honest(mechanism: Mechanism, n: int, seed: int = 1) -> Tally:
    answers = np.random.default_rng(seed).integers(0, mechanism.parameters // 2, n)
    return mechanism.tally(mechanism.randomize_many(answers, SeededCoins(seed)))


@pytest.mark.parametrize("forged", [1, 100, 20_000])
def test_the_shift_of_one_cohort_is_what_the_worst_forgery_does(forged: int) -> None:
    mechanism = UnaryEncoding(8, 1.0)
    tally = honest(mechanism, 10_000)
    before = mechanism.debias(tally)
    shift = largest_shift(Cohorts([(mechanism, tally)]), forged)
    all_ones = mechanism.tally(np.full((forged, 1), 0xFF, dtype=np.uint8))
    assert mechanism.debias(tally + all_ones) - before == pytest.approx(shift.up)
    nothing = mechanism.tally(np.zeros((forged, 1), dtype=np.uint8))
    assert mechanism.debias(tally + nothing) - before == pytest.approx(shift.down)


def test_the_shift_of_a_mean_is_what_the_worst_forgery_does() -> None:
    mechanism = catalogue.numeric("piecewise", 1.0)
    codes = mechanism.randomize_many(np.linspace(-1, 0.5, 999), SeededCoins(2))
    tally = mechanism.tally(codes)
    shift = largest_shift(Cohorts([(mechanism, tally)]), 30)
    last = mechanism.tally(np.full(30, mechanism.codes - 1))
    assert mechanism.debias(tally + last) - mechanism.debias(tally) == pytest.approx(shift.up)
    assert shift.down[0] < 0


@pytest.mark.parametrize(
    ("method", "pool"),
    [("inverse_variance", estimate), ("scalar", scalar_weighted)],
    ids=["inverse_variance", "scalar"],
)
def test_the_shift_of_pooled_cohorts_is_that_of_the_worst_cohort(method: str, pool: object) -> None:
    assert callable(pool)
    strict, loose = UnaryEncoding(8, 0.5), KRR(8, 3.0)
    cohorts = [(strict, honest(strict, 20_000)), (loose, honest(loose, 5_000, 2))]
    forged, before = 20, pool(Cohorts(cohorts)).value
    shift = largest_shift(Cohorts(cohorts), forged, method)
    found = []
    for own, (mechanism, tally) in enumerate(cohorts):
        worst = np.zeros(mechanism.tally_size, dtype=np.int64)
        worst[0] = forged  # reports that support category 0
        attacked = list(cohorts)
        attacked[own] = (mechanism, tally + Tally(forged, worst))
        found.append(pool(Cohorts(attacked)).value[0] - before[0])
    assert max(found) == pytest.approx(shift.up[0], rel=0.01)


def test_the_gains_of_the_maximal_gain_attack_are_those_published() -> None:
    # Table 4 of Cao et al.: d = 102, 5% forged, 10 targets, epsilon 1.
    d, n, targets = 102, 389_894, np.arange(92, 102)
    forged = round(0.05 / 0.95 * n)
    frequencies = np.zeros(d)
    frequencies[:92] = 1 / 92  # nobody has a target, nearly as in the published data
    answers = np.random.default_rng(7).choice(d, n, p=frequencies)

    krr = KRR(d, 1.0)
    codes = krr.randomize_many(answers, SeededCoins(3))
    attack = krr.tally(np.resize(targets, forged))
    before, after = krr.debias(krr.tally(codes)), krr.debias(krr.tally(codes) + attack)
    assert (after - before)[targets].sum() == pytest.approx(2.72, abs=0.02)

    oue = UnaryEncoding(d, 1.0)
    tally = oue.tally(oue.randomize_many(answers, SeededCoins(4)))
    ones = np.zeros(d, dtype=np.int64)
    ones[targets] = forged
    attacked = oue.debias(tally + Tally(forged, ones))
    assert (attacked - oue.debias(tally))[targets].sum() == pytest.approx(1.58, abs=0.02)
    reach = largest_shift(Cohorts([(oue, tally)]), forged).up[targets]
    assert (attacked - oue.debias(tally))[targets] == pytest.approx(reach)


def test_one_target_gains_what_the_formulas_say() -> None:
    d, n, forged, e = 20, 9_500, 500, math.e
    beta = forged / (n + forged)
    for mechanism, gain in (
        (KRR(d, 1.0), beta + beta * (d - 1) / (e - 1)),
        (UnaryEncoding(d, 1.0), 2 * beta + 2 * beta / (e - 1)),
    ):
        tally = Tally(n, np.full(d, round(n * float(mechanism.support[1]))))  # f = 0, nearly
        assert largest_shift(Cohorts([(mechanism, tally)]), forged).up == pytest.approx(
            gain, abs=2e-3
        )


def test_what_is_not_known_is_refused() -> None:
    cohorts = Cohorts([(KRR(K, 1.0), Tally(10, np.full(K, 2)))])
    with pytest.raises(InvalidInput, match="forged reports must be >= 0, got -1"):
        largest_shift(cohorts, -1)
    with pytest.raises(InvalidInput, match="is known for inverse_variance, scalar, not"):
        largest_shift(cohorts, 1, "mle")


def test_no_forged_report_moves_nothing() -> None:
    shift = largest_shift(Cohorts([(LocalHashing(8, 1.0), Tally(10, np.full(8, 3)))]), 0)
    assert not shift.up.any()
    assert not shift.down.any()


def test_one_report_moves_a_frequency_by_what_the_documents_say() -> None:
    mechanism, n = KRR(4, 0.5), 200
    p, q = map(float, mechanism.support)
    cohort = (mechanism, Tally(n, np.array([30, 60, 55, 55])))
    f = mechanism.debias(cohort[1])
    shift = largest_shift(Cohorts([cohort]), 1)
    assert shift.up == pytest.approx(((1 - q) / (p - q) - f) / (n + 1))
    assert shift.down == pytest.approx(-(f + q / (p - q)) / (n + 1))
    # Below zero it is more than the (1 - q) / (n (p - q)) that it is at most above.
    assert f[0] < 0
    assert shift.up[0] > (1 - q) / (n * (p - q)) > shift.up[1:].max()
