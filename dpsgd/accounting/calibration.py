"""Calibration of noise, steps or sampling rate to a target (epsilon, delta), never beyond it.

Each question takes an accountant, whose history counts towards the target and does not change,
and returns a value that was itself accounted for and kept (epsilon, delta).
"""

from dpsgd.accounting.accountant import Accountant
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

    def keeps(noise: float) -> bool:
        return _keeps(accountant, epsilon, delta, noise, sampling, steps)

    _check_target(accountant, epsilon, delta)
    high = 1.0
    while not keeps(high):
        high *= 2
        if high > 1e12:
            raise InvalidInput(
                f"no noise multiplier brings {accountant.name} to epsilon {epsilon:g} at delta "
                f"{delta:g}"
            )
    low = high / 2
    while keeps(low):
        low, high = low / 2, low
        if low < 1e-12:
            raise InvalidInput("every noise multiplier keeps the target: nothing is released")
    while high - low > _PRECISION * low:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


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

    def keeps(steps: int) -> bool:
        return _keeps(accountant, epsilon, delta, noise_multiplier, sampling, steps)

    _check_target(accountant, epsilon, delta)
    low, high = 0, 1
    while keeps(high):
        low, high = high, 2 * high
        if high > _MOST_STEPS:
            raise InvalidInput(f"more than {low} steps keep the target: it is no limit")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def calibrate_sampling_rate(
    accountant: Accountant, epsilon: float, delta: float, *, noise_multiplier: float, steps: int
) -> float:
    """Return a Poisson rate at which `steps` more steps keep (epsilon, delta).

    At most 1e-6 of itself below the largest; 1 if every record may be used. Raises
    `InvalidInput` where the history is above the target, and where no rate above 1e-12 keeps it.
    """

    def keeps(rate: float) -> bool:
        sampling = PoissonSampling(rate)
        return _keeps(accountant, epsilon, delta, noise_multiplier, sampling, steps)

    _check_target(accountant, epsilon, delta)
    if keeps(1.0):
        return 1.0
    low, high = 0.5, 1.0
    while not keeps(low):
        low, high = low / 2, low
        if high < 1e-12:
            raise InvalidInput(f"no sampling rate keeps epsilon {epsilon:g} at delta {delta:g}")
    while high - low > _PRECISION * low:
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _keeps(
    accountant: Accountant,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    sampling: Sampling,
    steps: int,
) -> bool:
    return accountant.after(Event(noise_multiplier, sampling, steps)).get_epsilon(delta) <= epsilon


def _check_target(accountant: Accountant, epsilon: float, delta: float) -> None:
    check_epsilon(epsilon)
    check_delta(delta)
    if not accountant.is_guarantee:
        raise InvalidInput(f"{accountant.name} is no guarantee: nothing is calibrated to it")
    spent = accountant.get_epsilon(delta)
    if spent > epsilon:
        raise InvalidInput(
            f"the history already has epsilon {spent:.6g} at delta {delta:g}, above the target "
            f"{epsilon:g}"
        )
