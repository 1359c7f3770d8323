"""Estimators: from the tally of a cohort to unbiased parameters with their errors.

Every mechanism is one. An estimator that is no mechanism sees the reports of mechanisms in another
way, such as one attribute of those that were asked together (`ldp.estimating.marginals`).
"""

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.estimation import Cohorts, Estimate, estimate
from ldp.core.tally import Tally

MAX_MATRIX = 1 << 24
"""The most entries of a channel matrix that is used in products."""


class Estimator(ABC):
    """What the estimates of a cohort, and their pooling, ask of a mechanism."""

    name: ClassVar[str]
    """The name in a plan, or what errors call it."""

    @property
    @abstractmethod
    def tally_size(self) -> int:
        """The number of counts in a tally."""

    @abstractmethod
    def debias(self, tally: Tally) -> NDArray[np.float64]:
        """Return the unbiased estimate, shape (parameters,); needs n >= 1."""

    @abstractmethod
    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the variance of `debias` for n independent draws from a population.

        `truth` has shape (parameters,), or () where one parameter is known and the others are
        not: the result is then the variance of each parameter if it had this truth and the others
        shared the rest evenly (where a mechanism says so, at their worst); of shape (), if that
        is the same for all. The n records are a sample, so their own spread is part of the
        variance, as an interval for the population needs it.
        """

    def tally_variance(self, truth: ArrayLike, tally: Tally) -> NDArray[np.float64]:
        """Return the variance of `debias` for its standard error, given the truth and the tally.

        Where the parameters determine it, that is `variance`; a mechanism whose variance
        depends on more of the population overrides this.
        """
        return self.variance(truth, tally.n)

    def moments(
        self, truth: NDArray[np.float64], n: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return the second and third central moments of `debias`, of the shape of `truth`,
        whose last axis is the parameters'.

        None where the moments of a parameter depend on more than its own truth.
        """
        return None

    def spread(self, center: float, tally: Tally, imagined: float = 0) -> float | None:
        """Return the mean squared deviation of the reports' estimates from `center`.

        `imagined` reports, half of people at each end of the range, are added to the tally's. None
        unless the parameter is a mean.
        """
        return None

    @property
    @abstractmethod
    def parameters(self) -> int:
        """The number of parameters in an estimate."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """The range of the parameter itself, to which intervals are clipped."""

    def estimate(self, tally: Tally) -> Estimate:
        """Return the debiased estimate of one cohort with its population standard error."""
        return estimate(Cohorts([(self, tally)]))


class Supports(Estimator):
    """An estimator of shares of the people, from how many reports support each.

    A report supports the parameter of a person who has it with probability `p`, and of another one
    with `q`; counting supports is enough (Wang et al., USENIX Security 2017, section 3).
    """

    @property
    @abstractmethod
    def support(self) -> tuple[Fraction, Fraction]:
        """Return (p, q), exactly."""

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    @cached_property
    def _rounded_support(self) -> tuple[float, float]:
        """q and p - q in floating point, kept because fractions are slow."""
        p, q = self.support
        return float(q), float(p - q)

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Return how many reports support each parameter, shape (parameters,)."""
        return tally.counts

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        q, gain = self._rounded_support
        return (self.supports(tally) / tally.n - q) / gain

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        q, gain = self._rounded_support
        supported = np.asarray(truth, dtype=float) * gain + q
        return supported * (1 - supported) / (n * gain**2)

    def moments(
        self, truth: NDArray[np.float64], n: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        q, gain = self._rounded_support
        s = truth * gain + q
        variance = s * (1 - s) / (n * gain**2)
        return variance, variance * (1 - 2 * s) / (n * gain)


class Frequencies(Estimator):
    """An estimator of the k frequencies of the categories 0..k-1."""

    k: int

    @property
    def parameters(self) -> int:
        return self.k

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    def matrix(self) -> NDArray[np.float64] | None:
        """Return Pr[code | category] in doubles, shape (k, tally_size), if tallies count codes.

        Such a tally is sufficient: its likelihood is multinomial. None where a tally counts
        something else, such as the categories that a report supports; then use `debias` and
        `covariance`.
        """
        return None

    @property
    def step(self) -> NDArray[np.float64]:
        """The change of one report's `debias` per count, by coordinate, shape (k,).

        With the variance of one report, n variance / step**2 is about the number of counts
        behind a coordinate's noise, which tells whether that is nearly normal. Zero where it
        is not asked.
        """
        return np.zeros(self.k)

    def covariance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the covariance of `debias`, shape (k, k), for n draws from a population.

        `truth` broadcasts to shape (k,). Exact where tallies count codes, at the cost of one
        `debias` per code, up to `MAX_MATRIX` entries. Otherwise the coordinates of a report's
        estimate are taken to be uncorrelated given its category, whence -f_i f_j / n off the
        diagonal: exact for independent bits or noise, an approximation for hashing (see there).
        """
        f = np.broadcast_to(np.asarray(truth, dtype=float), (self.k,))
        matrix = self._small_matrix()
        if matrix is None:
            result = np.outer(f, -f) / n
            np.fill_diagonal(result, self.variance(f, n))
            return result
        values = self._debiased_codes()
        exact: NDArray[np.float64] = (values.T * (f @ matrix)) @ values - np.outer(f, f)
        return exact / n

    def _small_matrix(self) -> NDArray[np.float64] | None:
        return self.matrix() if self.k * self.tally_size <= MAX_MATRIX else None

    def _debiased_codes(self) -> NDArray[np.float64]:
        """Return `debias` of one report of each code, shape (tally_size, k)."""
        units = np.eye(self.tally_size, dtype=np.int64)
        return np.array([self.debias(Tally(1, unit)) for unit in units])

    def sum_variances(
        self, sets: NDArray[np.float64], truth: NDArray[np.float64], n: int
    ) -> NDArray[np.float64]:
        """Return the variances of sums of `debias` over sets of categories, shape (sets,).

        `sets`, shape (sets, k), has ones where a category belongs to a set, else zeros; `truth`
        is a distribution, shape (k,). As precise as `covariance`.
        """
        result: NDArray[np.float64]
        matrix = self._small_matrix()
        if matrix is None:
            result = np.einsum("ij,ij->i", sets @ self.covariance(truth, n), sets)
        else:
            values = sets @ self._debiased_codes().T
            result = (values**2 @ (truth @ matrix) - (sets @ truth) ** 2) / n
        return result

    def sum_covariance(
        self, sets: NDArray[np.float64], truth: NDArray[np.float64], n: int
    ) -> NDArray[np.float64]:
        """Return the covariance of sums of `debias` over sets of categories, shape (sets, sets).

        Arguments and precision are those of `sum_variances`, which is its diagonal.
        """
        result: NDArray[np.float64]
        matrix = self._small_matrix()
        if matrix is None:
            result = sets @ self.covariance(truth, n) @ sets.T
            np.fill_diagonal(result, self.sum_variances(sets, truth, n))
        else:
            values, shares = sets @ self._debiased_codes().T, sets @ truth
            result = ((values * (truth @ matrix)) @ values.T - np.outer(shares, shares)) / n
        return result
