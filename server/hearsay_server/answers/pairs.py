"""Answers about pairs of items, which reports tell and tallies do not."""

from collections.abc import Mapping

import numpy as np

from hearsay.asking import cautions, roles
from hearsay.asking.answer import Answer, Note, Subject, Table
from hearsay.asking.columns import PAIR_COLUMNS
from hearsay.plans.kinds import SetOf
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.queries import NoReports, Tallies, by_level, confidence_of
from hearsay_server.answers.sets import items_of
from ldp import SetSelection
from ldp.core.repeated import Repeats
from ldp.estimating import sets
from ldp.estimating.pairs import PairTally

_SHOWN = 100
"""Pairs in an answer unless more are asked for."""


def domain_of(plan: Plan, attribute: str) -> SetOf:
    """Return the domain of a set; raise `InvalidInput` for another one."""
    return items_of(plan.asked(attribute), "pairs")


def pairs(
    plan: Plan,
    question: analyst_pb2.PairsRequest,
    tallies: Tallies,
    found: Mapping[str, PairTally],
) -> Answer:
    """Answer a `PairsRequest` from the counts of pairs at each level.

    `tallies` are those of the same selection: they tell how often one person may be among the
    reports. Raises `NoReports` where there are none.
    """
    domain = domain_of(plan, question.attribute)
    if not found:
        raise NoReports(f"there are no stored reports of {question.attribute!r} that tell pairs")
    cohorts = by_level(plan, question.attribute, tallies)
    levels = list(dict.fromkeys(cohort.level for cohort in tallies))
    repeats: dict[str, Repeats] = dict(zip(levels, cohorts.repeats, strict=True))
    each = []
    for level, tally in found.items():
        mechanism = plan.levels[level].mechanisms[question.attribute]
        assert isinstance(mechanism, SetSelection)  # as `rows.pairs_by_level` has checked
        each.append((mechanism, tally, repeats[level]))
    estimate = sets.pairs(each)
    confidence = confidence_of(question)
    low, high = estimate.interval(confidence)
    n = sum(tally.n for _, tally, _ in each)
    shares = np.sum([tally.n / n * m.debias(tally.first) for m, tally, _ in each], axis=0)
    first, second = np.triu_indices(len(domain.values), 1)
    order = np.argsort(-estimate.value, kind="stable")[: question.top or _SHOWN]
    left = [level for level in levels if level not in found]
    first, second = first[order], second[order]
    columns = {
        "estimate": estimate.value[order],
        "standard_error": estimate.standard_error[order],
        "low": low[order],
        "high": high[order],
        "independent": shares[first] * shares[second],
    }
    rows = Table(
        "rows",
        roles.index(
            ("first", [domain.values[item] for item in first]),
            ("second", [domain.values[item] for item in second]),
        ),
        tuple(roles.column(name, columns[name], "share") for name in PAIR_COLUMNS),
        left_out=len(estimate.value) - order.size,
    )
    return Answer(
        "pairs",
        plan.survey,
        (Subject(question.attribute, plan.asked(question.attribute).title),),
        "share of both",
        (rows,),
        confidence=confidence,
        reports=n,
        repeats=max(own.factor for _, _, own in each),
        method=estimate.method,
        notes=(Note.of(cautions.no_pairs, levels=left),) if left else (),
    )
