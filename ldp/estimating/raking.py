"""Weights that make respondents' public groups as frequent as they are in the population.

Groups are the combinations of public properties, such as platform and country: reports carry them
in the clear, so that the number of respondents in each is exact. A `Margin` is a list of known
shares of the population, of the values of one property or of combinations of several. With one
margin of all properties the weights are those of post-stratification; with several they are raked:
the groups' shares meet all margins, and are otherwise as near to the respondents' as can be (least
Kullback-Leibler divergence).

Sources: Deming and Stephan, "On a least squares adjustment of a sampled frequency table when the
expected marginal totals are known", Annals of Mathematical Statistics 11, 1940; Deville and
Särndal, "Calibration estimators in survey sampling", JASA 87, 1992 (their multiplicative method).
The design effect is Kish's, "Weighting for unequal P_i", Journal of Official Statistics 8, 1992.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from ldp.errors import InvalidInput

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

LEAST = 10
"""People of a margin's row, below which it is joined with another one."""

FEWEST = 2
"""The fewest that `least` may be: one person in a row does not tell how people differ there."""

MOST_MARGINS = 64
"""The most margins of a question: each is compared with each other one."""

_ROUNDING = 0.005
"""How far shares may be from a sum of one, and for what part of the population two margins may
differ: they are rounded when they are published."""

_CLOSE = 1e-9
"""The largest difference to a margin's share at which raking ends."""

_ROUNDS = 100
"""Rounds through all margins, after which Newton's method goes on."""

_STEPS = 60
"""Newton's steps: after these there is no solution."""

_FARTHEST = 5.0
"""The most by which one of Newton's steps changes the logarithm of a share."""

_MOST_ROWS = 1500
"""Rows of all margins up to which Newton's method is used: it solves for as many unknowns."""

_NONE = 1e-300
"""A share that stands for none, which raking may come to in a group."""

Values = tuple[str, ...]
"""The values of a margin's properties in one of its rows."""


@dataclass(frozen=True, eq=False)
class Margin:
    """Known shares of the population, one for each row.

    `properties` are the names of one property or several; `rows` has the values of these, and
    `shares`, shape (rows,), the shares of the population, which are scaled to sum to one.
    Raises `InvalidInput` where a row is there twice or has another number of values, and for shares
    that are negative or do not sum to one within 0.005.
    """

    properties: tuple[str, ...]
    rows: Sequence[Values]
    shares: Floats

    def __post_init__(self) -> None:
        shares = np.asarray(self.shares, dtype=float)
        what = f"the margin of {' and '.join(self.properties)}"
        if not self.properties or len(set(self.properties)) < len(self.properties):
            raise InvalidInput(f"a margin is of different properties, got {self.properties}")
        if shares.shape != (len(self.rows),) or not self.rows:
            raise InvalidInput(f"{what} has {len(self.rows)} rows and {shares.size} shares")
        for row in self.rows:
            if len(row) != len(self.properties):
                raise InvalidInput(f"{what} has a row of {len(row)} values: {row}")
        if len(set(self.rows)) < len(self.rows):
            ((twice, _),) = Counter(self.rows).most_common(1)
            raise InvalidInput(f"{what} has the row {named(twice)} twice")
        if not (np.isfinite(shares).all() and (shares >= 0).all()):
            raise InvalidInput(f"{what} must have shares >= 0, got {shares.min():g}")
        if abs(shares.sum() - 1) > _ROUNDING:
            raise InvalidInput(f"{what} must have shares that sum to 1, got {shares.sum():g}")
        object.__setattr__(self, "shares", shares / shares.sum())

    def over(self, properties: Sequence[str]) -> dict[Values, float]:
        """Return the shares of the combinations of some of the properties."""
        places = [self.properties.index(name) for name in properties]
        found: dict[Values, float] = {}
        for row, share in zip(self.rows, self.shares.tolist(), strict=True):
            key = tuple(row[place] for place in places)
            found[key] = found.get(key, 0.0) + share
        return found

    def within(self, chosen: Mapping[str, Collection[str]]) -> "Margin":
        """Return the margin of the part of the population that has these values of properties.

        Raises `InvalidInput` where the margin has no share of that part.
        """
        kept = [
            all(
                value in chosen.get(name, (value,))
                for name, value in zip(self.properties, row, strict=True)
            )
            for row in self.rows
        ]
        whole = float(self.shares[kept].sum())
        if whole <= 0:
            part = ", ".join(
                f"{name} {named(tuple(chosen[name]))}" for name in self.properties if name in chosen
            )
            raise InvalidInput(
                f"the margin of {' and '.join(self.properties)} has no share of the population "
                f"with {part}"
            )
        rows = [row for row, keep in zip(self.rows, kept, strict=True) if keep]
        return Margin(self.properties, rows, self.shares[kept] / whole)


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of the respondents of each group, whose mean over respondents is one.

    `each`, shape (groups,), is 0 for groups that the margins leave out. `margins`, shape (margins,
    groups), is the row of each margin, after joining, to which a group belongs; -1 for a group that
    is left out. `joined` says in words which rows were joined, and `rounds` is how often all
    margins were met in turn, and of Newton's steps. `people`, shape (groups,), is how many
    different people the respondents of a group are at least.
    """

    each: Floats
    counts: Counts
    people: Floats
    margins: NDArray[np.intp]
    joined: tuple[str, ...]
    rounds: int

    @property
    def shares(self) -> Floats:
        """The weighted shares of the groups, shape (groups,)."""
        total = self.each * self.counts
        found: Floats = total / total.sum()
        return found

    @property
    def n(self) -> int:
        """The number of respondents with a weight above 0."""
        return int(self.counts[self.each > 0].sum())

    @property
    def design_effect(self) -> float:
        """Kish's: by what factor unequal weights alone raise the variance, n sum w**2 / (sum w)**2
        over respondents with a weight above 0."""
        squares = float(self.counts @ self.each**2)
        return self.n * squares / float(self.counts @ self.each) ** 2

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest weight above 0."""
        used = self.each[(self.each > 0) & (self.counts > 0)]
        return float(used.min()), float(used.max())


