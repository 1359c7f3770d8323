"""What mixing by a shuffler gives the records of a sealed survey, cohort by cohort.

The bounds and their sources are those of `ldp.assurance.amplification`.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from hearsay.asking import roles
from hearsay.asking.answer import Answer, Subject, Table
from hearsay.asking.columns import MIXING_COLUMNS
from hearsay.plans.plan import Plan
from hearsay.plans.sealing import DELTA, LEAST, TRUST
from hearsay.v1 import analyst_pb2
from ldp import InvalidInput, Mechanism
from ldp.assurance import amplification
from ldp.core.exact import float_above


def check(plan: Plan, request: analyst_pb2.MixingRequest) -> None:
    """Raise `InvalidInput` unless the survey is sealed and has neither panels nor properties, and
    0 < delta < 1."""
    if not 0 < _delta(request) < 1:
        raise InvalidInput(f"expected delta between 0 and 1, got {request.delta:g}")
    if plan.sealing is None:
        raise InvalidInput(
            f"{plan.survey}: the records of this survey go to the server directly, so nothing "
            "mixes them: a shuffler takes those of a survey with [sealing]"
        )
    if plan.told > 1:
        raise InvalidInput(
            f"{plan.survey}: records tell their panel or properties in the clear, and hide only "
            "among records that tell the same; cohorts are counted for surveys without either"
        )


def mixing(
    plan: Plan, request: analyst_pb2.MixingRequest, mixes: Sequence[analyst_pb2.Mixed]
) -> Answer:
    """Return what is known of the cohorts that `mixes` are, those of the last period first.

    A cohort are records of one period that left the shuffler together and share one randomizer,
    because they answer the same questions at the same levels and maps. `epsilon` is what a whole
    record spends, by its mechanisms' integers. `shuffled_epsilon` bounds what the cohort's records
    in random order tell of one of them, at delta; it is nan where the honest ones are fewer than
    1,000, where a report depends on a memo, which links a person's records, and where an answer may
    be revealed or is protected by distance: such records are no clones.

    A record hides only among records of its cohort, since all else is in the clear, and `forged`
    ones hide nobody; the bound is that of the whole record, whose answers are linked to each other.
    Cost: up to some seconds a cohort, more where questions have many kinds of pairs of answers.
    """
    order = {name: place for place, name in enumerate(plan.questions)}
    labels: list[tuple[str, str, str]] = []
    rows: list[tuple[float, ...]] = []
    known: dict[tuple[object, int], float] = {}
    delta = _delta(request)
    for mixed in sorted(mixes, key=lambda each: each.period, reverse=True):
        told = tuple(
            (each.attribute, each.level, each.map)
            for each in sorted(mixed.answers, key=lambda each: order[each.attribute])
        )
        mechanisms = [plan.levels[level].by_map[name][chosen] for name, level, chosen in told]
        key = told, mixed.records - request.forged
        if key not in known:
            repeats = any(plan.questions[name].memo for name, _, _ in told)
            known[key] = math.nan if repeats else _bound(mechanisms, key[1], delta)
        attributes = [f"{name} ({chosen})" if chosen else name for name, _, chosen in told]
        levels = dict.fromkeys(level for _, level, _ in told)
        labels.append((mixed.period, ", ".join(levels), ", ".join(attributes)))
        epsilon = float_above(sum((Fraction(m.realised_epsilon) for m in mechanisms), Fraction()))
        rows.append((mixed.records, epsilon, known[key]))
    columns = zip(MIXING_COLUMNS, zip(*rows, strict=True), strict=True)
    index = zip(("period", "level", "attributes"), zip(*labels, strict=True), strict=True)
    table = Table(
        "rows",
        roles.index(*((name, list(texts)) for name, texts in index)),
        tuple(roles.column(name, numbers, "none") for name, numbers in columns),
    )
    return Answer(
        "mixing",
        plan.survey,
        tuple(Subject(each.name, each.title) for each in plan.questions.values()),
        "epsilon",
        (table,),
        reports=sum(mixed.records for mixed in mixes),
        figures={"delta": delta, "forged": request.forged, "trust": TRUST},
    )


def _delta(request: analyst_pb2.MixingRequest) -> float:
    return request.delta if request.HasField("delta") else DELTA


def _bound(mechanisms: Sequence[Mechanism], honest: int, delta: float) -> float:
    if honest < LEAST or any(m.guarantee != "pure" for m in mechanisms):
        return math.nan
    return amplification.shuffled(mechanisms, honest, delta).epsilon
