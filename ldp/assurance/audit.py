"""Privacy audits: the exact epsilon of a channel, and a lower bound on it from drawn reports.

An audit computes the epsilon of the channel that the mechanism declares, exactly, where that can
be enumerated, and a lower bound on the epsilon of the reports that its sampler draws. A sampler
that strays from its channel shows only in the second, a small excess only in the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from ldp.core.coins import Coins
from ldp.core.mechanism import Categorical, Codes, Mechanism
from ldp.errors import InvalidInput
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.sets.base import SetMechanism

MAX_CELLS = 1 << 16
"""The most cells, inputs times possible codes, of a channel that is enumerated."""

Draw = Callable[[Mechanism, Any, int, Coins], Codes]
"""Return n independent codes of one value, shape (n, *code_shape)."""

Statistic = Callable[[Codes], NDArray[np.integer[Any]]]
"""Map codes, shape (n, *code_shape), to small integers >= 0, shape (n,)."""

_FEW_ITEMS = 8
"""Items of the sets that are audited: a full set and the empty one are told apart best."""

_BITS = 6  # bits of a long code that one event looks at
_PREFIXES = 4096  # events tried for one pair of inputs


@dataclass(frozen=True)
class Audit:
    """The result of an audit; `str` returns it as a sentence.

    `exact` is the declared channel's epsilon, None where it was not enumerated (always for a
    positive delta). With probability at least `confidence` the sampler's epsilon at `delta` is
    at least `lower_bound`, witnessed by `inputs`: an event whose probability is at least
    `likely` for the first and at most `unlikely` for the second, by `draws` fresh reports each.
    """

    mechanism: str
    claimed: float
    exact: float | None
    lower_bound: float
    confidence: float
    delta: float
    inputs: tuple[Any, Any]
    likely: float
    unlikely: float
    draws: int

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted: for sure by `exact`, else at `confidence`."""
        return self.lower_bound > self.claimed or (
            self.exact is not None and self.exact > self.claimed
        )

    def __str__(self) -> str:
        exactly = "not enumerated" if self.exact is None else f"exactly {self.exact:.6g}"
        at = f" at delta {self.delta:g}" if self.delta else ""
        return (
            f"{self.mechanism}: {'VIOLATES' if self.violated else 'no violation of'} the "
            f"epsilon of {self.claimed:.6g} that it claims{at}; channel {exactly}; sampler at "
            f"least {self.lower_bound:.4g} "
            f"with confidence {self.confidence:g} (an event of probability >= {self.likely:.4g} "
            f"for input {self.inputs[0]}, <= {self.unlikely:.4g} for {self.inputs[1]}, "
            f"{self.draws} reports each)"
        )


def in_bulk(mechanism: Mechanism, value: Any, n: int, coins: Coins) -> Codes:
    """Draw n codes by one call of `randomize_many`."""
    return mechanism.randomize_many([value] * n, coins)


def one_by_one(mechanism: Mechanism, value: Any, n: int, coins: Coins) -> Codes:
    """Draw n codes by one call of `randomize` each, as a client with one answer does."""
    codes = [mechanism.randomize(value, coins) for _ in range(n)]
    return np.array(codes, dtype=mechanism.code_dtype)


def audit(
    mechanism: Mechanism,
    coins: Coins,
    *,
    values: Sequence[Any] | None = None,
    draws: int = 200_000,
    confidence: float = 0.99,
    delta: float = 0.0,
    draw: Draw = in_bulk,
    statistic: Statistic | None = None,
) -> Audit:
    """Bound epsilon from below for the pair of `values` that is easiest to tell apart.

    `values` are by default the first three categories and the last, the ends of the range, or
    three strings. Half of the `draws` for an input choose the pair and the event, by likelihood
    ratio: a set of codes, of values of six bits of long codes, or of values of the mechanism's
    `evidence` on the two inputs (with a random hash function no bit by itself depends on the
    input); given `statistic`, a set of its values. Then draws / 2 fresh reports of each input
    give Clopper-Pearson bounds at (1 - confidence) / 2, which hold jointly. So a sound mechanism is
    accused with probability at most 1 - confidence, however many events were tried. Raises
    `InvalidInput` for fewer than 2 values or 100 draws, or a confidence or delta out of range.
    Source: Ding et al., "Detecting violations of differential privacy", CCS 2018; Jagielski,
    Ullman and Oprea, NeurIPS 2020, for the Clopper-Pearson bound.
    """
    values = _default_values(mechanism) if values is None else values
    if len(values) < 2 or draws < 100:
        raise InvalidInput(
            f"an audit takes at least 2 values and 100 draws, got {len(values)} and {draws}"
        )
    if not (0 < confidence < 1 and 0 <= delta < 1):
        raise InvalidInput(
            "confidence must lie strictly between 0 and 1 and delta in [0, 1), "
            f"got {confidence} and {delta}"
        )
    half, miss = draws // 2, (1 - confidence) / 2
    training = [draw(mechanism, value, half, coins) for value in values]
    pairs = [(i, j) for i in range(len(values)) for j in range(i)]
    events = [
        event
        for i, j in pairs
        for label in (
            [statistic]
            if statistic
            else [_label(training[i], training[j]), _evidence(mechanism, (values[i], values[j]))]
        )
        for event in _events(training[i], training[j], (i, j), label, miss, delta)
    ]
    best = max(events, key=lambda event: event.promise)
    first, second = (values[i] for i in best.inputs)
    likely, unlikely = _clopper_pearson(
        best.count(draw(mechanism, first, half, coins)),
        best.count(draw(mechanism, second, half, coins)),
        half,
        miss,
    )
    return Audit(
        mechanism=repr(mechanism),
        claimed=mechanism.epsilon,
        exact=None if delta else _exact(mechanism),
        lower_bound=float(_log_ratio(likely, unlikely, delta)),
        confidence=confidence,
        delta=delta,
        inputs=(first, second),
        likely=float(likely),
        unlikely=float(unlikely),
        draws=half,
    )


