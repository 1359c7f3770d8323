"""The noise of a training's rounds, from one seed, and its place on the grid of the sums.

What is released in round t are integers, in multiples of a public power of two (`spacing`):

    R_t = G_t + Y_t,    Y_t = rint(deviation_t xi_t) + u_t - rint(feedback_t(Y_1, .., Y_(t-1))),

G_t being the exact sum of the clipped updates (`ExactSum`), xi_t normal values, u_t independent
uniform integers (`KeyedNormals.integers`, at most deviation_t / 8192), and feedback_t a linear
function whose weights come from row t of the matrix C of `ldp.planning.prefix_sums`:
C_tt = deviation / deviation_t, and feedback_t = sum over s < t of (C_ts / C_tt) Y_s. Without
rounding, C Y = deviation xi, so that the sums up to each round have the noise A C^-1 xi.

**Proved, for normal values without error.** The releases R of all rounds, each of which may decide
what follows, are as hard to tell from those of a neighbour (one person's updates are zeros) as
N(0, 1) from N(mu, 1), mu = sensitivity / noise_multiplier:

1. Suppose that both data sets released the same R_1 .. R_(t-1), and call D = G' - G the difference
   of their sums. The noise that explains R is then Y - D in the other data set. R_t is
   rint(m_t + deviation_t xi_t) with the integer m_t = G_t + u_t - rint(feedback_t(Y)), and with
   another integer in the other one, even if the u were known. The two differ by
   (C D)_t / C_tt + e_t, |e_t| <= 2 in each coordinate: feedback is linear, each rint is off by
   1/2 at most, and the doubles that compute it by 1/2 more at most (`_Feedback.error`, which is
   checked, for normal values below 14: larger ones have a chance of 1e-44).
2. In units of deviation_t, the squared differences of all rounds add up to at most
   |C D + e'|^2 / deviation^2, where |e'|^2 <= 4 dimension (sum of C_tt^2). By the choice of
   `spacing` |e'| is at most 1/4096 of the sensitivity, by which deviation is widened. So they add
   up to at most mu^2, whatever was released.
3. Gaussian releases whose differences are chosen in the light of the past, with squares that add
   up to at most mu^2, are as hard to tell apart as N(0, 1) and N(mu, 1): spend what is left of mu^2
   on one more release. The log-likelihood ratio is then M - mu^2 / 2 with a martingale M of normal
   increments, whose variances add up to mu^2 on every path, so that M is N(0, mu^2):
   E exp(i theta M + theta^2 mu^2 / 2) = 1, round by round from the last. Rounding to integers and
   leaving out releases are post-processing.

A wrong last bit of the feedback is in e_t, and sums of integers are exact. What is left of floating
point is that normal values are doubles: 2^-51 off, up to 11 standard deviations. The chance of an
integer is then off by a part r = 2^-51 deviation_t / w of itself, w being the number of values of
u_t. That is 2^-38, and more only for deviations above 2^45. A person's updates move at most all
parameters of all rounds, and each adds 2 r^2 to mu^2: twice the relative entropy of two laws that
are uneven by r, independently of each other. Noise for which the sum can be above mu^2 / 4096 is
refused, so that mu is at most 1.00013 times what is accounted for.

**Not proved**: the r (measured: 2^-40 for deviations up to 2^44) and that it is independent from
integer to integer, that AES-256 cannot be told from random, and anything about timing.
"""

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import check_integer, check_positive
from dpsgd.federated.exact_sums import ExactSum
from dpsgd.noise.keyed import KeyedNormals
from dpsgd.noise.spacing import WIDENING, spacing_for
from ldp.errors import InvalidInput
from ldp.planning.prefix_sums import (
    PrefixSums,
    coefficients,
    height_variance,
    sensitivity,
)

_PART = 1 << 14
_BEYOND = 14.0
"""No normal value is as large (`KeyedNormals`)."""

Floats = NDArray[np.float64]


