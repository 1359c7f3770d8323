"""What a respondent at a looser level is worth, and which prices to post for the levels.

Estimates of several levels are pooled by inverse variance, as those of people who answer alike
are. A respondent at level l brings the information 1 / V_l, where V_l is the variance of an
estimate from one report of the level, and n_l respondents at each level leave the variance
1 / I, I = sum_l n_l / V_l. One more respondent at level l lowers it by (1 / V_l) / I**2.

Prices are posted: a menu with one price for each level, the same for everybody, made before
answers are known. To choose what suits one best is then truthful.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from ldp.core.exact import check_epsilon
from ldp.errors import InvalidInput

Floats = NDArray[np.float64]

_WIDEST = 500.0
"""The greatest logarithm of a price over a median cost that is tried."""

_EVALUATIONS = 150
"""Menus that a search tries from each start, for each level."""


@dataclass(frozen=True, eq=False)
class Levels:
    """The epsilons of a survey's levels, and how precise one respondent at each of them is.

    `variances` is the variance of an estimate from one respondent, shape (levels,), or (levels,
    questions); `weights` is how much each question's variance counts, one each unless given.
    What is minimised is the weighted sum of the questions' variances. Raises `InvalidInput`
    unless there are at least two levels, in order of epsilon and not all alike, whose numbers are
    finite and positive.
    """

    epsilons: ArrayLike
    variances: ArrayLike
    weights: ArrayLike | None = None

    def __post_init__(self) -> None:
        epsilons = self.strengths
        if epsilons.ndim != 1 or epsilons.size < 2:
            raise InvalidInput(
                f"what a looser level is worth takes at least two levels, got {epsilons.size}: "
                "prices for one level only have nothing to compare it with"
            )
        for epsilon in epsilons.tolist():
            check_epsilon(epsilon, "levels: epsilon")
        if not (np.diff(epsilons) >= 0).all():
            raise InvalidInput(f"levels must be given in order of epsilon, got {epsilons.tolist()}")
        if epsilons[0] == epsilons[-1]:
            raise InvalidInput(
                f"levels must differ in epsilon to be compared, all have {epsilons[0]:g}"
            )
        variances = _array(self.variances, "variances")
        if variances.ndim not in (1, 2) or len(variances) != epsilons.size:
            raise InvalidInput(
                f"{epsilons.size} levels have as many variances, got shape {variances.shape}"
            )
        variances = variances.reshape(epsilons.size, -1)
        _all_positive(variances, "variances")
        questions = self.information.shape[1]
        if self._weights.shape != (questions,):
            raise InvalidInput(
                f"{questions} questions have as many weights, got {self._weights.size}"
            )
        _all_positive(self._weights, "weights")

    @cached_property
    def strengths(self) -> Floats:
        """`epsilons` as an array, shape (levels,)."""
        return _array(self.epsilons, "epsilons of levels")

    @cached_property
    def information(self) -> Floats:
        """What one respondent brings, 1 / V, shape (levels, questions)."""
        variances = _array(self.variances, "variances")
        return 1 / variances.reshape(len(variances), -1)

    @cached_property
    def _weights(self) -> Floats:
        if self.weights is None:
            return np.ones(self.information.shape[1])
        return _array(self.weights, "weights")

    def variance(self, counts: ArrayLike) -> float:
        """Return the weighted variance of pooled estimates from so many respondents at each level.

        `counts` has shape (levels,). Raises `InvalidInput` unless they are at least 0, and some
        level has respondents.
        """
        return float(np.sum(self._weights / (self._counts(counts) @ self.information)))

    def one_more(self, counts: ArrayLike) -> Floats:
        """Return by how much one more respondent at each level lowers `variance`, shape (levels,).

        The derivative: (1 / V_l) / I**2, summed over the questions by weight. Raises
        `InvalidInput` as `variance` does.
        """
        total = self._counts(counts) @ self.information
        found: Floats = self.information @ (self._weights / total**2)
        return found

    def one_more_stratified(self, counts: ArrayLike) -> Floats:
        """Return the same for the stratified estimate, which assumes nothing, shape (levels,).

        Its variance is sum_l n_l V_l / n**2, and one more respondent lowers it by
        (2 mean V - V_l) / n**2: less than nothing at a level that is noisier than twice the mean,
        because the estimate is of all who answered. Raises `InvalidInput` as `variance` does.
        """
        n = self._counts(counts)
        own = 1 / self.information @ self._weights
        found: Floats = (2 * (n @ own) / n.sum() - own) / n.sum() ** 2
        return found

    def moved_stratified(self, counts: ArrayLike) -> Floats:
        """Return what a respondent who moves here from the strictest level lowers it by, (levels,).

        (V_0 - V_l) / n**2. Raises `InvalidInput` as `variance` does.
        """
        gains = self.one_more_stratified(counts)
        found: Floats = gains - gains[0]
        return found

    def shares(self, counts: ArrayLike) -> Floats:
        """Return which part of the information the respondents of each level bring, (levels,).

        n_l / V_l / I; of several questions the part of the weighted variance that they answer for.
        They sum to one. Raises `InvalidInput` as `variance` does.
        """
        found: Floats = self._counts(counts) * self.one_more(counts) / self.variance(counts)
        return found

    def in_respondents(self, counts: ArrayLike, reference: int = 0) -> Floats:
        """Return how many respondents at level `reference` one at each level is worth, (levels,).

        Of one question it is V_reference / V_l, whatever the counts. Raises `InvalidInput` as
        `variance` does, and where there is no such level.
        """
        if not 0 <= reference < len(self.information):
            raise InvalidInput(
                f"the reference is one of the levels 0..{len(self.information) - 1}, "
                f"got {reference}"
            )
        gains = self.one_more(counts)
        found: Floats = gains / gains[reference]
        return found

    def prices(self, counts: ArrayLike, budget: float) -> Floats:
        """Return prices in proportion to what one respondent is worth, shape (levels,).

        So many respondents at each level then cost `budget` together. Raises `InvalidInput` as
        `variance` does, and unless the budget is finite and positive.
        """
        worth = self.one_more(counts)
        found: Floats = worth * (_positive(budget, "a budget") / (self._counts(counts) @ worth))
        return found

    def _counts(self, counts: ArrayLike) -> Floats:
        n = _array(counts, "respondents")
        if n.shape != (len(self.information),):
            raise InvalidInput(
                f"{len(self.information)} levels have as many numbers of respondents, got {n.size}"
            )
        if not (np.isfinite(n) & (n >= 0)).all() or not n.any():
            raise InvalidInput(
                f"respondents must be at least 0, and some level has them, got {n.tolist()}"
            )
        return n


@dataclass(frozen=True, eq=False)
class People:
    """A model of the invited: the loosest level that each would take, and the cost of privacy.

    `highest` is the share whose loosest acceptable level is each one, shape (levels,); the others
    take none. An answer at epsilon costs a person c epsilon, in the unit of the prices; c is
    lognormal with this `median` and standard deviation of its logarithm, `spread`, and
    independent of the loosest level. Each person takes the level of the largest price less cost,
    if that is positive. Raises `InvalidInput` unless the shares are at least 0, sum to at most
    one and are not all 0, and median and spread are finite and positive.
    """

    highest: ArrayLike
    median: float
    spread: float

    def __post_init__(self) -> None:
        highest = self.accepted
        if highest.ndim != 1 or not (highest >= 0).all() or not 0 < highest.sum() <= 1 + 1e-9:
            raise InvalidInput(
                "highest must be shares of the invited that sum to at most one, "
                f"got {highest.tolist()}"
            )
        _positive(self.median, "the median cost of epsilon")
        _positive(self.spread, "the spread of costs")

    @cached_property
    def accepted(self) -> Floats:
        """`highest` as an array, shape (levels,)."""
        return _array(self.highest, "highest")

    def chosen(self, epsilons: ArrayLike, prices: ArrayLike) -> Floats:
        """Return the share of the invited who take each level at these prices, shape (levels,).

        Exact, by the costs between which a level is best. Raises `InvalidInput` unless there are
        as many prices and shares as levels, epsilons rise, and prices are finite and at least 0.
        """
        epsilon, price = _array(epsilons, "epsilons of levels"), _array(prices, "prices")
        if not epsilon.shape == price.shape == self.accepted.shape:
            raise InvalidInput(
                f"{epsilon.size} levels have as many prices and shares of people, "
                f"got {price.size} and {self.accepted.size}"
            )
        if not (np.diff(epsilon) > 0).all():
            raise InvalidInput(
                f"levels with a price must differ in epsilon, and rise, got {epsilon.tolist()}"
            )
        if not (np.isfinite(price) & (price >= 0)).all():
            raise InvalidInput(f"prices must be finite and at least 0, got {price.tolist()}")
        e, p = np.append(0.0, epsilon), np.append(0.0, price)  # level 0 is not to answer
        gap = e - e[:, None]
        np.fill_diagonal(gap, 1.0)
        # The cost at which level l is worth as much as level m.
        even = (p - p[:, None]) / gap
        levels = len(e)
        stricter = np.tri(levels, k=-1, dtype=bool)
        most = np.where(stricter, even, np.inf).min(axis=1)[1:, None]
        # For people whose loosest level is each of the columns.
        least = np.maximum.accumulate(np.where(stricter.T, even, 0.0), axis=1)[1:, 1:]
        parts = np.triu(np.maximum(self._below(most) - self._below(least), 0.0))
        found: Floats = parts @ self.accepted
        return found

    def _below(self, cost: Floats) -> Floats:
        """Return the share of people whose cost is below this."""
        with np.errstate(divide="ignore"):
            found: Floats = ndtr(np.log(np.maximum(cost, 0.0) / self.median) / self.spread)
        return found


@dataclass(frozen=True, eq=False)
class Menu:
    """Posted prices, and what comes of them in a model of people, per invited person.

    `prices` and `chosen`, the share who takes each level, have shape (levels,). `variance` is the
    weighted variance times the number of the invited; of one question its inverse is the
    information that an invited person brings on average.
    """

    prices: Floats
    chosen: Floats
    spent: float
    variance: float


def posted(levels: Levels, people: People, direction: ArrayLike, budget: float) -> Menu:
    """Return the menu of prices in proportion to `direction` that spends `budget`.

    `direction` has shape (levels,), and a level of price 0 is not offered; `budget` is what is
    spent on average per invited person. What is spent rises with the prices, so one scale fits.
    Raises `InvalidInput` unless the direction is at least 0, with a level that some accept.
    """
    from scipy.optimize import brentq  # loaded for those alone who price levels

    worth = _array(direction, "a direction of prices")
    people.chosen(levels.strengths, worth)
    top = worth[: 1 + int(np.flatnonzero(people.accepted)[-1])]
    if not top.any():
        raise InvalidInput("prices must be above 0 for some level that people accept")
    _positive(budget, "a budget")
    unit = people.median / worth.max()

    def over(log_scale: float) -> float:
        if log_scale > _WIDEST:
            raise InvalidInput(f"a budget of {budget:g} is out of all proportion to the costs")
        prices = unit * math.exp(log_scale) * worth
        return float(prices @ people.chosen(levels.strengths, prices)) - budget

    low, high = -1.0, 1.0
    while over(low) > 0:
        low *= 2
    while over(high) < 0:
        high *= 2
    prices = unit * math.exp(brentq(over, low, high, xtol=1e-12)) * worth
    chosen = people.chosen(levels.strengths, prices)
    return Menu(prices, chosen, float(prices @ chosen), levels.variance(chosen))


def best(levels: Levels, people: People, budget: float) -> Menu:
    """Return the menu of least variance that a search finds among those that spend `budget`.

    Nelder and Mead's search over the logarithms of the prices, from prices in proportion to
    information, to epsilon, and for the one best level. The result is at least as good as these,
    and a local optimum. Raises `InvalidInput` as `posted`. Cost: some milliseconds for each level
    squared.
    """
    from scipy.optimize import minimize

    ones = np.ones(len(levels.information))
    starts = [levels.one_more(ones), levels.strengths]
    menus = [posted(levels, people, start, budget) for start in starts]
    menus.append(best_alone(levels, people, budget))
    lowest = 1e-6 * min(menu.prices.max() for menu in menus)

    def tried(log_prices: Floats) -> Menu:
        return posted(levels, people, np.exp(log_prices - log_prices.max()), budget)

    for menu in list(menus):
        found = minimize(
            lambda at: tried(at).variance,
            np.log(np.maximum(menu.prices, lowest)),
            method="Nelder-Mead",
            options={"maxfev": _EVALUATIONS * len(ones), "xatol": 1e-5, "fatol": 1e-9},
        )
        menus.append(tried(found.x))
    return min(menus, key=lambda menu: menu.variance)


def best_alone(levels: Levels, people: People, budget: float) -> Menu:
    """Return the best menu that offers one level only. Raises `InvalidInput` as `posted`."""
    top = 1 + int(np.flatnonzero(people.accepted)[-1])
    every = np.eye(len(levels.information))[:top]
    menus = [posted(levels, people, alone, budget) for alone in every]
    return min(menus, key=lambda menu: menu.variance)


def _array(values: ArrayLike, what: str) -> Floats:
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise InvalidInput(f"{what} must be numbers, got {values!r}") from None


def _positive(value: float, what: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{what} must be finite and > 0, got {value}")
    return value


def _all_positive(values: Floats, what: str) -> None:
    if not (np.isfinite(values) & (values > 0)).all():
        raise InvalidInput(f"{what} must be finite and > 0, got {values.tolist()}")
