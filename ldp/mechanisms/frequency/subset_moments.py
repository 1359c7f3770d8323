"""Moments of a random subset under a policy, and the linear estimate that uses them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SubsetMoments:
    """The exact channel in doubles, and the weights of the estimate.

    C classes and T types. `inside`, `chance`, `share` and `joint` have shape (C, T): the
    chances of a type with the own category in the subset, and of the type; the share of a
    class that a subset of the type has; the chance of the type with another category of one's
    own class in the subset. The estimate of a category is the mean over the reports of
    constant[t, a], and slope[t, a] more where the subset has it, both of shape (T, C).
    """

    inside: Floats
    chance: Floats
    share: Floats
    joint: Floats
    constant: Floats
    slope: Floats
    distinct: bool

    @classmethod
    def of(
        cls, counts: NDArray[np.int64], sizes: NDArray[np.int64], weights: Floats
    ) -> "SubsetMoments":
        """Compute them from sizes of classes (C,) and subsets (T, C), and weights (C, 2, T).

        At the uniform population the information has an eigenvalue for the contrasts within
        each class, and otherwise only acts between the totals of classes; so does its inverse.
        """
        n, w = counts[:, None].astype(float), sizes.T.astype(float)
        inside, outside = weights[:, 0], weights[:, 1]
        chance = inside + outside
        output = counts @ chance / counts.sum()  # of a type, at the uniform population
        tells = (w > 0) & (w < n)
        low = np.where(tells, outside * n / np.where(tells, n - w, 1), chance)
        step = np.where(tells, inside * n / np.where(tells, w, 1) - low, 0)
        rest = np.maximum(n - 1, 1)
        within = (step**2 * w * (n - w) / (n * rest * output)).sum(axis=1)
        between = chance / output @ chance.T
        split = counts > 1
        distinct = bool((within[split] > 0).all())
        if not distinct or np.linalg.matrix_rank(between) < counts.size:
            return cls(inside, chance, w / n, inside, step, step, False)
        inverse = np.where(split, 1 / np.where(split, within, 1), 0)[:, None]
        constant = np.linalg.solve(between, chance) / n + (low - chance) * inverse
        joint = (inside * (w - 1) + outside * w) / rest
        return cls(
            inside,
            chance,
            w / n,
            joint,
            (constant / output).T,
            (step * inverse / output).T,
            True,
        )

    def products(self, counts: NDArray[np.int64], masses: Floats) -> tuple[Floats, Floats]:
        """Return (base, lift), both (C, C), from the classes' sizes and total frequencies.

        The mean product of a report's estimates of two categories i and j, of classes a and b
        and frequencies f_i and f_j, is base[a, b] + lift[a, b] f_i + lift[b, a] f_j. Given type
        and value, a subset's parts in two classes are independent; in one class it has pairs.
        """
        n = counts[:, None].astype(float)
        w = self.share * n
        chance = masses @ self.chance
        slope, gain = self.slope.T, self.inside - self.joint
        mean = self.constant.T + slope * self.share
        extra = masses[:, None] * (self.joint - self.chance * self.share)
        across = (slope * extra) @ mean.T
        base = (mean * chance) @ mean.T + across + across.T
        lift = (slope * gain) @ mean.T
        # The chances that a subset has a pair of the class, with the value elsewhere, in the pair,
        # and in the class beside it.
        rest = (w - 1) / np.maximum(n - 1, 1)
        within = self.inside * rest
        beside = rest * (self.inside * (w - 2) + (self.chance - self.inside) * w)
        beside /= np.maximum(n - 2, 1)
        pairs = (chance - masses[:, None] * self.chance) * self.share * rest
        pairs += masses[:, None] * beside - self.share * (chance * self.share + 2 * extra)
        np.einsum("aa->a", base)[:] += (slope**2 * pairs).sum(axis=1)
        np.einsum("aa->a", lift)[:] += (slope**2 * (within - beside - gain * self.share)).sum(
            axis=1
        )
        return base, lift
