"""What codes under a policy name and give away, exactly, from the plan's integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldp import Tally
from ldp.core.exact import ONE
from ldp.mechanisms import PolicyMeanTable, PolicySubsets, PolicyUnary

_ROUNDING = Fraction(1, 10**9)
"""By how much likelihoods may differ that count as equal."""


@dataclass(frozen=True)
class Chances:
    """How often a code names a value: the values of one class fare alike."""

    own: Fraction
    """The chance that a code names the value of the person who sends it."""
    other: Fraction
    """The largest chance that it does so for a person with another value."""
    reveals: Fraction
    """The chance that the person sends a code that nobody with another value sends."""


def chances(mechanism: PolicyUnary | PolicySubsets) -> list[Chances]:
    """Return by value how often codes name it, and give it away."""
    by_class = _of_bits(mechanism) if isinstance(mechanism, PolicyUnary) else _of_sets(mechanism)
    return [by_class[each] for each in mechanism.promise.classes]


def named(mechanism: PolicyUnary | PolicySubsets, tally: Tally) -> tuple[NDArray[np.bool_], bool]:
    """Return which values one code names, shape (k,), and whether it reveals the one it names.

    `tally` is that of the code alone. A code of bits names the values whose bits are 1, unless
    one of these is never 1 for others: then this one alone. A subset names the values for which
    it is the likeliest.
    """
    classes = np.array(mechanism.promise.classes)
    if isinstance(mechanism, PolicyUnary):
        ones = tally.counts > 0
        sure = ones & np.isin(classes, sure_bits(mechanism))
        return (sure, True) if sure.any() else (ones, False)
    types = tally.counts[: mechanism.types]
    kind = int(types.argmax())
    within = tally.counts[mechanism.types :].reshape(mechanism.types, mechanism.k)[kind] > 0
    return np.array(likeliest(mechanism)[kind])[classes, within.astype(int)], kind in revealing(
        mechanism
    )


def sure_bits(mechanism: PolicyUnary) -> list[int]:
    """Return the classes of which a bit is 1 for nobody but those with its value."""
    return [each for each, other in enumerate(mechanism.other) if not other]


def likeliest(mechanism: PolicySubsets) -> list[list[tuple[bool, bool]]]:
    """Return by type and class whether a subset is the likeliest for the class's values outside
    of it, and for those in it."""
    found = []
    for kind in range(mechanism.types):
        levels = [_levels(mechanism, each, kind) for each in _classes(mechanism)]
        # But for rounding: integers are within 2**-64 of what was designed.
        least = max(max(pair) for pair in levels) * (1 - _ROUNDING)
        found.append([(outside >= least, inside >= least) for outside, inside in levels])
    return found


def revealing(mechanism: PolicySubsets) -> list[int]:
    """Return the types whose subsets are possible for one value alone."""
    found = []
    for kind in range(mechanism.types):
        possible = 0
        for each in _classes(mechanism):
            outside, inside = _weights(mechanism, each, kind)
            size, count = _size(mechanism, each, kind)
            possible += (size if inside else 0) + (count - size if outside else 0)
        if possible == 1:
            found.append(kind)
    return found


def telling(mechanism: PolicyMeanTable) -> NDArray[np.bool_]:
    """Return by grid point and code whether the code tells that a number is not protected.

    It does where it is more than e**epsilon times as likely for the grid point as for every
    protected one: shape (points, codes), all False where all numbers are protected.
    """
    promise = mechanism.promise
    protected = [own not in promise.ordinary for own in promise.classes]
    matrix = mechanism.matrix()
    limit = np.exp(mechanism.epsilon) * (1 + 1e-9)
    tells: NDArray[np.bool_] = matrix > limit * matrix[protected].max(axis=0)
    return tells


def _of_bits(mechanism: PolicyUnary) -> list[Chances]:
    found = []
    for own, other in zip(mechanism.own, mechanism.other, strict=True):
        p, q = Fraction(own, ONE), Fraction(other, ONE)
        found.append(Chances(p, q, p if not q else Fraction(0)))
    return found


def _of_sets(mechanism: PolicySubsets) -> list[Chances]:
    names, sure = likeliest(mechanism), revealing(mechanism)
    found = []
    for each in _classes(mechanism):
        own = reveals = Fraction(0)
        for kind in range(mechanism.types):
            weights = _weights(mechanism, each, kind)
            own += sum(
                (w for w, is_named in zip(weights, names[kind][each], strict=True) if is_named),
                Fraction(0),
            )
            reveals += sum(weights) if kind in sure else 0
        others = (_seen_by(mechanism, names, each, other) for other in _classes(mechanism))
        found.append(Chances(own, max(others), reveals))
    return found


def _seen_by(
    mechanism: PolicySubsets, names: list[list[tuple[bool, bool]]], named: int, other: int
) -> Fraction:
    """Return the chance that a code of a value of one class names a certain other value."""
    total = Fraction(0)
    for kind in range(mechanism.types):
        size, count = _size(mechanism, named, kind)
        if_out, if_in = names[kind][named]
        # What of the class is drawn besides the sender's own value, and from how many.
        for own_in, weight in enumerate(_weights(mechanism, other, kind)):
            drawn, of = (size - own_in, count - 1) if named == other else (size, count)
            if of and weight:
                total += weight * Fraction(if_in * drawn + if_out * (of - drawn), of)
    return total


def _classes(mechanism: PolicySubsets) -> range:
    return range(len(mechanism.promise.sizes))


def _size(mechanism: PolicySubsets, each: int, kind: int) -> tuple[int, int]:
    """Return how many of a class's values are in a type's subsets, and how many it has."""
    sizes: Sequence[int] = mechanism.promise.sizes
    return mechanism.sizes[len(sizes) * kind + each], sizes[each]


def _weights(mechanism: PolicySubsets, each: int, kind: int) -> tuple[Fraction, Fraction]:
    """Return the chances of a type and that a class's value is outside of its subset, or in it."""
    at = 2 * mechanism.types * each + kind
    weights = mechanism.weights
    return Fraction(weights[at + mechanism.types], ONE), Fraction(weights[at], ONE)


def _levels(mechanism: PolicySubsets, each: int, kind: int) -> tuple[Fraction, Fraction]:
    """Return how likely one subset is, but for a factor of the type's: for a class's values
    outside of it, and in it; -1 where there are none."""
    outside, inside = _weights(mechanism, each, kind)
    size, count = _size(mechanism, each, kind)
    none = Fraction(-1)
    return (
        outside * count / (count - size) if size < count else none,
        inside * count / size if size else none,
    )