def rake(
    properties: Sequence[str],
    groups: Sequence[Values],
    counts: ArrayLike,
    margins: Sequence[Margin],
    *,
    least: int = LEAST,
    people: ArrayLike | None = None,
) -> Weights:
    """Return the weights of groups that meet all margins.

    `groups` are the values of all `properties`, and `counts`, shape (groups,), their respondents. A
    row of a margin with fewer than `least` people is joined with the row that has the fewest people
    among those alike in all properties but the margin's last one; where there is no such row, in
    all but its last two, and so on. So a margin names first what matters most. Of rows with as many
    people that comes first which the margin has first. The shares of joined rows are added up.
    Groups whose row has a share of 0 get the weight 0. `people`, shape (groups,), is how many
    different people a group's respondents are at least, where some may have answered repeatedly; by
    default each is another one.

    One margin is met exactly at once (post-stratification); several are met in turn, up to 1e-9
    (iterative proportional fitting), at a cost of O(groups) for each margin and round. Where that
    takes long, as with properties that nearly determine each other, Newton's method goes on, at
    O(groups + rows**3) a step (Deville and Särndal, section 4; up to 1,500 rows of all margins).

    Raises `InvalidInput` for a property that is not one of `properties`, for a value of respondents
    that a margin lacks, for margins that differ for more than 0.005 of the population in shares
    that follow from both, for more than 64 margins, for `least` below 2, for fewer than `least`
    people in all, and where no weights meet all margins.
    """
    n = np.asarray(counts, dtype=np.int64)
    if n.shape != (len(groups),) or (n < 0).any():
        raise InvalidInput(f"there are {len(groups)} groups, with counts of shape {n.shape}")
    if not margins:
        raise InvalidInput("give one margin at least, got none")
    if least < FEWEST:
        raise InvalidInput(f"the least number of people of a row must be >= {FEWEST}, got {least}")
    persons: Floats = np.asarray(n if people is None else people, dtype=float)
    if persons.shape != n.shape or ((persons > n) | ((persons <= 0) & (n > 0))).any():
        raise InvalidInput("a group's people must be more than none, and at most its respondents")
    margins = reconciled(margins)
    places = [_placed(properties, groups, n, margin) for margin in margins]
    used = (n > 0) & np.all(
        [np.append(margin.shares, 0)[at] > 0 for margin, at in zip(margins, places, strict=True)],
        axis=0,
    )
    if persons[used].sum() < least:
        raise InvalidInput(
            f"{persons[used].sum():.0f} people are in the groups of the margins: "
            f"weighting needs {least} at least"
        )
    rows = np.full((len(margins), n.size), -1, dtype=np.intp)
    shares: list[Floats] = []
    labels, joined = [], []
    for index, (margin, at) in enumerate(zip(margins, places, strict=True)):
        seen: Floats = np.bincount(at[used], persons[used], len(margin.rows)).astype(float)
        new, names, told = _joined(margin, seen, least)
        rows[index, used] = new[at[used]]
        kept = new >= 0
        shares.append(np.bincount(new[kept], margin.shares[kept], len(names)).astype(float))
        labels.append(names)
        joined += told
    share, rounds = _raked(n[used] / n[used].sum(), rows[:, used], shares, labels)
    each = np.zeros(n.size)
    each[used] = share * n[used].sum() / n[used]
    return Weights(each, n, persons, rows, tuple(joined), rounds)