class RoundNoise:
    """The noise of every round of one training, which a 32-byte seed fixes to the last bit.

    `mechanism`, `rounds`, `bands`, `participations` and `separation` as in
    `ldp.planning.prefix_sums`; updates have L2 norm `max_update_norm` at most, and the noise
    `noise_multiplier` times that as its standard deviation before it is correlated.

    Guarantee: all that `release` returns is a Gaussian mechanism with noise of noise_multiplier
    over sensitivity (see the module), and rho-zCDP with `prefix_sums.rho`, for the updates of one
    person made zeros. Conditions: the seed is secret and serves one training alone; nobody takes
    part more often or at less distance; and no round is released twice with different updates.
    Raises `InvalidInput` where a number is refused there, the seed has not 32 bytes, or doubles are
    too coarse for the integers.
    Cost: a round after the last one takes a normal value and bands - 1 products for each parameter
    (of a tree: log2 rounds), and so many float64 vectors are kept. Any other round is made by going
    through all rounds before it.
    """

    def __init__(
        self,
        mechanism: PrefixSums,
        *,
        rounds: int,
        bands: int = 0,
        participations: int,
        separation: int,
        noise_multiplier: float,
        max_update_norm: float,
        dimension: int,
        seed: bytes,
    ) -> None:
        check_integer("dimension", dimension, 1)
        check_positive("max_update_norm", max_update_norm)
        most = sensitivity(mechanism, rounds, bands, participations, separation) * max_update_norm
        deviation = (
            check_positive("noise_multiplier", noise_multiplier) * max_update_norm * WIDENING
        )
        self._normals = KeyedNormals(seed)
        self._feedback: _Feedback = _Tree(rounds) if mechanism == "tree" else _Toeplitz(bands)
        steps = 4 * dimension * math.ceil(rounds * self._feedback.square)
        self.spacing = spacing_for(most, steps, deviation)
        self._deviation = deviation / self.spacing
        largest = _BEYOND * self._deviation * self._feedback.growth(rounds)
        # A neighbour explains a release by noise that has its updates in it, too.
        largest += participations * max_update_norm / self.spacing
        uneven = 2.0**-51 * max(2.0**13, self._deviation / self._normals.width(self._deviation))
        revealed = 2 * dimension * rounds * uneven**2  # at most, of mu^2
        if (
            not largest * self._feedback.error(rounds) <= 0.5
            or largest > 2.0**50
            or not revealed <= (most / (noise_multiplier * max_update_norm)) ** 2 / 4096
        ):
            raise InvalidInput(
                f"noise of {noise_multiplier:g} for {rounds} rounds of {dimension} parameters is "
                "too fine for doubles: fewer rounds, parameters, bands or less noise"
            )
        self._dimension, self._rounds, self._norm = dimension, rounds, float(max_update_norm)
        self._at = 0  # the last round whose noise is in the feedback
        self.sum()

    def sum(self) -> ExactSum:
        """Return an empty sum for the updates of a round."""
        return ExactSum(self._dimension, self._norm, self.spacing)

    def release(self, number: int, total: ExactSum, *, since: int | None = None) -> Floats:
        """Return the noisy sum of round `number`, from 1, float64 of shape (dimension,).

        `since` is the last round before it that was released, 0 before the first; by default
        number - 1. Rounds between were dropped: nothing of them was released, and their noise is
        added to this round's, so that it goes on cancelling. Divide by a public number afterwards.
        Raises `InvalidInput` unless 0 <= since < number <= rounds, and for a sum of another
        training.
        """
        since = number - 1 if since is None else check_integer("since", since, 0)
        if not since < check_integer("round", number, 1) <= self._rounds:
            raise InvalidInput(
                f"the round must be in {since + 1}..{self._rounds}, after round {since}, "
                f"got {number}"
            )
        if total.spacing != self.spacing or total.dimension != self._dimension:
            raise InvalidInput("the sum must be made by `sum` of the same training's noise")
        if self._at > since:
            self._feedback, self._at = self._feedback.restarted(), 0
        if not self._feedback.remembers:
            self._at = since
        noise = np.zeros(self._dimension, dtype=np.int64)
        while self._at < number:
            made = self._next()
            if self._at > since:
                noise += made.astype(np.int64)
        noisy: Floats = (total.units + noise) * np.float64(self.spacing)
        return noisy

    def _next(self) -> Floats:
        """Return the noise of the next round, in integers, and keep it for those after it."""
        deviation = self._deviation * self._feedback.narrowing(self._at)
        made = self._normals.integers(self._at, self._dimension, deviation)
        vectors, weights = self._feedback.past(self._at)
        room, total = np.empty((2, min(_PART, self._dimension)))
        for start in range(0, self._dimension if vectors else 0, _PART):
            part = made[start : start + _PART]
            fed_back, product = total[: part.size], room[: part.size]
            fed_back[:] = 0
            for vector, weight in zip(vectors, weights, strict=True):
                np.multiply(vector[start : start + _PART], weight, out=product)
                fed_back += product
            part -= np.rint(fed_back)
        self._feedback.keep(self._at, made)
        self._at += 1
        return made


