"""A cap of an attribute within one period, while a person changes level between records.

What was spent is computed from the reports that leave and from the channels of the plan's
mechanisms, not from the account.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, cached_property
from itertools import product

import pytest

from hearsay import Caps, InvalidInput
from hearsay.choices import Agreed, Choices
from hearsay.plans import plan as plans
from hearsay.plans.kinds import Categorical
from hearsay.plans.plan import Plan
from hearsay.recording.account import Account
from hearsay.recording.randomize import randomize
from hearsay.recording.terms import Terms
from hearsay.v1 import collector_pb2, plan_pb2, survey_pb2
from hearsay_server.surveys import survey as surveys
from ldp import Mechanism
from ldp.core.exact import ONE, log_upper
from ldp.testing import SeededCoins
from support import Calendar

VALUES = {"smokes": 2, "sleeps": 3, "age": 2, "sex": 2, "town": 3}
Reports = Sequence[tuple[str, str]]
"""The questions that one period reported, each with its level."""


@dataclass(frozen=True, eq=False)
class Case:
    """A plan: by level its epsilon and that of each question; views have "+" in their names."""

    levels: Mapping[str, tuple[float, Mapping[str, float]]]
    chances: tuple[Fraction, ...] = ()
    classes: Mapping[str, float] = field(default_factory=dict)
    """By attribute, the scale of a class that has all its values but the first."""
    plan_caps: Mapping[str, float] = field(default_factory=dict)
    app_caps: Mapping[str, float] = field(default_factory=dict)

    @property
    def caps(self) -> Mapping[str, float]:
        return {**self.plan_caps, **self.app_caps}

    @cached_property
    def plan(self) -> Plan:
        questions = next(iter(self.levels.values()))[1]
        wire = plan_pb2.Plan(survey=self._survey(questions))
        wire.survey.levels.update({name: epsilon for name, (epsilon, _) in self.levels.items()})
        for name, (epsilon, each) in self.levels.items():
            level = wire.levels.add(name=name, epsilon=epsilon)
            level.chances.extend(int(chance * ONE) % ONE for chance in self.chances)
            for question, share in each.items():
                alone = self._survey([question])
                alone.levels["only"] = share
                made = plan_pb2.Plan.FromString(surveys.resolve(alone)).levels[0].mechanisms[0]
                level.mechanisms.add().CopyFrom(made)
        return plans.parse(wire.SerializeToString(deterministic=True))

    def _survey(self, questions: Sequence[str] | Mapping[str, float]) -> survey_pb2.Survey:
        wire = survey_pb2.Survey(name="sleep", period="P1D")
        wire.views.extend(survey_pb2.View(attributes=q.split("+")) for q in questions if "+" in q)
        for name in dict.fromkeys(part for q in questions for part in q.split("+")):
            attribute = wire.attributes.add(name=name)
            attribute.categorical.values.extend(f"v{number}" for number in range(VALUES[name]))
            if name in self.classes:
                listed = attribute.categorical.classes["kept"]
                listed.scale = self.classes[name]
                listed.values.extend(attribute.categorical.values[1:])
            if name in self.plan_caps and len(questions) > 1:
                attribute.cap = self.plan_caps[name]
        return wire

    @cached_property
    def limits(self) -> list[tuple[str, int, int, Fraction]]:
        """An attribute, two of its values, and the most that may be told between them."""
        found = []
        for name, cap in self.caps.items():
            domain = self.plan.attributes[name].domain
            assert isinstance(domain, Categorical)
            for x, y in product(range(VALUES[name]), repeat=2):
                scale = min([1.0, *(s for vs, s in domain.classes if {x, y} & places(domain, vs))])
                found.append((name, x, y, Fraction(cap) * Fraction(scale)))
        return found

    @cache  # noqa: B019 - a case lives as long as its module
    def told(self, level: str, question: str, name: str, x: int, y: int) -> Fraction:
        """Return the worst ratio that a report tells between two values of an attribute, all other
        attributes alike, as the whole channel has it."""
        parts = self.plan.parts(question)
        if name not in parts:
            return Fraction(1)
        mechanism: Mechanism = self.plan.levels[level].mechanisms[question]
        rows = mechanism.channel().rows  # type: ignore[attr-defined]
        cells = list(product(*(range(VALUES[part]) for part in parts)))
        place, worst = parts.index(name), Fraction(1)
        for index, cell in enumerate(cells):
            if cell[place] == x:
                other = cells.index((*cell[:place], y, *cell[place + 1 :]))
                pairs = zip(rows[index], rows[other], strict=True)
                worst = max([worst, *(Fraction(a) / Fraction(b) for a, b in pairs)])
        return worst


def places(domain: Categorical, values: Sequence[str]) -> set[int]:
    return {domain.values.index(value) for value in values}


HALF = Fraction(1, 2)
CASES = {
    "two views": Case(
        levels={
            "strict": (1.5, {"town": 0.5, "smokes+sleeps": 0.9, "smokes+age": 0.05}),
            "open": (3.0, {"town": 2.0, "smokes+sleeps": 0.05, "smokes+age": 0.85}),
        },
        plan_caps={"smokes": 1.0},
    ),
    "three views": Case(
        levels={
            "strict": (
                1.5,
                {"town": 0.5, "smokes+sleeps": 0.5, "smokes+age": 0.2, "smokes+sex": 0.2},
            ),
            "middle": (
                2.0,
                {"town": 1.0, "smokes+sleeps": 0.2, "smokes+age": 0.1, "smokes+sex": 0.6},
            ),
            "open": (
                2.5,
                {"town": 1.5, "smokes+sleeps": 0.1, "smokes+age": 0.1, "smokes+sex": 0.7},
            ),
        },
        plan_caps={"smokes": 1.0},
    ),
    "sampled views": Case(
        levels={
            "strict": (
                1.5,
                {"town": 0.5, "smokes+sleeps": 0.7, "smokes+age": 0.1, "sleeps+age": 0.2},
            ),
            "open": (
                3.0,
                {"town": 1.5, "smokes+sleeps": 0.2, "smokes+age": 0.7, "sleeps+age": 0.75},
            ),
        },
        chances=(Fraction(1), Fraction(1), HALF, HALF),
        plan_caps={"smokes": 0.9, "sleeps": 1.0},
    ),
    "classes and a cap of the app's": Case(
        levels={
            "strict": (1.5, {"town": 0.5, "smokes+sleeps": 0.9, "sleeps+age": 0.05}),
            "open": (3.0, {"town": 2.0, "smokes+sleeps": 0.1, "sleeps+age": 0.85}),
        },
        classes={"sleeps": 0.5},
        app_caps={"sleeps": 1.0},
    ),
}


def choices_of(case: Case) -> list[tuple[Choices, list[str]]]:
    """Return ten choices: levels, and the attributes that are answered."""
    names, views = list(case.plan.attributes), list(case.plan.views.values())
    asked = [names, list(views[0].attributes), list(views[1].attributes)]
    (first, *_, last) = case.levels
    found = [(Choices(level), given) for level in (first, last) for given in asked]
    found += [(Choices(list(case.levels)[1]), list(views[-1].attributes))]
    for name in (views[0].attributes[0], views[0].attributes[1], views[1].attributes[-1]):
        found.append((Choices(last, ((name, first),)), names))
    assert len(found) == 10
    return found


def lives(case: Case, depth: int) -> Iterator[Reports]:
    """Yield what each sequence of choices reports in one period."""
    agreed, caps, now = Agreed("sleep", 10.0), Caps(attribute=case.app_caps), Calendar()()
    every: list[tuple[Terms, list[str]]] = []
    for choices, given in choices_of(case):
        try:
            terms = Terms.of(case.plan, choices, agreed, frozenset())
            terms.check_caps(caps)
        except InvalidInput:
            continue  # the client refuses this mix of levels
        every.append((terms, given))
    connection = sqlite3.connect(":memory:")

    def after(stored: str, before: Reports, left: int) -> Iterator[Reports]:
        if not left:
            yield before
            return
        for number, (terms, given) in enumerate(every):
            account, report = Account(stored, "sleep"), collector_pb2.Batch()
            account.enter(terms, now, None, SeededCoins(number))
            values = dict.fromkeys(given, 0)
            randomize(
                report, values, terms, account, [caps], (connection, b"", b""), SeededCoins(1)
            )
            made = [(column.attribute, column.level) for column in report.columns]
            yield from after(account.dump(), [*before, *made], left - 1)

    with contextlib.closing(connection):
        yield from after("{}", [], depth)


@pytest.mark.parametrize("name", CASES)
def test_no_sequence_of_choices_within_a_period_exceeds_a_cap(name: str) -> None:
    case = CASES[name]
    seen = {tuple(sorted(reports)) for reports in lives(case, 3)}
    assert any(len({level for _, level in reports}) > 1 for reports in seen)
    worst = Fraction(0)
    for reports in seen:
        assert len({question for question, _ in reports}) == len(reports)
        for attribute, x, y, limit in case.limits:
            ratio = Fraction(1)
            for question, level in reports:
                ratio *= case.told(level, question, attribute, x, y)
            spent = Fraction(log_upper(ratio))
            assert spent <= limit, (reports, attribute, x, y, float(spent))
            worst = max(worst, spent / limit)
        levels = [case.levels[level][0] for _, level in reports]
        spent_all = sum(
            Fraction(case.plan.levels[level].mechanisms[question].epsilon)
            for question, level in reports
        )
        assert spent_all <= max([0.0, *levels])
    assert worst > Fraction(9, 10)  # the caps are not kept by reporting nothing
