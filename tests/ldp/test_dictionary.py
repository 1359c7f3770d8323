"""Frequencies of strings from RAPPOR's tally."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import RAPPOR, InvalidInput, Tally
from ldp.estimating.dictionary import estimate_strings
from ldp.testing import SeededCoins

N = 20_000
FREQUENCIES = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05, 0.0, 0.0, 0.0, 0.0])
SMALL = RAPPOR.calibrate(2.0, 4.0, bits=16, hashes=2, cohorts=8)


def tallies(
    mechanism: RAPPOR, strings: Sequence[str], generator: np.random.Generator
) -> Callable[[], Tally]:
    """Return what draws tallies of N reports from the law that a report's channel gives."""
    chance = np.empty((mechanism.cohorts, len(strings), mechanism.bits))
    p, q = (float(x) for x in mechanism.support)
    chance[:] = q
    for cohort in range(mechanism.cohorts):
        for v, string in enumerate(strings):
            chance[cohort, v, list(mechanism.positions(cohort, string))] = p
    share = np.tile(FREQUENCIES, mechanism.cohorts) / mechanism.cohorts

    def draw() -> Tally:
        reports = generator.multinomial(N, share).reshape(mechanism.cohorts, -1)
        ones = generator.binomial(reports[:, :, np.newaxis], chance).sum(axis=1)
        return Tally(N, np.concatenate([reports.sum(axis=1), ones.ravel()]))

    return draw


def check(
    value: NDArray[np.float64], error: NDArray[np.float64], truth: NDArray[np.float64]
) -> None:
    trials = len(value)
    spread = value.std(axis=0)
    np.testing.assert_array_less(abs(value.mean(axis=0) - truth), 4 * spread / trials**0.5)
    assert ((error / spread) ** 2).mean() == pytest.approx(1, abs=0.05)
    covered = abs(value - truth) <= 1.959964 * error
    assert covered.mean() == pytest.approx(0.95, abs=0.01)
    np.testing.assert_allclose(covered.mean(axis=0), 0.95, atol=0.02)


@pytest.mark.slow
def test_intervals_cover_where_the_list_is_complete() -> None:
    mechanism = RAPPOR.calibrate(2.0, 4.0, bits=16, hashes=2, cohorts=24)
    strings = [f"string {i}" for i in range(10)]
    draw = tallies(mechanism, strings, np.random.default_rng(1))
    found = [estimate_strings(mechanism, draw(), strings) for _ in range(1500)]
    value = np.array([one.value for one in found])
    error = np.array([one.standard_error for one in found])
    check(value, error, np.append(FREQUENCIES, 0.0))
    clear = np.array([one.interval(simultaneous=True)[0] > 0 for one in found])
    assert clear[:, :4].all()  # the heavy strings are found every time
    assert clear[:, 6:].any(axis=1).mean() < 0.05  # and no absent one is made up


@pytest.mark.slow
@pytest.mark.parametrize("listed", [1, 4])
def test_intervals_cover_where_heavy_strings_are_not_listed(listed: int) -> None:
    generator = np.random.default_rng(2)
    value, error = [], []
    for trial in range(1500):  # an unlisted string's hashes are the chance here
        strings = [f"string {i} of {trial}" for i in range(10)]
        tally = tallies(SMALL, strings, generator)()
        found = estimate_strings(SMALL, tally, strings[:listed])
        value.append(found.value)
        error.append(found.standard_error)
    truth = FREQUENCIES[:listed]
    check(np.array(value), np.array(error), np.append(truth, 1 - truth.sum()))


def test_reports_of_devices_are_decoded(coins: SeededCoins) -> None:
    mechanism = RAPPOR.calibrate(4.0, 8.0, bits=64, hashes=2, cohorts=8)
    strings = ["no", "yes", "été"]
    values = np.repeat(np.array(strings, dtype=object), [30_000, 15_000, 5_000])
    found = estimate_strings(
        mechanism, mechanism.tally(mechanism.randomize_many(values, coins)), [*strings, "absent"]
    )
    truth = np.array([0.6, 0.3, 0.1, 0.0, 0.0])
    assert found.n == 50_000
    assert (abs(found.value - truth) < 4 * found.standard_error).all()
    assert found.standard_error.max() < 0.02
    assert found.value.sum() == pytest.approx(1)


def test_cohorts_without_reports_do_not_count(coins: SeededCoins) -> None:
    mechanism = RAPPOR.calibrate(4.0, 8.0, bits=64, hashes=2, cohorts=500)
    tally = mechanism.tally(mechanism.randomize_many(["yes"] * 50, coins))
    found = estimate_strings(mechanism, tally, ["yes", "no"])
    assert (abs(found.value - [1, 0, 0]) < 4 * found.standard_error).all()


def test_a_list_that_cannot_be_told_apart_is_refused(coins: SeededCoins) -> None:
    mechanism = RAPPOR.calibrate(1.0, 2.0, bits=4, hashes=2, cohorts=1)
    tally = mechanism.tally(mechanism.randomize_many(["yes"] * 50, coins))
    with pytest.raises(InvalidInput, match="4 candidates need more than 4 bits of cohorts"):
        estimate_strings(mechanism, tally, ["a", "b", "c", "d"])
    key = mechanism.memo_key(bytes(2), "a")
    twin = next(s for s in map(str, range(99)) if mechanism.memo_key(bytes(2), s) == key)
    with pytest.raises(InvalidInput, match="some candidates set the same bits"):
        estimate_strings(mechanism, tally, ["a", twin])
    with pytest.raises(InvalidInput, match="one or more different strings"):
        estimate_strings(mechanism, tally, ["a", "a"])
    with pytest.raises(InvalidInput, match="one or more different strings"):
        estimate_strings(mechanism, tally, [])
    with pytest.raises(InvalidInput, match="a string is expected, got 3"):
        estimate_strings(mechanism, tally, ["a", 3])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match="there are no reports"):
        estimate_strings(mechanism, Tally.empty(mechanism.tally_size), ["a"])
