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
    gap = _gap(accountant, epsilon, delta, lambda noise: Event(noise, sampling, steps))
    found = _farthest(gap, 0.5, _PRECISION)
    if found > 1e12:
        raise InvalidInput(
            f"no noise multiplier brings {accountant.name} to epsilon {epsilon:g} at delta "
            f"{delta:g}"
        )
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
    gap = _gap(accountant, epsilon, delta, lambda n: Event(noise_multiplier, sampling, int(n)))
    found = int(_farthest(gap, 2, 0))
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

    def event(rate: float) -> Event:
        return Event(noise_multiplier, PoissonSampling(rate), steps)

    gap = _gap(accountant, epsilon, delta, event)
    found = _farthest(gap, 2, _PRECISION) if gap(1.0) > 0 else 1.0
    if found < 1e-12:
        raise InvalidInput(f"no sampling rate keeps epsilon {epsilon:g} at delta {delta:g}")
    return found


def _gap(
    accountant: Accountant, epsilon: float, delta: float, event: Callable[[float], Event]
) -> Callable[[float], float]:
    """Return a function of values, which is > 0 where the event of a value exceeds the target."""
    check_epsilon(epsilon)
    check_delta(delta)
    check_guarantee(accountant)
    if (spent := accountant.get_epsilon(delta)) > epsilon:
        raise InvalidInput(
            f"the history already has epsilon {spent:.6g} at delta {delta:g}, above the target "
            f"{epsilon:g}"
        )

    def gap(value: float) -> float:
        found = accountant.after(event(value)).get_epsilon(delta)
        if not 0 < found < math.inf or epsilon == 0:
            return 40.0 if found > epsilon else -40.0
        return math.log(found / epsilon) or -1e-300

    return gap


def _farthest(gap: Callable[[float], float], factor: float, precision: float) -> float:
    """Return the farthest value in the direction of `factor` with a gap below 0: to within
    `precision` of itself, or exactly of whole numbers if that is 0.

    By the Illinois rule; a value beyond 1e-12 to 1e12 says that none, or any, will do.
    """
    kept, below = 1.0, -40.0
    while gap(kept) > 0:
        kept /= factor
        if not 1e-12 <= kept <= 1e12:
            return kept
    far = kept * factor
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
