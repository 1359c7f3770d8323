"""Calibration lands on the target from its private side."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from dpsgd.accounting import (
    Accountant,
    CentralLimitApproximation,
    GDPAccountant,
    MomentsAccountant,
    NoSampling,
    PoissonSampling,
    RDPAccountant,
    Relation,
    Sampling,
    calibrate_noise_multiplier,
    calibrate_sampling_rate,
    calibrate_steps,
    gaussian_epsilon,
)
from dpsgd.accounting.pld import PLDAccountant
from ldp import InvalidInput

DELTA = 1e-5
MNIST = PoissonSampling(256 / 60_000)


def fresh(kind: type[Accountant] = RDPAccountant) -> Accountant:
    return kind(Relation.ADD_REMOVE)


def spends(kind: type[Accountant], noise: float, sampling: Sampling, steps: int) -> float:
    accountant = fresh(kind)
    accountant.step(noise_multiplier=noise, sampling=sampling, steps=steps)
    return accountant.get_epsilon(DELTA)


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        pytest.param(RDPAccountant, 2.1780, id="rdp"),
        pytest.param(PLDAccountant, 2.0251, id="pld", marks=pytest.mark.slow),
    ],
)
def test_noise_is_the_least_that_keeps_the_target(kind: type[Accountant], known: float) -> None:
    noise = calibrate_noise_multiplier(fresh(kind), 1.0, DELTA, sampling=MNIST, steps=14_062)
    assert noise == pytest.approx(known, abs=1e-4)
    assert spends(kind, noise, MNIST, 14_062) <= 1.0
    assert spends(kind, noise * (1 - 2e-6), MNIST, 14_062) > 1.0


def test_an_answer_takes_few_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    ask = RDPAccountant.get_epsilon

    def counted(accountant: RDPAccountant, delta: float) -> float:
        asked.append(delta)
        return ask(accountant, delta)

    monkeypatch.setattr(RDPAccountant, "get_epsilon", counted)
    for epsilon in (0.01, 1.0, 1e4):
        asked.clear()
        calibrate_noise_multiplier(fresh(), epsilon, DELTA, sampling=MNIST, steps=10**4)
        assert len(asked) <= 25


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [50.0, 400.0])
def test_a_large_epsilon_has_the_noise_of_the_exact_curve(epsilon: float) -> None:
    how: dict[str, Any] = {"sampling": NoSampling(), "steps": 100}
    exact = calibrate_noise_multiplier(fresh(GDPAccountant), epsilon, DELTA, **how)
    found = calibrate_noise_multiplier(fresh(PLDAccountant), epsilon, DELTA, **how)
    assert exact * (1 - 2e-6) < found < exact * (1 + 1e-5)


def test_unsampled_noise_is_the_least_of_one_gaussian() -> None:
    found = calibrate_noise_multiplier(
        fresh(GDPAccountant), 1.0, DELTA, sampling=NoSampling(), steps=16
    )
    assert gaussian_epsilon(found / 4, DELTA) <= 1.0 < gaussian_epsilon(found / 4.00001, DELTA)


def test_steps_are_the_most_that_keep_the_target() -> None:
    steps = calibrate_steps(fresh(), 1.0, DELTA, noise_multiplier=2.1781, sampling=MNIST)
    assert spends(RDPAccountant, 2.1781, MNIST, steps) <= 1.0
    assert spends(RDPAccountant, 2.1781, MNIST, steps + 1) > 1.0
    assert steps >= 14_062


def test_no_step_may_be_too_many() -> None:
    assert calibrate_steps(fresh(), 0.1, DELTA, noise_multiplier=0.5, sampling=NoSampling()) == 0


def test_the_rate_is_the_largest_that_keeps_the_target() -> None:
    rate = calibrate_sampling_rate(fresh(), 1.0, DELTA, noise_multiplier=2.0251, steps=14_062)
    assert spends(RDPAccountant, 2.0251, PoissonSampling(rate), 14_062) <= 1.0
    assert spends(RDPAccountant, 2.0251, PoissonSampling(rate * (1 + 2e-6)), 14_062) > 1.0


def test_every_record_may_be_used_where_noise_is_large() -> None:
    assert calibrate_sampling_rate(fresh(), 1.0, DELTA, noise_multiplier=1e4, steps=10) == 1.0


def test_what_was_spent_counts_and_stays() -> None:
    accountant = fresh()
    accountant.step(noise_multiplier=2.0, sampling=MNIST, steps=7_000)
    before = accountant.history
    least = calibrate_noise_multiplier(fresh(), 1.0, DELTA, sampling=MNIST, steps=7_000)
    noise = calibrate_noise_multiplier(accountant, 1.0, DELTA, sampling=MNIST, steps=7_000)
    assert accountant.history == before
    assert noise > least
    accountant.step(noise_multiplier=noise, sampling=MNIST, steps=7_000)
    assert 0.999 < accountant.get_epsilon(DELTA) <= 1.0


Question = Callable[[Accountant, float, float], float]
QUESTIONS: dict[str, Question] = {
    "noise": lambda a, e, d: calibrate_noise_multiplier(a, e, d, sampling=MNIST, steps=10),
    "steps": lambda a, e, d: calibrate_steps(a, e, d, noise_multiplier=2.0, sampling=MNIST),
    "rate": lambda a, e, d: calibrate_sampling_rate(a, e, d, noise_multiplier=2.0, steps=10),
}
every = pytest.mark.parametrize("name", QUESTIONS)


@every
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1.0, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 2.0)]
)
def test_a_bad_target_is_refused(name: str, epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidInput, match=r"epsilon must|delta must"):
        QUESTIONS[name](fresh(), epsilon, delta)


@every
def test_a_target_that_is_already_missed_is_refused(name: str) -> None:
    accountant = fresh()
    accountant.step(noise_multiplier=1.0, sampling=NoSampling())
    with pytest.raises(InvalidInput, match="the history already has epsilon"):
        QUESTIONS[name](accountant, 1.0, DELTA)


@every
def test_nothing_is_calibrated_to_an_approximation(name: str) -> None:
    with pytest.raises(InvalidInput, match="only approximates"):
        QUESTIONS[name](fresh(CentralLimitApproximation), 1.0, DELTA)


def test_a_target_that_the_accountant_cannot_show_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no noise multiplier brings moments"):
        calibrate_noise_multiplier(fresh(MomentsAccountant), 0.1, DELTA, sampling=MNIST, steps=10)


@pytest.mark.parametrize("change", [{"steps": 0}, {"sampling": PoissonSampling(0.0)}], ids=repr)
def test_noise_for_nothing_is_refused(change: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"sampling": MNIST, "steps": 10} | change
    with pytest.raises(InvalidInput, match="nothing is released"):
        calibrate_noise_multiplier(fresh(), 1.0, DELTA, **asked)


def test_steps_without_a_limit_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no limit"):
        calibrate_steps(fresh(), 1.0, DELTA, noise_multiplier=1.0, sampling=PoissonSampling(0.0))