@dataclass(frozen=True, eq=False)
class _Event:
    """A set of labels of codes, the pair of inputs it separates, and the log-ratio it promises."""

    label: Callable[[Codes], NDArray[np.integer[Any]]]
    members: NDArray[np.integer[Any]]
    inputs: tuple[int, int]
    promise: float

    def count(self, codes: Codes) -> int:
        return int(np.isin(self.label(codes), self.members).sum())


def _default_values(mechanism: Mechanism) -> Sequence[Any]:
    if isinstance(mechanism, Categorical):
        return sorted({0, 1, min(2, mechanism.k - 1), mechanism.k - 1})
    if isinstance(mechanism, SetMechanism):
        most = min(mechanism.largest, _FEW_ITEMS)
        return [(), tuple(range(most)), tuple(range(mechanism.items - most, mechanism.items))]
    return mechanism.bounds if isinstance(mechanism, MeanMechanism) else ("a", "b", "c")


def _evidence(mechanism: Mechanism, pair: tuple[Any, Any]) -> Statistic:
    """Return the statistic 256 * evidence(first) + evidence(second), each capped at 255."""

    def statistic(codes: Codes) -> NDArray[np.integer[Any]]:
        first, second = (np.minimum(mechanism.evidence(codes, value), 255) for value in pair)
        return first << 8 | second

    return statistic


def _exact(mechanism: Mechanism) -> float | None:
    inputs = max(mechanism.tally_size, mechanism.parameters)
    if inputs.bit_length() + 8 * mechanism.code_bytes > MAX_CELLS.bit_length():
        return None
    try:
        return mechanism.channel().epsilon
    except InvalidInput:
        return None


def _events(
    a: Codes,
    b: Codes,
    inputs: tuple[int, int],
    label: Statistic,
    miss: float,
    delta: float,
) -> list[_Event]:
    """Return, for each direction, the union of likeliest labels with the largest lower bound.

    One half of the codes ranks the labels, the other tells how many of them to take: many rare
    labels would otherwise look better than they are.
    """
    size = 1 + int(max(label(codes).max() for codes in (a, b)))
    rank, test = (
        [np.bincount(label(codes[half::2]), minlength=size) for codes in (a, b)] for half in (0, 1)
    )
    events = []
    for own, other in ((0, 1), (1, 0)):
        order = np.argsort(-(rank[own] + 0.5) / (rank[other] + 0.5), kind="stable")[:_PREFIXES]
        likely, unlikely = (np.cumsum(test[i][order]) for i in (own, other))
        promise = _log_ratio(*_clopper_pearson(likely, unlikely, len(a) // 2, miss), delta)
        best = int(np.argmax(promise))
        events.append(
            _Event(label, order[: best + 1], (inputs[own], inputs[other]), float(promise[best]))
        )
    return events


def _label(a: Codes, b: Codes) -> Statistic:
    """Return a statistic: short codes themselves, or the bits that differ most in frequency."""
    if a[0].nbytes <= 2:
        return lambda codes: _octets(codes) @ (1 << 8 * np.arange(a[0].nbytes))
    gap = np.abs(_bit_counts(a) - _bit_counts(b))
    chosen = np.sort(np.argsort(-gap, kind="stable")[:_BITS])

    def bits(codes: Codes) -> NDArray[np.integer[Any]]:
        octets = _octets(codes)[:, chosen >> 3]
        return ((octets >> (chosen & 7).astype(np.uint8)) & 1) @ (1 << np.arange(chosen.size))

    return bits


def _octets(codes: Codes) -> NDArray[np.uint8]:
    return np.ascontiguousarray(codes).reshape(len(codes), -1).view(np.uint8)


def _bit_counts(codes: Codes) -> NDArray[np.int64]:
    octets = _octets(codes)
    counts = np.zeros(8 * octets.shape[1], dtype=np.int64)
    for start in range(0, len(octets), 4096):
        block = np.unpackbits(octets[start : start + 4096], axis=1, bitorder="little")
        counts += block.sum(axis=0, dtype=np.int64)
    return counts


def _clopper_pearson(
    likely: ArrayLike, unlikely: ArrayLike, n: int, miss: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a lower bound for the first count's probability and an upper for the second's.

    Each fails with probability at most `miss` (Clopper and Pearson, Biometrika 26, 1934).
    """
    x, y = np.asarray(likely, dtype=float), np.asarray(unlikely, dtype=float)
    low = np.where(x > 0, betaincinv(np.maximum(x, 1), n - x + 1, miss), 0.0)
    high = np.where(y < n, betaincinv(y + 1, np.maximum(n - y, 1), 1 - miss), 1.0)
    return low, high


def _log_ratio(
    likely: NDArray[np.float64], unlikely: NDArray[np.float64], delta: float
) -> NDArray[np.float64]:
    """Return ln((likely - delta) / unlikely), 0 where that proves nothing."""
    ratio: NDArray[np.float64] = np.log(np.maximum((likely - delta) / unlikely, 1))
    return ratio
