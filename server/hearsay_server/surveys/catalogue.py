"""The mechanisms, by their names in surveys and commands."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from hearsay.plans.kinds.words import MOST_COHORTS, Strings
from ldp.core.mechanism import Categorical, Mechanism
from ldp.errors import InvalidInput
from ldp.estimating.windows import best_wave
from ldp.mechanisms import CHAINS as _CHAINS
from ldp.mechanisms import (
    FREQUENCIES,
    NUMBERS,
    OTHER_FREQUENCIES,
    RAPPOR,
    PrefixHashing,
    SetMechanism,
    best_for_sets,
)
from ldp.mechanisms import SETS as _SETS
from ldp.mechanisms.numbers.hybrid import HybridMechanism
from ldp.mechanisms.numbers.laplace import LaplaceMechanism
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.numbers.mean_table import MAX_TABLE_GRID
from ldp.mechanisms.numbers.piecewise import PiecewiseMechanism
from ldp.mechanisms.ranges.waves import Waves
from ldp.planning import mean_design
from ldp.planning.choice import Choice, choose

_Maker = TypeVar("_Maker")

_MAX_BYTES = 32
"""Most bytes of a code that "auto" chooses; it stays within 2% of the minimax constant."""

_TABLES = 6.0
"""The epsilon up to which a table has less variance for the worst number than all others; beyond,
what rounding to its grid adds is more than what it saves."""


def automatic(k: int, epsilon: float) -> Choice:
    """Return the choice of "auto" for k categories, with its reasons."""
    return choose(k, epsilon, max_bytes=_MAX_BYTES)


def _auto_numeric(epsilon: float, steps: int = 0) -> MeanMechanism:
    # A table's few codes tell of the mean, not of the shares of so many points.
    if not steps and epsilon <= _TABLES:
        return mean_design.plain(epsilon)
    # For a mean the piecewise mechanism has the better window, and none must be searched for.
    names = [name for name in NUMBERS if not (steps and name == "square_wave")]
    every = [numeric(name, epsilon, steps) for name in names]
    return min(every, key=lambda mechanism: mechanism.largest_report_variance)


CATEGORICAL: Mapping[str, Callable[[int, float], Categorical]] = {
    "auto": lambda k, epsilon: automatic(k, epsilon).mechanism,
    **FREQUENCIES,
    **OTHER_FREQUENCIES,
}
"""Makers from (k, epsilon). "auto" is `ldp.planning.choice.choose` for at most 32 bytes a code."""


def _auto_chain(k: int, epsilon: float, memo_epsilon: float) -> Categorical:
    """Return the chain of least variance if all categories are equally frequent.

    The hash function of LOLOHA is sent with every report and tells which reports are of one
    device: LOLOHA is taken only where a unary code would be long.
    """
    names = ("krr_chain", "loloha") if k > 8 * _MAX_BYTES else ("krr_chain", "l_sue", "l_osue")
    built = [_CHAINS[name](k, epsilon, memo_epsilon) for name in names]
    return min(built, key=lambda chain: float(np.mean(chain.variance(1 / k, 1))))


CHAINS: Mapping[str, Callable[[int, float, float], Categorical]] = {
    "auto": _auto_chain,
    **_CHAINS,
}
"""Makers from (k, epsilon of a report, epsilon of a memo), of memos with fresh noise."""

NUMERIC: Mapping[str, Callable[[float], MeanMechanism]] = {
    "auto": _auto_numeric,
    **NUMBERS,
    "mean_table": mean_design.plain,
}
"""Makers from epsilon, of a mean; "auto" takes the least variance for the worst number."""

_STEPPED: Mapping[str, Callable[[float, int], MeanMechanism]] = {
    "auto": _auto_numeric,
    "piecewise": PiecewiseMechanism.optimal,
    "hybrid": HybridMechanism.optimal,
    "laplace": LaplaceMechanism,
    "square_wave": best_wave,
    "mean_table": lambda epsilon, steps: mean_design.plain(
        epsilon, steps if steps <= MAX_TABLE_GRID else mean_design.STEPS
    ),
}
"""Makers from epsilon and the number of steps, of mechanisms that can have a grid of so many."""


BINNED: Mapping[str, Callable[[tuple[int, ...], float], Waves]] = {"auto": Waves, "waves": Waves}
"""Makers from (bins of each number, epsilon), of the shares of ranges."""
SETS: Mapping[str, Callable[[int, int, float], SetMechanism]] = {"auto": best_for_sets, **_SETS}
"""Makers from (items, items of the largest set, epsilon); "auto" takes the least variance."""

_FEWEST_WORDS = 10_000
"""The fewest words of the longest length among which words are found: random ones, which devices
report for answers outside the domain, must be too rare to be found themselves."""


def _prefix_hashing(domain: Strings, epsilon: float, memo_epsilon: float) -> Mechanism:
    if memo_epsilon:
        raise InvalidInput("words that are found are reported afresh: a memo takes rappor")
    words = len(domain.alphabet) ** domain.longest
    if not domain.candidates and words < _FEWEST_WORDS:
        raise InvalidInput(
            f"{len(domain.alphabet)} letters make only {words:,} words of {domain.longest}: random "
            "ones in place of other answers could be found. Ask for one of categorical values, or "
            "list candidates"
        )
    make = PrefixHashing.whole if domain.candidates else PrefixHashing.over
    return make(domain.alphabet, domain.longest, epsilon)


def _rappor(domain: Strings, epsilon: float, memo_epsilon: float) -> Mechanism:
    if not domain.candidates:
        raise InvalidInput("rappor tells of listed words alone: list candidates")
    if not memo_epsilon > epsilon:
        raise InvalidInput(
            "rappor keeps an answer for life, with fresh noise in each report: declare a memo "
            "above 1, such as memo = 2"
        )
    # Words that collide in one of so many cohorts are told apart, and tallies remain small.
    # One hash has the least error: epsilon is shared by as many bits as a filter has.
    return RAPPOR.calibrate(epsilon, memo_epsilon, hashes=1, cohorts=MOST_COHORTS)


STRINGS: Mapping[str, Callable[[Strings, float, float], Mechanism]] = {
    "auto": lambda domain, epsilon, memo_epsilon: (_rappor if memo_epsilon else _prefix_hashing)(
        domain, epsilon, memo_epsilon
    ),
    "prefix_hashing": _prefix_hashing,
    "rappor": _rappor,
}
"""Makers from (words, epsilon of a report, epsilon of a memo or 0)."""


def categorical(name: str, k: int, epsilon: float) -> Categorical:
    """Calibrate the named mechanism for k categories; raise `InvalidInput` where it cannot be."""
    return _named(CATEGORICAL, name)(k, epsilon)


def chain(name: str, k: int, epsilon: float, memo_epsilon: float) -> Categorical:
    """Calibrate the named chain for k categories; raise `InvalidInput` where it cannot be."""
    return _named(CHAINS, name)(k, epsilon, memo_epsilon)


def numeric(name: str, epsilon: float, steps: int = 0) -> MeanMechanism:
    """Calibrate the named mechanism for numbers; raise `InvalidInput` where it cannot be.

    With `steps` the answers are steps + 1 points, and the mechanism's grid has these alone where
    it can: then no answer is rounded to a neighbour at random.
    """
    make = _named(NUMERIC, name)
    stepped = _STEPPED.get(name) if steps else None
    return stepped(epsilon, steps) if stepped else make(epsilon)


def binned(name: str, sides: tuple[int, ...], epsilon: float) -> Waves:
    """Calibrate the named mechanism for the bins of one number or two; raise `InvalidInput` for
    another name."""
    return _named(BINNED, name)(sides, epsilon)


def sets(name: str, items: int, most: int, epsilon: float) -> SetMechanism:
    """Calibrate the named mechanism for sets; raise `InvalidInput` where it cannot be."""
    return _named(SETS, name)(items, most, epsilon)


def strings(name: str, domain: Strings, epsilon: float, memo_epsilon: float) -> Mechanism:
    """Calibrate the named mechanism for words; raise `InvalidInput` where it cannot be.

    `memo_epsilon` is 0 without a memo. Where candidates are listed, all reports of prefix_hashing
    are of the whole word: it tells most of the list, and finds no other words.
    """
    return _named(STRINGS, name)(domain, epsilon, memo_epsilon)


def _named(makers: Mapping[str, _Maker], name: str) -> _Maker:
    if name not in makers:
        raise InvalidInput(f"mechanism must be one of {', '.join(makers)}, got {name!r}")
    return makers[name]
