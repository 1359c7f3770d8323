"""Calibration of noise, steps or sampling rate to a target (epsilon, delta), never beyond it.

Each question takes an accountant, whose history counts towards the target and does not change,
and returns a value that was itself accounted for and kept (epsilon, delta). Cost: 10 to 15
answers of the accountant, of `PLDAccountant` 0.1 to 0.5 s each.
"""

import math
from collections.abc import Callable

from dpsgd.accounting.accountant import Accountant, check_guarantee
from dpsgd.accounting.events import Event, PoissonSampling, Sampling, check_delta, check_epsilon
from ldp import InvalidInput

_PRECISION = 1e-6
_MOST_STEPS = 2**40


def calibrate_noise_multiplier(
    accountant: Accountant, epsilon: float, delta: float, *, sampling: Sampling, steps: int
) -> float:
    """Return a noise multiplier with which `steps` more steps keep (epsilon, delta).

    At most 1e-6 of itself above the least. Raises `InvalidInput` where no noise suffices (the
    history, or the accountant's lowest bound, is above the target) and where any does.
    """

    def spent(noise: float) -> float:
        return accountant.after(Event(noise, sampling, steps)).get_epsilon(delta)

    _check_target(accountant, epsilon, delta)
    noise = 1.0
    while spent(noise) > epsilon:
        noise *= 2
        if noise > 1e12:
            raise InvalidInput(
                f"no noise multiplier brings {accountant.name} to epsilon {epsilon:g} at delta "
                f"{delta:g}"
            )
    found = _farthest(spent, epsilon, noise, 0.5, _PRECISION)
    if found < 1e-12:
        raise InvalidInput("every noise multiplier keeps the target: nothing is released")
    return found


def calibrate_steps(
    accountant: Accountant,
    epsilon: float,
    delta: float,
    *,
    noise_multiplier: float,
    sampling: Sampling,
) -> int:
    """Return the most further steps that keep (epsilon, delta), 0 if none does.

    Raises `InvalidInput` where the history is above the target, and where 2**40 steps keep it.
    """

    def spent(steps: float) -> float:
        return accountant.after(Event(noise_multiplier, sampling, int(steps))).get_epsilon(delta)

    _check_target(accountant, epsilon, delta)
    if spent(1) > epsilon:
        return 0
    found = int(_farthest(spent, epsilon, 1, 2, 0))
    if found > _MOST_STEPS:
        raise InvalidInput(f"more than {_MOST_STEPS} steps keep the target: it is no limit")
    return found


def calibrate_sampling_rate(
    accountant: Accountant, epsilon: float, delta: float, *, noise_multiplier: float, steps: int
) -> float:
    """Return a Poisson rate at which `steps` more steps keep (epsilon, delta).

    At most 1e-6 of itself below the largest; 1 if every record may be used. Raises
    `InvalidInput` where the history is above the target, and where no rate above 1e-12 keeps it.
    """

    def spent(rate: float) -> float:
        event = Event(noise_multiplier, PoissonSampling(rate), steps)
        return accountant.after(event).get_epsilon(delta)

    _check_target(accountant, epsilon, delta)
    rate = 1.0
    while spent(rate) > epsilon:
        rate /= 2
        if rate < 1e-12:
            raise InvalidInput(f"no sampling rate keeps epsilon {epsilon:g} at delta {delta:g}")
    return rate if rate == 1 else _farthest(spent, epsilon, rate, 2, _PRECISION)


def _farthest(
    spent: Callable[[float], float], epsilon: float, kept: float, factor: float, precision: float
) -> float:
    """Return the farthest value from `kept`, in the direction of `factor`, that spends at most
    epsilon: to within `precision` of itself, or exactly of whole numbers if that is 0.

    It is bracketed by multiplying with the factor, up to 1e-12 or 2**41; then lines are drawn
    through the logarithms of values and epsilons (Illinois rule), which take few more.
    """

    def gap(value: float) -> float:
        found = spent(value)
        if not 0 < found < math.inf or epsilon == 0:
            return 40.0 if found > epsilon else -40.0
        return math.log(found / epsilon) or -1e-300

    far, below = kept * factor, -40.0
    while (above := gap(far)) < 0:
        kept, far, below = far, far * factor, above
        if not 1e-12 < far < 2**41:
            return far
    last = 0
    while abs(far - kept) > (width := precision * min(kept, far) or 1):
        guess = far * math.exp(above / (above - below) * math.log(kept / far))
        near = min(0.9 * width if precision else 1, abs(far - kept) / 2)
        guess = min(max(guess, min(kept, far) + near), max(kept, far) - near)
        guess = guess if precision else float(math.floor(guess))
        found = gap(guess)
        if found < 0:
            kept, below, above = guess, found, above / 2 if last < 0 else above
        else:
            far, above, below = guess, found, below / 2 if last > 0 else below
        last = -1 if found < 0 else 1
    return kept


def _check_target(accountant: Accountant, epsilon: float, delta: float) -> None:
    check_epsilon(epsilon)
    check_delta(delta)
    check_guarantee(accountant)
    spent = accountant.get_epsilon(delta)
    if spent > epsilon:
        raise InvalidInput(
            f"the history already has epsilon {spent:.6g} at delta {delta:g}, above the target "
            f"{epsilon:g}"
        )
