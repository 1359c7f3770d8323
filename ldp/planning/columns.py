"""Channels under a policy as weighted columns, and the exact mechanism that they make.

A column is, up to a factor, the chance of one report for each value. Values of a class that play
the same part make columns of one kind, which differ by the subset of the class only; a kind
with its total weight stands for all of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

from ldp.core.exact import ONE, exp_bounds
from ldp.core.policy import UNIT, Policy
from ldp.errors import InvalidInput
from ldp.mechanisms.policies.base import PolicyTable
from ldp.mechanisms.policies.subsets import PolicySubsets

TABLE = 1 << 12
"""The most weights of a channel carried as a table, whose tally counts every code."""

_SPARE = Fraction(1, 1 << 40)
"""The least chance of the blank report, which takes up a row's rounding errors."""


@dataclass(frozen=True)
class Column:
    """A kind of columns: in class a, sizes[a] values have level e**high[a], the rest e**low[a].

    Levels are integers in units of 1 / `UNIT`, as a policy's distances are; None is a level of
    zero. Only their differences matter; the largest is zero by convention.
    """

    sizes: tuple[int, ...]
    high: tuple[int | None, ...]
    low: tuple[int | None, ...]

    def number(self, counts: Sequence[int]) -> int:
        """Return the number of subsets that the kind has in classes of these sizes."""
        return math.prod(map(math.comb, counts, self.sizes))


def realise(
    policy: Policy, columns: Sequence[tuple[Column, Fraction]]
) -> PolicyTable | PolicySubsets:
    """Return the mechanism of weighted columns, in integers that keep the policy.

    A kind with weight theta gives each of its N subsets a report of probability
    theta / N times the value's level; the weights must make the rows sum to one, within 10**-6.
    Where rows of codes would take no more than `TABLE` weights it is a table, otherwise the
    subsets' mechanism. The last code, or type, is a blank report, which tells nothing and takes
    up a row's rounding errors: a chance of 10**-12 or so.
    Raises `InvalidInput` where the rows do not sum to one, or the policy is not kept.
    """
    totals = [
        sum((theta * _mass(column, policy, a) for column, theta in columns), Fraction(0))
        for a in range(len(policy.sizes))
    ]
    if max(abs(total - 1) for total in totals) > Fraction(1, 10**6):
        raise InvalidInput(f"the rows must sum to one, got {[float(t) for t in totals]}")
    codes = 1 + sum(column.number(policy.sizes) for column, _ in columns)
    table = codes * policy.k <= TABLE and codes >= policy.k
    # Every level is raised by `floor`, which costs no ratio: where H <= e**D L, and rounding
    # takes less than r from a level, H + floor <= e**D (L + floor - r) if floor is as below.
    gain = 1 - 1 / exp_bounds(Fraction(policy.least))[0]
    coarseness = 1 if table else max(policy.sizes)
    floor = math.ceil(coarseness / gain) + 1
    added = Fraction(floor * (codes if table else len(columns)), ONE)
    spare = max(_SPARE, 4 * (max(totals) - min(totals) + added) / gain)
    scale = (1 - spare) * ONE / max(totals)
    weighted = [(column, theta * scale) for column, theta in columns]
    return (_table if table else _subsets)(policy, weighted, floor)


def _subsets(
    policy: Policy, columns: Sequence[tuple[Column, Fraction]], floor: int
) -> PolicySubsets:
    rows = []
    for a, count in enumerate(policy.sizes):
        inside, outside = [], []
        for column, theta in columns:
            size = column.sizes[a]
            high = _raised(theta, column.high[a], floor)
            low = _raised(theta, column.low[a], floor)
            inside.append(math.floor(high * size / count))
            outside.append(math.floor(low * (count - size) / count))
        rows.append([*inside, ONE - sum(inside) - sum(outside), *outside, 0])
    return PolicySubsets(
        policy.k,
        policy.epsilon,
        tuple(size for column, _ in columns for size in column.sizes) + policy.sizes,
        tuple(weight for row in rows for weight in row),
        policy.integers,
    )


def _table(policy: Policy, columns: Sequence[tuple[Column, Fraction]], floor: int) -> PolicyTable:
    rows: list[list[int]] = [[] for _ in policy.classes]
    for column, theta in columns:
        share = theta / column.number(policy.sizes)
        levels = [
            [math.floor(_raised(share, level, floor)) for level in pair]
            for pair in zip(column.low, column.high, strict=True)
        ]
        choices = map(combinations, policy.members, column.sizes)
        for parts in product(*choices):
            inside = {value for part in parts for value in part}
            for x, a in enumerate(policy.classes):
                rows[x].append(levels[a][x in inside])
    weights = [weight for row in rows for weight in (*row, ONE - sum(row))]
    return PolicyTable(policy.k, policy.epsilon, tuple(weights), policy.integers)


def _exp(level: int | None) -> Fraction:
    return Fraction(0) if level is None else exp_bounds(Fraction(level, UNIT))[0]


def _raised(theta: Fraction, level: int | None, floor: int) -> Fraction:
    return Fraction(0) if level is None else theta * _exp(level) + floor


def _mass(column: Column, policy: Policy, a: int) -> Fraction:
    """Return the part of a kind of weight one in the row sum of a value of class a."""
    size, count = column.sizes[a], policy.sizes[a]
    high, low = _exp(column.high[a]), _exp(column.low[a])
    return (high * size + low * (count - size)) / count


# --- closed forms --------------------------------------------------------------------------


def utility_optimised_rr(
    k: int, sensitive: Iterable[int], epsilon: float
) -> PolicyTable | PolicySubsets:
    """Return utility-optimised randomized response (uRR) for a one-sided policy.

    A sensitive value is kept or becomes another sensitive one, as in k-RR; an ordinary one is
    revealed, or reported as any sensitive value with as much chance as epsilon demands. Where
    all values are sensitive this is k-RR.
    Guarantee: `Policy.one_sided`. Raises `InvalidInput` as that does.
    Source: Murakami and Kawamoto, USENIX Security 2019, equation 6.
    """
    policy = Policy.one_sided(k, sensitive, epsilon)
    step = policy.distances[0][0] or policy.distances[0][1]
    exp_epsilon = _exp(step)
    v = policy.sizes[0]
    names_one = v * exp_epsilon / (exp_epsilon + v - 1)
    if v == k:
        return realise(policy, [(Column((1,), (0,), (-step,)), names_one)])
    kept = Column((1, 0), (0, None), (-step, -step))
    revealed = Column((0, 1), (None, 0), (None, None))
    honest = (k - v) * (1 - v / (exp_epsilon + v - 1))
    return realise(policy, [(kept, names_one), (revealed, honest)])


def improved_rr(epsilon: float) -> PolicyTable | PolicySubsets:
    """Return Mangat's improved randomized response to a yes/no question; 1 is "yes".

    A person of answer "yes" says so; one of answer "no" says "yes" with probability e**-epsilon,
    else the truth: a "no" is always true, and a "yes" never certain.
    Guarantee: `Policy.one_sided` with the sensitive value 1: who answers "no" is protected from
    nothing. Source: Mangat, "An improved randomized response strategy", JRSS B 56(1), 1994;
    it is uRR with one sensitive value of two.
    """
    return utility_optimised_rr(2, [1], epsilon)


def subset_columns(policy: Policy, size: int) -> list[tuple[Column, Fraction]]:
    """Return subset selection of `size` values for a policy of one class."""
    step = policy.distances[0][0]
    weight = Fraction(policy.k) / (size + (policy.k - size) * _exp(-step))
    return [(Column((size,), (0,), (-step,)), weight)]