class _Feedback(ABC):
    """What of the noise of earlier rounds is taken from a round's; rounds here count from 0."""

    remembers = True
    square = 1.0
    """A bound on every C_tt^2."""

    @abstractmethod
    def growth(self, rounds: int) -> float:
        """Bound how much larger than the largest normal value what `past` returns can be."""

    @abstractmethod
    def error(self, rounds: int) -> float:
        """Bound the error of the feedback in doubles, over the largest value of `past`."""

    @abstractmethod
    def narrowing(self, at: int) -> float:
        """Return 1 / C_tt."""

    @abstractmethod
    def past(self, at: int) -> tuple[list[Floats], list[float]]:
        """Return vectors and their weights in the feedback of a round."""

    @abstractmethod
    def keep(self, at: int, made: Floats) -> None:
        """Take the noise of a round."""

    @abstractmethod
    def restarted(self) -> "_Feedback":
        """Return the feedback before the first round."""


class _Toeplitz(_Feedback):
    """C_ts = c_(t-s) for the rounds of the bands."""

    def __init__(self, bands: int) -> None:
        self._bands = bands
        self._weights = (coefficients(bands) * 2.0**-32).tolist()
        self._past: list[Floats] = []  # the latest round first
        self.remembers = bands > 1

    def growth(self, rounds: int) -> float:
        # The largest row of |C^-1|, by the recurrence of its coefficients.
        weights = np.array(self._weights[:0:-1])
        inverse = np.zeros(weights.size + rounds)
        inverse[weights.size] = 1
        for t in range(weights.size + 1, inverse.size if weights.size else 0):
            inverse[t] = -(weights @ inverse[t - weights.size : t])
        return float(np.abs(inverse).sum()) * 1.001 + 1

    def error(self, rounds: int) -> float:
        return float((self._bands + 1) * sum(self._weights)) * 2.0**-53

    def narrowing(self, at: int) -> float:
        return 1.0

    def past(self, at: int) -> tuple[list[Floats], list[float]]:
        return self._past, self._weights[1 : 1 + len(self._past)]

    def keep(self, at: int, made: Floats) -> None:
        if self.remembers:
            self._past = [made, *self._past[: self._bands - 2]]

    def restarted(self) -> "_Toeplitz":
        return _Toeplitz(self._bands)


class _Tree(_Feedback):
    """The lower triangle C with the products of columns of the tree's: C^T C = N^T N.

    The noise N^+ xi of the least squares estimate has the density exp(-1/2 sum over nodes of
    (sum of the noise below the node)^2), and so has C^-1 xi, round by round: given the rounds
    before, round t depends on the sums of the complete nodes to the left of its path alone.
    """

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._height = (rounds - 1).bit_length()
        self._sums: dict[int, Floats] = {}  # of the complete nodes left of the path, by height
        self.square = self._height + 1.0  # `_row` adds 1 at most at each height

    def growth(self, rounds: int) -> float:
        # The least squares estimate of a node's sum has variance 1 at most: so, too, the squares
        # of its weights of normal values add up to 1 at most, and their sizes to sqrt(rounds).
        return math.sqrt(rounds)

    def error(self, rounds: int) -> float:
        return (self._height + 1) ** 2 * 2.0**-53

    def narrowing(self, at: int) -> float:
        return self._row(at)[0]

    def past(self, at: int) -> tuple[list[Floats], list[float]]:
        weights = self._row(at)[1]
        return [self._sums[height] for height in weights], list(weights.values())

    def _row(self, at: int) -> tuple[float, dict[int, float]]:
        """Return 1 / C_tt and the weight of each sum, going down the path to round `at`.

        Above a node, the density of its sum S is exp(-1/2 precision (S + offset)^2), with what is
        to the right of the path integrated out. The offset combines sums on the left.
        """
        precision, offset = 0.0, dict[int, float]()
        for height in range(self._height - 1, -1, -1):
            with_own = precision + 1  # the node's own term S^2
            offset = {left: w * precision / with_own for left, w in offset.items()}
            if at >> height & 1:  # the right child: S is its sum and the left one's
                precision = with_own
                offset[height] = 1.0
            else:  # the left child: the right one's sum has its own variance
                precision = 1 / (1 / with_own + float(height_variance(height)))
        with_own = precision + 1
        weights = {left: w * precision / with_own for left, w in offset.items()}
        return 1 / math.sqrt(with_own), weights

    def keep(self, at: int, made: Floats) -> None:
        height, total = 0, made
        while at >> height & 1:
            total = total + self._sums.pop(height)
            height += 1
        self._sums[height] = total

    def restarted(self) -> "_Tree":
        return _Tree(self._rounds)
