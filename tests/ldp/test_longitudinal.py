"""What repeated answers cost, by enumeration of whole lives whose equal values share a memo."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import LOLOHA, RAPPOR, DBitFlip, InvalidInput, KRRChain, UnaryChain
from ldp.core.exact import ONE, certainly_at_most, log_upper
from ldp.core.longitudinal import Longitudinal

Life = tuple[int, ...]
Rows = Sequence[Sequence[float]]
LogTables = list[NDArray[np.float64]]
"""Log-probabilities [life, reports] of parts of the reports that are independent in every life."""

SLACK = 1e-9
"""What the sums in doubles are good to."""


def lives(keys: int, reports: int) -> list[Life]:
    return list(product(range(keys), repeat=reports))


def logs(permanent: Rows, instantaneous: Rows, reports: int) -> NDArray[np.float64]:
    """Return log Pr[reports | life]: one memo per distinct key, however often it is used."""
    prior, noise = np.array(permanent, dtype=float), np.array(instantaneous, dtype=float)
    seen = np.array(list(product(range(noise.shape[1]), repeat=reports)))
    table = []
    for life in lives(len(prior), reports):
        chance = np.ones(len(seen))
        for key in set(life):
            times = [t for t, used in enumerate(life) if used == key]
            chance *= prior[key] @ np.prod(noise[:, seen[:, times]], axis=2)
        table.append(np.log(chance))
    return np.array(table)


def krr_tables(chain: KRRChain, reports: int) -> LogTables:
    rows = chain.permanent_round.channel().rows, chain.instantaneous_round.channel().rows
    first, second = ([[float(x) for x in row] for row in channel] for channel in rows)
    return [logs(first, second, reports)]


def bit_tables(mechanism: UnaryChain | RAPPOR, bits: int, reports: int) -> LogTables:
    """Return a table per bit, key v setting bit v alone."""
    (own, other), (keep, rise) = (
        [threshold / ONE for threshold in pair]
        for pair in (mechanism.permanent, mechanism.instantaneous)
    )
    noise = [[1 - rise, rise], [1 - keep, keep]]
    return [
        logs(
            [[1 - p, p] for p in (own if key == bit else other for key in range(bits))],
            noise,
            reports,
        )
        for bit in range(bits)
    ]


def losses(tables: LogTables) -> NDArray[np.float64]:
    """Return the worst log ratio of each life's reports against each other life's."""
    return np.array(
        [
            sum((table[life] - table).max(axis=1) for table in tables)
            for life in range(len(tables[0]))
        ]
    )


def pattern(life: Life) -> Life:
    """Return which reports share a key: each key's number in order of appearance."""
    order = list(dict.fromkeys(life))
    return tuple(order.index(key) for key in life)


def cases() -> list[tuple[str, Longitudinal, int, int, LogTables]]:
    """Return mechanisms, their keys, numbers of reports, and the tables of all lives."""
    found: list[tuple[str, Longitudinal, int, int, LogTables]] = []
    for epsilon, memo in ((0.1, 1.0), (1.0, 2.0), (3.9, 4.0)):
        for k, most in ((2, 7), (3, 5), (4, 3)):
            chain = KRRChain.calibrate(k, epsilon, memo)
            loloha = LOLOHA.calibrate(50, epsilon, memo, k)
            for t in range(1, most + 1):
                found.append(("krr", chain, k, t, krr_tables(chain, t)))
            found.append(("loloha", loloha, k, 3, krr_tables(loloha.chain, 3)))
    for family in (UnaryChain.l_sue, UnaryChain.l_oue, UnaryChain.l_osue):
        for k, most in ((2, 6), (3, 4)):
            unary = family(k, 0.5, 2.0)
            for t in range(1, most + 1):
                found.append((family.__name__, unary, k, t, bit_tables(unary, k, t)))
    rappor = RAPPOR.calibrate(1.0, 2.0, bits=3, hashes=1)
    found.append(("rappor", rappor, 3, 4, bit_tables(rappor, 3, 4)))
    return found


@pytest.fixture(scope="module", name="worst")
def worst_losses() -> list[tuple[Longitudinal, int, int, NDArray[np.float64]]]:
    return [(mechanism, keys, t, losses(tables)) for _, mechanism, keys, t, tables in cases()]


Worst = list[tuple[Longitudinal, int, int, NDArray[np.float64]]]


def test_any_two_lives_stay_within_their_bound(worst: Worst) -> None:
    for mechanism, _, reports, loss in worst:
        assert loss.max() <= mechanism.epsilon_of_any_lives(reports) + SLACK


def test_one_report_of_a_life_reaches_its_bound(worst: Worst) -> None:
    for mechanism, _, reports, loss in worst:
        if reports == 1:
            assert loss.max() == pytest.approx(mechanism.epsilon_of_any_lives(1), rel=SLACK)


def test_lives_whose_keys_repeat_at_the_same_times_stay_within_their_memos(worst: Worst) -> None:
    for mechanism, keys, reports, loss in worst:
        patterns = [pattern(life) for life in lives(keys, reports)]
        for i, first in enumerate(patterns):
            alike = [j for j, second in enumerate(patterns) if first == second]
            limit = mechanism.epsilon_of_same_changes(len(set(first)))
            assert loss[i, alike].max() <= limit + SLACK


