"""Answer questions by the noisy votes of teachers: GNMax, and Confident-GNMax.

aggregator = ConfidentGNMax(200, 150, 40, teachers=250)
labels = aggregator.answer(votes, most=165)  # -1 where there is no answer
aggregator.get_epsilon(1e-5)
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsgd.accounting import Accountant, Event, NoSampling, RDPAccountant, Relation
from dpsgd.accounting.accountant import check_guarantee, enter
from dpsgd.accounting.events import ROUNDED_UP, check_delta, check_integer
from dpsgd.noise.discrete import discrete_gaussian
from dpsgd.pate import divergences
from dpsgd.pate.secret import PrivateEpsilon, refuse_to_leave
from dpsgd.pate.votes import Integers, check_votes
from ldp import Coins, InvalidInput

_BITS = 40
"""Noise is drawn in so many bits of a vote, so that two labels as good as never tie."""
_EXCESSES = np.geomspace(1e-2, 1e5, 500)
_BLOCK = 1 << 10
"""Questions whose divergences are computed together."""


class _Aggregator:
    """What both aggregators have: teachers, an accountant, coins, and what answers cost."""

    def __init__(self, teachers: int, accountant: Accountant | None, coins: Coins | None) -> None:
        self.teachers = check_integer("the number of teachers", teachers, 1)
        if accountant is None:
            accountant = RDPAccountant(Relation.REPLACE_ONE)
        check_guarantee(accountant)
        self.accountant = accountant
        self._coins = coins or Coins()
        self._spent_at_these_votes = np.zeros(len(_EXCESSES))

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon at `delta` of all that the accountant has. It may be published.

        It depends on how many questions were asked, and on no vote. Raises `InvalidInput` unless
        0 < delta < 1.
        """
        return self.accountant.get_epsilon(delta)

    def get_epsilon_data_dependent(self, delta: float) -> PrivateEpsilon:
        """Return the epsilon at the votes that there were. IT IS PRIVATE ITSELF: never publish it.

        Where teachers agree, an answer tells less than it might at other votes. But how much less
        is a fact about the private data, and no noise covers it. So the figure comes in a
        `PrivateEpsilon`, which is neither printed nor saved. It is for who may see the votes:
        to judge noise and thresholds on data of the kind, before the private data are asked.

        It is the figure that papers report, and two more things keep it from being a guarantee: it
        adds up the answers that this run gave, not all that it might have given, and it bounds
        how the output at these votes compares with a neighbour's, not the reverse.
        Of this aggregator alone. Raises `InvalidInput` unless 0 < delta < 1.
        Source: Papernot et al., ICLR 2018, theorem 6; the conversion is that of `RDPAccountant`.
        """
        check_delta(delta)
        if not self._spent_at_these_votes.any():
            return PrivateEpsilon(0.0)
        least = np.log(_EXCESSES / (1 + _EXCESSES)) - np.log(delta * (1 + _EXCESSES)) / _EXCESSES
        return PrivateEpsilon(max(0.0, float((self._spent_at_these_votes + least).min())))

    def __reduce__(self) -> Any:
        refuse_to_leave("an aggregator, which knows what was spent at the votes,")

    __getstate__ = __reduce__

    def _charge(self, inverse_variance: float) -> None:
        """Record noise of which a teacher moves the mean by sqrt(inverse_variance) deviations."""
        noise = self.accountant.relation.sensitivity / math.sqrt(inverse_variance * ROUNDED_UP)
        enter(self.accountant, Event(noise, NoSampling(), 1))

    def _spend(self, bounds: Callable[[Integers], NDArray[np.float64]], counts: Integers) -> None:
        for start in range(0, len(counts), _BLOCK):
            self._spent_at_these_votes += bounds(counts[start : start + _BLOCK]).sum(axis=0)

    def _noisy(self, count: int, variance: int) -> int:
        return (count << _BITS) + discrete_gaussian(variance, self._coins)

    def _label(self, counts: list[int], variance: int) -> int:
        noisy = [self._noisy(count, variance) for count in counts]
        return noisy.index(max(noisy))


