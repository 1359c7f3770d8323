"""Who is protected from what, and what else of a person is in the clear, in words."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from hearsay.plans.attested import Requirement
from hearsay.plans.kinds import ByKind, Categorical, Numeric
from hearsay.plans.plan import Plan
from hearsay.plans.sealing import DELTA
from hearsay_server.surveys import graded
from hearsay_server.surveys.question import Question
from ldp.assurance.amplification import clone_bound, shuffled


def of(question: Question) -> list[str]:
    """Return lines on which values are protected from which, at epsilon 1 of the attribute."""
    return _PROTECTIONS[question.domain](question.name, question.domain)


def _of_category(name: str, domain: Categorical) -> list[str]:
    if not domain.maps:
        return _of_values(name, domain)
    lines = _of_values(f"{name}, no map", domain)
    for chosen in domain.map_names:
        lines += _of_values(f"{name}, {chosen}", domain.chosen(chosen))
    return [
        *lines,
        f"{name}: the map that a person chose, or that they chose none, is sent in the clear",
        f"{name}: in several reports by different maps, only what all of them protect stays "
        "protected",
    ]


def _of_number(name: str, domain: Numeric) -> list[str]:
    if domain.is_graded:
        return [f"{name}: {line}" for line in graded.protections(domain)]
    return [f"{name}: every number from every other, by epsilon"]


def _always(promise: str) -> Callable[[str, Any], list[str]]:
    """Return what makes the one promise to all answers of a kind."""
    return lambda name, _: [f"{name}: {promise}"]


_OF_BINS = _always(
    "every bin from every other, by epsilon; where in a bin a number is never leaves the device"
)

_PROTECTIONS: ByKind[Callable[[str, Any], list[str]]] = ByKind(
    category=_of_category,
    number=_of_number,
    bins=_OF_BINS,
    set=_always("every set from every other, the empty one too, by epsilon"),
    ratings=_always("every table of ratings from every other, the empty one too, by epsilon"),
    words=_always("every word from every other, of whatever length, by epsilon"),
    grid=_OF_BINS,
)


def _of_values(place: str, domain: Categorical) -> list[str]:
    policy = domain.policy(1.0)
    if policy is None:
        return [f"{place}: every value from every other, by epsilon"]
    lines = []
    for a, mine in enumerate(policy.members):
        for b, theirs in enumerate(policy.members):
            if a == b and len(mine) == 1:
                continue
            distance = policy.distance(mine[0], theirs[1] if a == b else theirs[0])
            of, others = (_some([domain.values[v] for v in group]) for group in (mine, theirs))
            against = "each other" if a == b else others
            if math.isinf(distance):
                lines.append(f"{place}: {of} may be told from {against} for certain")
            else:
                lines.append(f"{place}: {of} from {against} by {distance:g} epsilon")
    return lines


def in_the_clear(plan: Plan, users: int) -> list[str]:
    """Return lines on panels and properties, how many bits link a person's reports, and how many
    of the respondents share them on average; and on how records are sealed."""
    lines = []
    if plan.panels:
        lines.append(
            f"panel: 1 of {plan.panels}, which a person's device draws once and sends with every "
            "report as long as the person has one ledger"
        )
    for each in plan.properties.declared:
        title = f" ({each.title})" if each.title else ""
        lines.append(f"{each.name}{title}: {_some(each.values)}, or none, as the app says")
    if lines:
        lines.append(
            f"all together: 1 of {plan.told:,} combinations, {math.log2(plan.told):.1f} bits by "
            "which a person's reports may be linked over periods"
        )
        lines.append(
            f"{users / plan.told:,.3g} of {users:,} respondents share a combination, if all are as "
            "frequent; whoever reads the database can link the reports of a person who is alone in "
            "one"
        )
    if plan.attested is not None:
        lines.append(attested_in_words(plan.attested))
    if plan.sealing is not None:
        last = plan.sealing.key_count * plan.sealing.rotate_days
        turns = (
            f"a new key every {plan.sealing.rotate_days} days, {plan.sealing.key_count} keys for "
            f"{last:,} days; the last one goes on after that"
            if plan.period
            else "one key for ever, as the survey has no periods"
        )
        lines.append(
            f"each record is sealed and padded to {plan.sealing.size} bytes, for a shuffler that "
            f"waits until {plan.sealing.least:,} of a period have come; {turns}"
        )
        lines += _mixed(plan, plan.sealing.least)
    return lines


def _mixed(plan: Plan, least: int) -> list[str]:
    """Return what the fewest records that a shuffler forwards give each other, by level."""
    if any(question.memo for question in plan.questions.values()):
        return []
    lines = []
    for level in plan.levels.values():
        by_map = [each for maps in level.by_map.values() for each in maps.values()]
        if all(mechanism.guarantee == "pure" for mechanism in by_map):
            # No record answers more than all questions, nor spends more than its level's epsilon.
            mixed = clone_bound(level.epsilon, least, DELTA)
            if len(by_map) == len(level.mechanisms):  # by maps there are others
                mixed = min(mixed, shuffled(by_map, least, DELTA).epsilon)
            lines.append(
                f"{level.name}: mixed with {least:,} honest records that answer the same questions "
                f"at this level, one tells the collector epsilon {mixed:.3g} at delta {DELTA:g} in "
                f"place of {level.epsilon:.4g}, if the shuffler does not collude with it; the "
                f"ledger is charged {level.epsilon:.4g}"
            )
    return lines


def attested_in_words(requirement: Requirement) -> str:
    """Say which evidence a server must give before devices send it records."""
    each = [
        f"{kind} with {len(listed)} measurement{'s' * (len(listed) > 1)}"
        for kind, listed in requirement.measurements.items()
    ]
    worth = (
        "test evidence proves nothing, so this protects nobody"
        if "test" in requirement.measurements
        else "it protects in addition, if the platform's maker is honest"
    )
    return (
        f"records leave only for a server that gives evidence of {' or '.join(each)}, at most "
        f"{requirement.max_age:,} s old; {worth}"
    )


def _some(values: Sequence[str]) -> str:
    shown = [*values[:4], "..."] if len(values) > 5 else values
    return " or ".join(shown)
