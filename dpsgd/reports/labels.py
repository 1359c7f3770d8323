"""Randomised labels for training: RRWithPrior, and the two stages that give it its priors.

Label privacy: a label is protected, its features are not. The trainer knows the features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp import KRR, Channel, Coins, InvalidInput
from ldp.core.exact import check_epsilon

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class RRWithPrior:
    """Randomised response among the s likeliest labels under a prior.

    A label among the s likeliest under the prior goes through s-RR, any other becomes one of
    them, uniformly; s maximises the prior chance that the true label is reported.
    Guarantee: epsilon-LDP for every pair of labels, exactly, and every prior that does not depend
    on this label; it may depend on its features, and on other labels' reports.
    Source: Ghazi, Golowich, Kumar, Manurangsi and Zhang, "Deep learning with label differential
    privacy", NeurIPS 2021, algorithms 2 and 3.
    """

    k: int
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        KRR(self.k, self.epsilon)  # checks k

    def sizes(self, priors: ArrayLike) -> NDArray[np.int64]:
        """Return the number s of labels that each prior, shape (n, k), lets be reported, (n,)."""
        return self._ranked(priors)[1]

    def randomize_many(self, labels: ArrayLike, priors: ArrayLike, coins: Coins) -> Labels:
        """Return one label for each of `labels`, shape (n,), given its prior, shape (n, k).

        Raises `InvalidInput` for labels outside 0..k-1, and for priors that are none.
        """
        array = _check_labels(labels, self.k)
        order, sizes = self._ranked(priors)
        if len(order) != array.size:
            raise InvalidInput(f"{array.size} labels have as many priors, got {len(order)}")
        ranks = np.argmax(order == array[:, np.newaxis], axis=1)
        reported = np.zeros(array.size, dtype=np.int64)
        for size in np.unique(sizes[sizes > 1]).tolist():  # of one, the likeliest label for all
            rows = np.flatnonzero(sizes == size)
            inside = ranks[rows] < size
            krr = KRR(size, self.epsilon)
            reported[rows[inside]] = krr.randomize_many(ranks[rows[inside]], coins)
            reported[rows[~inside]] = coins.below_many(size, int((~inside).sum()))
        return np.asarray(order[np.arange(array.size), reported])

    def likelihoods(self, reported: ArrayLike, priors: ArrayLike) -> Floats:
        """Return Pr[reported label | label], shape (n, k), for each report and its prior.

        No entry is zero. Raises `InvalidInput` for a label that its prior excludes.
        """
        codes = _check_labels(reported, self.k)
        order, sizes = self._ranked(priors)
        ranks = np.argsort(order, axis=1)
        own = np.take_along_axis(ranks, codes[:, np.newaxis], axis=1)
        if (own[:, 0] >= sizes).any():
            raise InvalidInput("a label was reported that its prior excludes")
        tables = {size: self._table(size) for size in np.unique(sizes).tolist()}
        p, q, outside = np.array([[float(v) for v in tables[s]] for s in sizes.tolist()]).T
        inside = np.where(ranks == own, p[:, np.newaxis], q[:, np.newaxis])
        rows: Floats = np.where(ranks < sizes[:, np.newaxis], inside, outside[:, np.newaxis])
        return rows

    def channel(self, prior: ArrayLike) -> Channel:
        """Enumerate the exact channel under one prior, shape (k,); excluded labels have zeros."""
        order, sizes = self._ranked(np.asarray(prior, dtype=float)[np.newaxis])
        top, labels = order[0, : sizes[0]].tolist(), tuple(range(self.k))
        p, q, outside = self._table(int(sizes[0]))
        chances = {x: {y: p if x == y else q for y in top} for x in top}
        others = dict.fromkeys(top, outside)
        none = Fraction(0)
        rows = (tuple(chances.get(x, others).get(y, none) for y in labels) for x in labels)
        return Channel(labels, tuple(rows))

    def _ranked(self, priors: ArrayLike) -> tuple[Labels, Labels]:
        """Return the labels from the likeliest, the smaller first where priors tie, and sizes."""
        array = np.asarray(priors, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != self.k:
            raise InvalidInput(f"priors have the shape (n, {self.k}), got {array.shape}")
        if not (np.isfinite(array).all() and (array >= 0).all() and (array.sum(axis=1) > 0).all()):
            raise InvalidInput("a prior is finite, nowhere negative and somewhere positive")
        order = np.argsort(-array, axis=1, kind="stable")
        sums = np.cumsum(np.take_along_axis(array, order, axis=1), axis=1)
        return order, 1 + np.argmax(sums / (1 + np.arange(self.k) * np.exp(-self.epsilon)), axis=1)

    def _table(self, size: int) -> tuple[Fraction, Fraction, Fraction]:
        """Return the chances that a label inside is kept, that it becomes a given other one, and
        that one outside becomes a given one inside."""
        if size == 1:
            return Fraction(1), Fraction(0), Fraction(1)
        return *KRR(size, self.epsilon).support, Fraction(1, size)


@dataclass(frozen=True, eq=False)
class TwoStage:
    """The reports of two stages: labels and likelihoods, shapes (n,) and (n, k), and a mask of
    the rows in the first stage, shape (n,)."""

    reported: Labels
    likelihoods: Floats
    first: NDArray[np.bool_]


Train = Callable[[NDArray[np.intp], Labels, Floats], Callable[[NDArray[np.intp]], Floats]]
"""Train on rows, their reported labels and likelihoods; return a function from other rows to
label probabilities, shape (rows, k)."""


def two_stage(labels: ArrayLike, k: int, epsilon: float, train: Train, coins: Coins) -> TwoStage:
    """Report half of the labels by k-RR, train on them, and report the rest with learned priors.

    `labels` has shape (n,), n >= 2; the halves are drawn. Then train anew on all.
    Guarantee: epsilon-LDP for each label: it is reported once, and its prior was learned from
    other labels' reports and from features, which are public.
    Raises `InvalidInput` for labels outside 0..k-1 and for predictions that are no priors.
    Source: Ghazi et al., NeurIPS 2021, algorithm 1 (LP-2ST).
    """
    array = _check_labels(labels, k)
    if array.size < 2:
        raise InvalidInput(f"two stages need two labels or more, got {array.size}")
    first = np.zeros(array.size, dtype=np.bool_)
    first[coins.permutation(array.size)[: array.size // 2]] = True
    one, two = np.flatnonzero(first), np.flatnonzero(~first)
    mechanism, uniform = RRWithPrior(k, epsilon), KRR(k, epsilon)
    reported = np.empty(array.size, dtype=np.int64)
    likelihoods = np.empty((array.size, k))
    reported[one] = uniform.randomize_many(array[one], coins)
    likelihoods[one] = uniform.matrix()[:, reported[one]].T
    priors = train(one, reported[one], likelihoods[one])(two)
    reported[two] = mechanism.randomize_many(array[two], priors, coins)
    likelihoods[two] = mechanism.likelihoods(reported[two], priors)
    return TwoStage(reported, likelihoods, first)


def _check_labels(labels: ArrayLike, k: int) -> Labels:
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidInput(f"labels are 1-d integers, got {array.dtype} of shape {array.shape}")
    if array.size and not 0 <= array.min() <= array.max() < k:
        raise InvalidInput(f"labels must lie in 0..{k - 1}")
    return array.astype(np.int64)