def exact_loss(chain: KRRChain, reports: int) -> Fraction:
    """Return the exact worst ratio between a life without change and one that changes midway.

    Either way round; only how often each half of the reports says 0 matters.
    """
    prior, noise = chain.permanent_round.channel().rows, chain.instantaneous_round.channel().rows
    half = reports // 2
    worst = Fraction(1)
    for zeros in product(range(half + 1), repeat=2):
        seen = [
            [noise[memo][0] ** z * noise[memo][1] ** (half - z) for memo in range(2)] for z in zeros
        ]
        stays = sum(prior[0][m] * seen[0][m] * seen[1][m] for m in range(2))
        changes = math.prod(
            (sum(prior[key][m] * seen[key][m] for m in range(2)) for key in range(2)),
            start=Fraction(1),
        )
        worst = max(worst, Fraction(stays) / changes, changes / Fraction(stays))
    return worst


@pytest.mark.parametrize(("epsilon", "memo", "loss"), [(1.0, 2.0, 8.19), (0.5, 1.0, 6.46)])
def test_two_memos_do_not_bound_what_a_change_costs(
    epsilon: float, memo: float, loss: float
) -> None:
    chain = KRRChain.calibrate(2, epsilon, memo)
    exact = exact_loss(chain, 12)
    assert log_upper(exact) == pytest.approx(loss, abs=5e-3)
    assert certainly_at_most(exact, chain.epsilon_of_any_lives(12))
    # What is published for every pair of lives of two values:
    assert not certainly_at_most(exact, 2 * memo)
    assert not certainly_at_most(exact, chain.epsilon_of_same_changes(chain.memo_limit))


def test_what_a_change_costs_grows_with_the_reports_without_end() -> None:
    chain = KRRChain.calibrate(2, 1.0, 2.0)
    found = [log_upper(exact_loss(chain, reports)) for reports in (24, 26, 28, 30)]
    # Each report more of either half tells as much as the second round lets through.
    np.testing.assert_allclose(np.diff(found), chain.instantaneous_epsilon, rtol=1e-3)
    assert found[-1] > 5 * chain.epsilon_of_same_changes(2) + SLACK


def test_a_report_more_may_cost_more_than_its_own_epsilon() -> None:
    chain = KRRChain.calibrate(3, 1.0, 2.0)
    assert losses(krr_tables(chain, 2)).max() == pytest.approx(2.1351, abs=5e-5)  # not 2 epsilon


@pytest.mark.slow
def test_all_pairs_of_lives_of_twelve_reports_stay_within_their_bound() -> None:
    # With two keys a pair of lives is, but for the order of the reports, how many of them have
    # each pair of keys; and the reports are how many of those say 0.
    chain = KRRChain.calibrate(2, 1.0, 2.0)
    prior, noise = (
        np.array(channel.rows, dtype=float)
        for channel in (chain.permanent_round.channel(), chain.instantaneous_round.channel())
    )
    cells = list(product(range(2), repeat=2))
    found = 0.0
    for chosen in combinations_with_replacement(range(4), 12):
        sizes = [chosen.count(cell) for cell in range(4)]
        for zeros in product(*(range(size + 1) for size in sizes)):
            seen = [
                noise[:, 0] ** z * noise[:, 1] ** (size - z)
                for z, size in zip(zeros, sizes, strict=True)
            ]
            first, second = (
                math.prod(
                    prior[key]
                    @ np.prod(
                        [s for s, c in zip(seen, cells, strict=True) if c[life] == key], axis=0
                    )
                    for key in range(2)
                )
                for life in range(2)
            )
            found = max(found, math.log(first / second))
    assert 8.19 < found <= chain.epsilon_of_any_lives(12)


def test_bounds_of_lives_start_at_nothing_and_never_fall() -> None:
    for mechanism in (KRRChain.calibrate(5, 1.0, 2.0), RAPPOR.calibrate(1.0, 2.0)):
        bounds = [mechanism.epsilon_of_any_lives(reports) for reports in range(40)]
        assert bounds[:2] == [0.0, mechanism.realised_epsilon]
        assert bounds == sorted(bounds)


def test_the_second_round_tells_memos_apart_by_its_epsilon() -> None:
    krr = KRRChain.calibrate(4, 1.0, 2.0)
    assert krr.instantaneous_epsilon == krr.instantaneous_round.channel().epsilon
    for unary in (UnaryChain.l_sue(3, 1.0, 2.0), UnaryChain.l_oue(3, 0.5, 2.0)):
        p, q = (threshold / ONE for threshold in unary.instantaneous)
        assert unary.instantaneous_epsilon == pytest.approx(
            3 * math.log(max(p / q, (1 - q) / (1 - p)))
        )
    rappor = RAPPOR.published(0.5, 0.5, 0.75, bits=16)
    assert rappor.instantaneous_epsilon == pytest.approx(16 * math.log(2))
    assert DBitFlip(4, 1.0, 2).instantaneous_epsilon == math.inf


def test_a_negative_number_is_refused() -> None:
    chain = KRRChain.calibrate(2, 1.0, 2.0)
    with pytest.raises(InvalidInput, match="number of memo keys must be >= 0, got -1"):
        chain.epsilon_of_same_changes(-1)
    with pytest.raises(InvalidInput, match="number of reports must be >= 0, got -1"):
        chain.epsilon_of_any_lives(-1)
