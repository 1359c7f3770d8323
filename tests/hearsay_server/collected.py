"""A server in this process that holds reports of every kind of code, over three days."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from serving import connected, create, own_name, submit

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.plans.kinds import Categorical
from hearsay.plans.plan import Plan
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2
from hearsay_server.surveys import catalogue
from ldp.testing import SeededCoins

VALUES = ("red", "green", "blue", "black", "white", "grey")
KINDS = [name for name in catalogue.CATEGORICAL if name != "auto"]
DAYS = [(datetime.now(UTC) - timedelta(days=back)).strftime("%Y-%m-%d") for back in (2, 1, 0)]


def toml() -> str:
    """One attribute per mechanism; "mixed" has codes of another kind at each level."""
    lines = ['name = "all"', 'period = "P1D"', "[levels]", "open = 32.0", "strict = 16.0"]
    questions = [(f"colour_{name}", name) for name in KINDS]
    for question, mechanism in [*questions, ("mixed", "auto")]:
        values = list(VALUES) if question != "mixed" else [str(v) for v in range(40)]
        lines += ["[[attributes]]", f'name = "{question}"', f'mechanism = "{mechanism}"']
        lines += ["[attributes.categorical]", f"values = {values}"]
    for name in catalogue.NUMERIC:
        lines += ["[[attributes]]", f'name = "number_{name}"', f'mechanism = "{name}"']
        lines += ["[attributes.numeric]", "low = 0", "high = 10"]
    return "\n".join(lines)


def register(address: str, text: str, token: str | None = None) -> tuple[bytes, Plan]:
    """Register a survey; return its plan."""
    request = admin_pb2.ShowSurveyRequest(survey=create(address, text, token).survey)
    with connected(address, token) as channel:
        shown = admin_pb2_grpc.AdminStub(channel).ShowSurvey(request, timeout=20)
    return shown.plan, hearsay.plans.plan.parse(shown.plan)


@pytest.fixture
def own(address: str, request: pytest.FixtureRequest) -> Callable[[str], Plan]:
    """Registers a survey at the server that the module shares, by a name of this test's own."""

    def register_it(text: str) -> Plan:
        named = re.sub('name = "[^"]*"', f'name = "{own_name(request)}"', text, count=1)
        return register(address, named)[1]

    return register_it


def batch(
    plan: Plan, level: str, period: str, answers: dict[str, NDArray[Any]], seed: int
) -> collector_pb2.Batch:
    """Randomise answers, all present except that every third row skips every other attribute."""
    rows = len(next(iter(answers.values())))
    columns = []
    for number, (attribute, values) in enumerate(answers.items()):
        mechanism = plan.levels[level].mechanisms[attribute]
        present = np.ones(rows, dtype=np.uint8)
        if number % 2:
            present[::3] = 0
        codes = mechanism.randomize_many(values[present == 1], SeededCoins(seed + number))
        columns.append(
            collector_pb2.Column(
                attribute=attribute,
                level=level,
                codes=mechanism.encode(codes),
                present=b"" if present.all() else np.packbits(present, bitorder="little").tobytes(),
            )
        )
    return collector_pb2.Batch(
        id=os.urandom(16),
        survey=plan.survey,
        revision=plan.revision,
        period=period,
        rows=rows,
        columns=columns,
    )


@dataclass(frozen=True)
class Collected:
    """A survey with reports of the first two days at each level, and who asks about it."""

    address: str
    analyst: Analyst
    plan: Plan


def collected_from(
    people: Callable[[Plan, int], dict[str, NDArray[Any]]],
    text: str,
    address: str,
    analyst: Analyst,
    properties: Sequence[str] = (),
) -> Collected:
    """Register a survey and submit what `people` answer, by the number of a level and day.

    All have the same values of public properties.
    """
    _, plan = register(address, text)
    cohorts = [(level, day) for level in plan.levels for day in DAYS[:2]]
    batches = [
        batch(plan, level, day, people(plan, i), 10 * i) for i, (level, day) in enumerate(cohorts)
    ]
    for each in batches:
        each.properties.extend(properties)
    submit(address, *batches)
    return Collected(address, analyst, plan)


def answers(plan: Plan, rows: int, seed: int) -> dict[str, NDArray[Any]]:
    """What people would answer: low categories more often, numbers around a third."""
    source = np.random.default_rng(seed)
    found: dict[str, NDArray[Any]] = {}
    for name, attribute in plan.attributes.items():
        if isinstance(attribute.domain, Categorical):
            found[name] = source.integers(0, len(attribute.domain.values), rows) // 2
        else:
            found[name] = source.beta(2, 4, rows) * 2 - 1
    return found


def collect(address: str, plan: Plan, rows: int = 40) -> int:
    """Submit two batches per day and level; return how many rows there were."""
    batches = [
        batch(plan, level, day, answers(plan, rows, seed), seed)
        for seed, (level, day) in enumerate((v, d) for v in plan.levels for d in DAYS * 2)
    ]
    results = submit(address, *batches)
    assert {result.status for result in results} == {collector_pb2.Result.STORED}, results
    return rows * len(batches)