def named(values: Values) -> str:
    """Return values as errors call them."""
    return " and ".join(repr(value) if value else "none given" for value in values)


def _placed(
    properties: Sequence[str], groups: Sequence[Values], counts: Counts, margin: Margin
) -> NDArray[np.intp]:
    """Return the row of the margin to which each group belongs; -1 for one without respondents."""
    for name in margin.properties:
        if name not in properties:
            known = ", ".join(properties) or "none"
            raise InvalidInput(f"a margin is of {name!r}, but the properties are: {known}")
    places = [list(properties).index(name) for name in margin.properties]
    rows = {row: index for index, row in enumerate(margin.rows)}
    keys = [tuple(group[place] for place in places) for group in groups]
    found = np.array([rows.get(key, -1) for key in keys], dtype=np.intp)
    lacking = (found < 0) & (counts > 0)
    if lacking.any():
        key = keys[int(np.argmax(lacking))]
        there = sum(int(n) for other, n in zip(keys, counts, strict=True) if other == key)
        raise InvalidInput(
            f"{there} respondents have {' and '.join(margin.properties)} {named(key)}, for which "
            "the margin has no share: add it, with a share of 0 to leave these respondents out"
        )
    return found


def reconciled(margins: Sequence[Margin]) -> list[Margin]:
    """Return margins that agree in what follows from two of them, as the earlier one has it.

    Raises `InvalidInput` where they differ by more than roundings, and for more than 64 margins.
    """
    if len(margins) > MOST_MARGINS:
        raise InvalidInput(f"there may be {MOST_MARGINS} margins, got {len(margins)}")
    found: list[Margin] = []
    for margin in margins:
        for earlier in found:
            common = [name for name in margin.properties if name in earlier.properties]
            if common:
                margin = _like(margin, earlier.over(common), common)
        found.append(margin)
    return found


def _like(margin: Margin, wanted: dict[Values, float], common: Sequence[str]) -> Margin:
    """Return the margin with these shares of the combinations of some of its properties."""
    own = margin.over(common)
    apart = {key: abs(wanted.get(key, 0.0) - own.get(key, 0.0)) for key in wanted | own}
    never = [key for key in apart if (wanted.get(key, 0.0) > 0) != (own.get(key, 0.0) > 0)]
    differ = sum(apart.values()) / 2
    if never or differ > _ROUNDING:
        key = max(never or apart, key=apart.__getitem__)
        raise InvalidInput(
            f"the margins contradict each other: the share of {' and '.join(common)} {named(key)} "
            f"is {wanted.get(key, 0.0):.4g} in one and {own.get(key, 0.0):.4g} in another. In all "
            f"they differ for {differ:.2%} of the population, more than {_ROUNDING:.1%} that may "
            "be rounding, or in which values there are: give shares with more digits, or counts"
        )
    places = [margin.properties.index(name) for name in common]
    keys = [tuple(row[place] for place in places) for row in margin.rows]
    factors = [wanted[key] / own[key] if own.get(key) else 0.0 for key in keys]
    return Margin(margin.properties, margin.rows, margin.shares * factors)


