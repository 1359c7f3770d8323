"""Whatever personal budget a survey declares, a whole record keeps it, and does not waste it."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from operator import getitem

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hearsay.plans.plan
from hearsay.plans.plan import Level
from hearsay.v1 import survey_pb2
from hearsay_server.surveys import survey as surveys
from ldp import Mechanism
from ldp.core.exact import exp_bounds
from ldp.planning.budget import Budget

Distances = list[list[Fraction | float]]
Columns = list[list[int]]
"""By code, how likely each record makes it, up to a common factor."""

SIZES = [
    *((k,) for k in range(2, 7)),
    *(pair for pair in product(range(2, 7), range(2, 7)) if pair[0] * pair[1] <= 12),
]


@st.composite
def questions(draw: st.DrawFn, size: int) -> survey_pb2.Categorical:
    """A question of `size` values: all alike, some of them sensitive, in maps or in classes."""
    values = [f"v{i}" for i in range(size)]
    question = survey_pb2.Categorical(values=values)
    kind = draw(st.sampled_from(["alike", "sensitive", "maps", "classes"]))
    if kind == "sensitive":
        question.sensitive.extend(draw(st.lists(st.sampled_from(values), unique=True, min_size=1)))
    if kind == "maps":
        some = st.frozensets(st.sampled_from(values), min_size=1, max_size=size - 1)
        for number, listed in enumerate(sorted(map(sorted, draw(st.sets(some, max_size=3))))):
            question.maps[f"map{number}"].sensitive.extend(listed)
    if kind == "classes":
        of = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
        for number in sorted(set(of) - {0}):  # the values of 0 are in none, and have all of epsilon
            listed = question.classes[f"class{number}"]
            listed.values.extend(v for v, its in zip(values, of, strict=True) if its == number)
            listed.scale = draw(st.floats(0.1, 1))
        if 0 not in of:
            question.classes[f"class{of[0]}"].scale = 1.0
    return question


@st.composite
def declarations(draw: st.DrawFn, budget: str) -> survey_pb2.Survey:
    """A survey of one or two questions, to which there are at most 12 different records."""
    survey = survey_pb2.Survey(name="generated", budget=budget)
    for number in range(draw(st.integers(1, 2))):
        survey.levels[f"level{number}"] = draw(st.floats(0.1, 8))
    for number, size in enumerate(draw(st.sampled_from(SIZES))):
        weight = draw(st.floats(0.2, 5))
        question = draw(questions(size))
        survey.attributes.add(name=f"question{number}", weight=weight, categorical=question)
    return survey


def declared(question: survey_pb2.Categorical, epsilon: Fraction, chosen: str) -> Distances:
    """Write down what a question declares to those who chose a map ("" for none), with the ways
    round that it implies."""
    order = range(len(question.values))
    sensitive = question.maps[chosen].sensitive if chosen else question.sensitive
    scale = dict.fromkeys(question.values, Fraction(1))
    for listed in question.classes.values():
        scale |= dict.fromkeys(listed.values, Fraction(listed.scale))
    rows: Distances = [[Fraction(0)] * len(order) for _ in order]
    for x, y in product(order, order):
        mine, other = question.values[x], question.values[y]
        if x != y:
            free = sensitive and mine not in sensitive
            rows[x][y] = math.inf if free else epsilon * min(scale[mine], scale[other])
    for via, x, y in product(order, order, order):
        rows[x][y] = min(rows[x][y], rows[x][via] + rows[via][y])
    return rows


def of_records(mechanisms: Sequence[Mechanism], budget: Budget) -> Columns:
    """Enumerate what leaves a device: the codes of all attributes, or of the one drawn."""
    codes = [_integers(mechanism) for mechanism in mechanisms]
    records = list(product(*(range(len(each[0])) for each in codes)))
    if budget.reported == len(mechanisms):
        return [
            [math.prod(map(getitem, parts, record)) for record in records]
            for parts in product(*codes)
        ]
    assert budget.reported == 1
    # Which attribute was drawn is in the clear, so its codes are codes of their own.
    totals = [sum(code[0] for code in each) for each in codes]
    return [
        [chance * code[record[j]] * math.prod(totals) // totals[j] for record in records]
        for j, (each, chance) in enumerate(zip(codes, budget.chances, strict=True))
        if chance
        for code in each
    ]


def splits(level: Level) -> bool:
    """Tell whether a record at this level reports all attributes; otherwise it reports one."""
    return level.budget.reported == len(level.mechanisms)


def _integers(mechanism: Mechanism) -> Columns:
    rows = mechanism.channel().rows
    common = math.lcm(*(entry.denominator for row in rows for entry in row))
    columns = zip(*rows, strict=True)
    return [[entry.numerator * common // entry.denominator for entry in c] for c in columns]


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["split", "sample", "auto"])
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_pair_of_records_keeps_the_declared_policy_and_some_pair_uses_it(
    budget: str, data: st.DataObject
) -> None:
    survey = data.draw(declarations(budget))
    plan = hearsay.plans.plan.parse(surveys.resolve(survey))
    levels = list(plan.levels.values())
    own = data.draw(st.sampled_from(levels))
    chosen = [data.draw(st.sampled_from(levels)) for _ in survey.attributes]
    names = [attribute.name for attribute in survey.attributes]
    maps = [data.draw(st.sampled_from(("", *plan.maps(name)))) for name in names]
    mechanisms = [
        level.by_map[name][of_map] for level, name, of_map in zip(chosen, names, maps, strict=True)
    ]
    weights = [Fraction(attribute.weight) for attribute in survey.attributes]
    shares = []
    for position, (level, weight) in enumerate(zip(chosen, weights, strict=True)):
        share = Fraction(level.epsilon) * (weight / sum(weights) if splits(level) else 1)
        if survey.budget == "auto" and splits(level):  # not by weight, but all of it
            share = Fraction(level.budget.epsilons[position])
            spent = sum(map(Fraction, level.budget.epsilons))
            assert 0.999 * level.epsilon <= spent <= Fraction(level.epsilon)
        shares.append(share)
    limits = [
        declared(attribute.categorical, share, of_map)
        for attribute, share, of_map in zip(survey.attributes, shares, maps, strict=True)
    ]
    columns = of_records(mechanisms, own.budget)
    records = list(product(*(range(len(a.categorical.values)) for a in survey.attributes)))
    assert len({sum(column[x] for column in columns) for x in range(len(records))}) == 1
    used = 0.0
    for (x, mine), (y, other) in product(enumerate(records), enumerate(records)):
        together = [rows[a][b] for rows, a, b in zip(limits, mine, other, strict=True)]
        limit = sum(together) if splits(own) else max(together)
        if x == y or limit == math.inf:
            continue
        high, low = 1, 1
        for column in columns:
            if column[x] * low > high * column[y]:
                high, low = column[x], column[y]
        assert low > 0
        assert Fraction(high, low) <= exp_bounds(Fraction(limit))[0]
        if limit > 0:
            used = max(used, (math.log(high) - math.log(low)) / float(limit))
    assert used >= 0.999