class GNMax(_Aggregator):
    """Answer with the label of most votes after noise: the Gaussian NoisyMax aggregator.

    Each count gets discrete Gaussian noise of standard deviation `sigma` votes, drawn exactly.

    Guarantee: that of one Gaussian release for each question, with what `get_epsilon` says, for
    two sets of teachers of which one teacher votes otherwise on any of the questions. So it
    protects all records of one teacher, whatever they are replaced by, and each record that one
    teacher alone learned from. Who adds up the votes sees them. The number of teachers is public. A
    changed vote moves two counts by one, the histogram by sqrt(2): divergences of order a are at
    most a / sigma**2, which discrete noise keeps as the continuous does (Canonne, Kamath and
    Steinke, NeurIPS 2020). Questions may depend on earlier answers; who stops in the
    light of answers should set the accountant a budget. The time that an answer takes is not
    hidden. By default the accountant is `RDPAccountant(Relation.REPLACE_ONE)`; under ADD_REMOVE
    the records must be with their teachers from the start, not dealt by `partition`.
    Raises `InvalidInput` unless 2**-10 <= sigma < 2**60, teachers is an integer >= 1 and the
    accountant one of dpsgd.accounting.
    Source: Papernot et al., "Scalable private learning with PATE", ICLR 2018, proposition 8;
    Papernot, Abadi, Erlingsson, Goodfellow and Talwar, ICLR 2017, for PATE.
    """

    def __init__(
        self,
        sigma: float,
        *,
        teachers: int,
        accountant: Accountant | None = None,
        coins: Coins | None = None,
    ) -> None:
        super().__init__(teachers, accountant, coins)
        self.sigma = _check_sigma("sigma", sigma)

    def answer(self, votes: ArrayLike) -> NDArray[np.int64]:
        """Return a label for each question, shape (questions,); charge for each before noise.

        `votes` has the teachers' votes, shape (questions, classes): see `count_votes`. Raises, and
        releases and charges nothing: `InvalidInput` unless they are integers >= 0 of which each
        row adds up to the number of teachers, `BudgetExhausted` beyond the accountant's budget.
        Cost: 25 us for each question and class.
        """
        counts = check_votes(votes, self.teachers)
        if not len(counts):
            return np.zeros(0, dtype=np.int64)
        self._charge(len(counts) * 2 / self.sigma**2)
        self._spend(lambda part: divergences.of_labels(part, self.sigma, _EXCESSES), counts)
        variance = _variance(self.sigma)
        return np.array([self._label(row, variance) for row in counts.tolist()])


class ConfidentGNMax(_Aggregator):
    """Answer as `GNMax` does, but only where enough teachers agree, after noise of its own.

    A question is answered where its largest count and noise of standard deviation `sigma1` reach
    `threshold`; then with the label of most votes after noise of `sigma2`. All in votes.

    Guarantee: as for `GNMax`, where a question costs two releases: the largest count moves by one
    at most, a / (2 sigma1**2), and the answer's a / sigma2**2. The first is charged for every
    question, answered or not. How many are answered depends on the votes, so the second is charged
    for `most` answers, which is fixed before: for all questions unless fewer are asked for.
    Raises `InvalidInput` as `GNMax`, and unless -2**60 <= threshold <= teachers: above that, even
    teachers who all agree get no answer but by the luck of noise.
    Source: Papernot et al., ICLR 2018, algorithm 1, which charges for the answers that there were:
    that is the same sum where `most` was reached, and else no figure that was fixed in advance.
    """

    def __init__(
        self,
        threshold: float,
        sigma1: float,
        sigma2: float,
        *,
        teachers: int,
        accountant: Accountant | None = None,
        coins: Coins | None = None,
    ) -> None:
        super().__init__(teachers, accountant, coins)
        self.threshold = _check_number("threshold", threshold, -(2.0**60))
        if self.threshold > self.teachers:
            raise InvalidInput(
                f"threshold must be at most the number of teachers, {self.teachers:,}, got "
                f"{self.threshold:,g}: even if all agree, their votes do not reach it"
            )
        self.sigma1 = _check_sigma("sigma1", sigma1)
        self.sigma2 = _check_sigma("sigma2", sigma2)

    def answer(self, votes: ArrayLike, *, most: int | None = None) -> NDArray[np.int64]:
        """Return a label for each question, or -1 for none, shape (questions,).

        Questions are taken in their order; once `most` have an answer, the others get none. All is
        charged before there is noise: a check for each question, and `most` answers, also those
        that were not given. Arguments, errors and cost are those of `GNMax.answer`; `most` is an
        integer >= 0.
        """
        counts = check_votes(votes, self.teachers)
        most = len(counts) if most is None else check_integer("most", most, 0)
        most = min(most, len(counts))
        labels = np.full(len(counts), -1, dtype=np.int64)
        if not len(counts):
            return labels
        self._charge(len(counts) / self.sigma1**2 + most * 2 / self.sigma2**2)
        check, label = _variance(self.sigma1), _variance(self.sigma2)
        least, given = Fraction(self.threshold) * 2**_BITS, 0
        for i, row in enumerate(counts.tolist()):
            if given < most and self._noisy(max(row), check) >= least:
                labels[i] = self._label(row, label)
                given += 1
        self._spend(self._checks, counts)
        self._spend(
            lambda part: divergences.of_labels(part, self.sigma2, _EXCESSES), counts[labels >= 0]
        )
        return labels

    def _checks(self, counts: Integers) -> NDArray[np.float64]:
        return divergences.of_thresholds(counts, self.threshold, self.sigma1, _EXCESSES)


def _check_sigma(name: str, value: float) -> float:
    return _check_number(name, value, 2.0**-10)


def _check_number(name: str, value: float, least: float) -> float:
    """Return a number of votes of any type as a float; refuse anything else."""
    known = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
        value, bool
    )
    # An integer beyond all floats is compared as it is.
    if not known or not least <= (value if isinstance(value, int) else float(value)) < 2.0**60:
        raise InvalidInput(
            f"{name} must be at least {least:g} votes and below 2**60, got {value!r:.60}"
        )
    return float(value)


def _variance(sigma: float) -> int:
    return math.ceil(Fraction(sigma) ** 2 * (1 << 2 * _BITS))