def _joined(
    margin: Margin, seen: Floats, least: int
) -> tuple[NDArray[np.intp], list[str], list[str]]:
    """Join rows that have fewer than `least` people, as `rake` says.

    Return the new row of each row, -1 for those of share 0, the new rows' names, and what was
    joined in words.
    """
    kept = np.flatnonzero(margin.shares > 0).tolist()
    units = {row: [row] for row in kept}
    size = {row: float(seen[row]) for row in kept}
    for depth in reversed(range(len(margin.properties))):
        alike: dict[Values, list[int]] = {}
        for row in units:
            alike.setdefault(margin.rows[row][:depth], []).append(row)
        for members in alike.values():
            order = count()
            heap = [(size[row], next(order), row) for row in members]
            heapq.heapify(heap)
            while len(heap) > 1 and heap[0][0] < least:
                _, _, small = heapq.heappop(heap)
                _, _, other = heapq.heappop(heap)
                units[other] += units.pop(small)
                size[other] += size.pop(small)
                heapq.heappush(heap, (size[other], next(order), other))
    new = np.full(len(margin.rows), -1, dtype=np.intp)
    names, told = [], []
    of = " and ".join(margin.properties)
    for index, (first, rows) in enumerate(units.items()):
        new[rows] = index
        values = [" / ".join(value or "none given" for value in margin.rows[row]) for row in rows]
        names.append(f"{of} {' + '.join(values)}")
        if len(rows) > 1:
            told.append(f"{names[-1]} ({size[first]:,.0f} people)")
    return new, names, told


def _raked(
    start: Floats, rows: NDArray[np.intp], shares: Sequence[Floats], labels: Sequence[list[str]]
) -> tuple[Floats, int]:
    """Return the groups' shares nearest to `start` that have all margins, and the rounds taken."""
    found, away = start.copy(), [np.zeros(wanted.size) for wanted in shares]
    for done in range(1, _ROUNDS + 1):
        for index, (at, wanted) in enumerate(zip(rows, shares, strict=True)):
            now = np.bincount(at, found, wanted.size)
            away[index] = now - wanted
            found *= (wanted / np.maximum(now, _NONE))[at]
        if max(float(np.abs(each).max()) for each in away) <= _CLOSE:
            return found, done
    steps = 0
    if sum(wanted.size for wanted in shares) <= _MOST_ROWS:
        found, away, steps = _newton(found, rows, shares)
        if max(float(np.abs(each).max()) for each in away) <= _CLOSE:
            return found, _ROUNDS + steps
    worst = int(np.argmax([np.abs(each).max() for each in away]))
    row = int(np.argmax(np.abs(away[worst])))
    wanted = shares[worst][row]
    raise InvalidInput(
        f"no weights meet all margins: after {_ROUNDS + steps} rounds the share of "
        f"{labels[worst][row]} is {wanted + away[worst][row]:.8g} in place of {wanted:.8g}. The "
        "margins need groups that have no respondents: join values in a margin, or leave one out"
    )


def _newton(
    start: Floats, rows: NDArray[np.intp], shares: Sequence[Floats]
) -> tuple[Floats, list[Floats], int]:
    """Return shares of groups nearer to all margins, how far they are away, and the steps taken.

    The shares are start * exp(sum of one number for each margin's row), and least is the convex
    dual, the sum of the shares less that of the wanted ones times the numbers.
    """
    sizes = [wanted.size for wanted in shares]
    first = np.cumsum([0, *sizes])
    entries = (rows + first[:-1, np.newaxis]).ravel(), np.tile(np.arange(start.size), len(shares))
    design = csr_array((np.ones(rows.size), entries), shape=(int(first[-1]), start.size))
    target = np.concatenate(shares)
    found, steps = start, 0
    while steps < _STEPS:
        away = design @ found - target
        if float(np.abs(away).max()) <= _CLOSE:
            break
        steps += 1
        curvature = (design * found) @ design.T
        step = np.linalg.lstsq(curvature.toarray(), -away, rcond=None)[0]
        change = design.T @ step
        size = min(1.0, _FARTHEST / max(float(np.abs(change).max()), _NONE))
        slope, before = float(away @ step), float(found.sum())
        for _ in range(30):
            nearer = found * np.exp(size * change)
            gained = float(nearer.sum()) - before - size * float(target @ step)
            if gained <= 1e-4 * size * slope:
                break
            size /= 2
        found = nearer
    away = design @ found - target
    return found, np.split(away, first[1:-1]), steps
