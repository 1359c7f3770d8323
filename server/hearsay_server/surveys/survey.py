"""Read a survey file, and resolve it into a frozen plan."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import hearsay.plans.plan
from hearsay import files
from hearsay.plans import attested, period
from hearsay.plans.kinds import ByKind, Domain, Grid
from hearsay.plans.plan import Plan
from hearsay.plans.properties import properties_of
from hearsay.plans.texts import check_name
from hearsay.plans.views import View
from hearsay.v1 import plan_pb2, survey_pb2
from hearsay_server.declared import fill, load
from hearsay_server.surveys import graded, sealing, two_servers
from hearsay_server.surveys.question import Question
from ldp import InvalidInput
from ldp.core.exact import MAX_EPSILON, ONE, check_epsilon, float_below
from ldp.planning import budget as budgets
from ldp.planning.budget import Budget, Decision

_MAX_RECORD = 1 << 20
"""Bytes of a record's codes: batches stay well below gRPC's default limit of 4 MiB a message."""

_MOST_COUNTS = 1 << 26
"""Counts of the tallies of a period in all panels and groups: devices choose which they fill."""

_POLICIES: ByKind[Callable[[Any], object]] = ByKind.otherwise(
    lambda domain: None,
    category=lambda domain: domain.policy(1.0),
    number=lambda domain: graded.steps(domain) if domain.is_graded else None,
)
"""Raises `InvalidInput` for answers whose declared protection no mechanism can keep."""


def from_file(file: Path) -> survey_pb2.Survey:
    """Read a survey as `from_toml` does; raise `InvalidInput` where the file cannot be read."""
    return from_toml(files.read(file), str(file))


def from_toml(text: str, source: str) -> survey_pb2.Survey:
    """Read a survey; raise `InvalidInput` that starts with `source` and names the place.

    The schema is the proto's: an unknown key or a value of another type is refused. Whether the
    survey makes sense is for `resolve` to say.
    """
    document = load(text, source)
    attributes = document.pop("attributes", [])
    if not isinstance(attributes, list) or not all(isinstance(a, dict) for a in attributes):
        raise InvalidInput(f"{source}: attributes are written as [[attributes]] tables")
    views = document.pop("views", [])
    if not isinstance(views, list) or not all(
        isinstance(view, list) and all(isinstance(name, str) for name in view) for view in views
    ):
        raise InvalidInput(
            f'{source}: views are lists of attributes, as views = [["smokes", "diagnosis"]]'
        )
    properties = document.pop("properties", [])
    if not isinstance(properties, list) or not all(isinstance(p, dict) for p in properties):
        raise InvalidInput(f"{source}: properties are written as [[properties]] tables")
    survey = survey_pb2.Survey()
    fill(survey, document, source)
    for view in views:
        survey.views.add(attributes=view)
    for position, table in enumerate(attributes):
        fill(survey.attributes.add(), table, f"{source}: attributes[{position}]")
    for position, table in enumerate(properties):
        fill(survey.properties.add(), table, f"{source}: properties[{position}]")
    return survey


def resolve(survey: survey_pb2.Survey) -> bytes:
    """Return the survey's plan, serialised in its frozen, canonical form.

    A level's epsilon falls on the questions (attributes that are in no view, and views) as the
    survey's budget says (`decide`), rounded down; every mechanism is calibrated to its share.
    Where values are sensitive or have classes, and for each map, the mechanism is the one of least
    variance that their policy allows (`ldp.planning.design`); a memoised attribute with fresh noise
    has a chain
    (`catalogue.CHAINS`). Raises `InvalidInput` that names the place for a survey that cannot be.
    """
    check_name("name", survey.name)
    period.check_unit(survey.period)
    if not survey.levels:
        raise InvalidInput("levels: at least one is needed, such as [levels] standard = 1.0")
    if not survey.attributes:
        raise InvalidInput("attributes: at least one is needed, as [[attributes]]")
    if survey.HasField("attestation"):
        survey = _with_defaults(survey)
    if survey.HasField("two_servers"):
        for name, epsilon in survey.levels.items():
            check_name("levels", name)
            check_epsilon(epsilon, f"levels.{name}: epsilon")
        return two_servers.resolved(survey)
    asked = questions(survey)
    properties_of(survey)  # before budgets are allocated, which may take long
    _check_page(survey)
    levels = sorted(survey.levels.items(), key=lambda item: (item[1], item[0]))
    for name, epsilon in levels:
        check_name("levels", name)
        check_epsilon(epsilon, f"levels.{name}: epsilon")
    plan = plan_pb2.Plan(survey=survey)
    plan.survey.ClearField("page")  # the operator's declaration, which may change
    plan.survey.ClearField("sealing")  # declared below: how large records are must be known
    allocated = _allocate(survey.budget, [epsilon for _, epsilon in levels], asked)
    for (name, epsilon), budget in zip(levels, allocated, strict=True):
        level = plan.levels.add(name=name, epsilon=epsilon)
        if budget.reported < len(asked):
            level.chances.extend(chance % ONE for chance in budget.chances)
        size = 0
        for question, share in zip(asked, budget.epsilons, strict=True):
            try:
                mechanism, mapped = question.mechanism(share), question.mapped(share)
            except InvalidInput as error:
                raise InvalidInput(f"levels.{name}, {question.name}: {error}") from None
            level.mechanisms.append(hearsay.plans.plan.mechanism_message(mechanism))
            level.mapped.extend(map(hearsay.plans.plan.mechanism_message, mapped))
            size += max(each.code_bytes for each in (mechanism, *mapped))
        if size > _MAX_RECORD:
            raise InvalidInput(
                f"levels.{name}: a record takes {size} bytes, more than {_MAX_RECORD}: choose "
                "mechanisms of smaller reports"
            )
    data: bytes = plan.SerializeToString(deterministic=True)
    parsed = hearsay.plans.plan.parse(data)  # a client's checks, made before anything is frozen
    if survey.HasField("sealing"):
        data = sealing.declared(survey.sealing, plan, parsed)
    if parsed.told > 1 and parsed.told * parsed.counts > _MOST_COUNTS:
        raise InvalidInput(
            f"panels and properties have {parsed.told:,} combinations, and each has tallies of "
            f"{parsed.counts:,} counts in a period: together at most {_MOST_COUNTS:,}; declare "
            "fewer panels or values, or mechanisms of smaller tallies"
        )
    return data


def _with_defaults(survey: survey_pb2.Survey) -> survey_pb2.Survey:
    """Return a survey with what it leaves open of the evidence that it requires."""
    filled = survey_pb2.Survey()
    filled.CopyFrom(survey)
    wanted = filled.attestation
    wanted.max_age = wanted.max_age or attested.DEFAULT_AGE
    if not wanted.statuses:
        wanted.statuses.extend(attested.DEFAULT_STATUSES)
    return filled


def _check_page(survey: survey_pb2.Survey) -> None:
    """Raise `InvalidInput` where a page that is not public is to show or to ask something, where a
    page is to ask what a browser without an account may never answer, and where it is to seal."""
    page = survey.page
    for field in ("results", "answers"):
        if getattr(page, field) and not page.public:
            raise InvalidInput(
                f"page: {field} = true needs public = true: a survey that is not public has no "
                "page for everybody"
            )
    if page.answers and not survey.period:
        raise InvalidInput(
            "page: answers = true needs a survey with a period: a browser whose data may have been "
            "cleared answers from its next period on, and without a period there is none"
        )
    if page.public and survey.HasField("attestation"):
        raise InvalidInput(
            "page: a survey with [attestation] has no page: a page is of the server that has to "
            "give the evidence"
        )
    if page.answers and survey.HasField("sealing"):
        raise InvalidInput(
            "page: answers = true needs a survey without [sealing]: the SDK for browsers seals no "
            "records, and a page of the server that collects is no place to hide from it"
        )


def questions(survey: survey_pb2.Survey) -> list[Question]:
    """Return what records report: the attributes that are in no view, then the views.

    A view has the mean of its attributes' weights, and the mechanism that they name. Its cap is the
    smallest of theirs; where a record may report several views, an attribute's cap is shared out
    among those that contain it. Raises `InvalidInput` that names the place for an attribute or a
    view that cannot be.
    """
    found: list[Question] = []
    attributes: dict[str, hearsay.plans.plan.Attribute] = {}
    for position, attribute in enumerate(survey.attributes):
        place = f"attributes[{position}]"
        check_name(f"{place}: name", attribute.name)
        if attribute.name in (question.name for question in found):
            raise InvalidInput(f"{place}: the name {attribute.name!r} is taken by an earlier one")
        place = f"{place} ({attribute.name})"
        weight = attribute.weight if attribute.HasField("weight") else 1.0
        if not (math.isfinite(weight) and weight > 0):
            raise InvalidInput(f"{place}: weight must be finite and > 0, got {weight!r}")
        cap = attribute.cap if attribute.HasField("cap") else MAX_EPSILON
        check_epsilon(cap, f"{place}: cap")
        try:
            checked = hearsay.plans.plan.attribute(attribute, survey.period)
            domain = checked.domain
            _POLICIES[domain](domain)  # refused here, where the place is known
        except InvalidInput as error:
            raise InvalidInput(f"{place}: {error}") from None
        question = Question(
            attribute.name, domain, weight, cap, attribute.mechanism, attribute.memo
        )
        found.append(question)
        attributes[attribute.name] = checked
    if not survey.views:
        return found
    views = hearsay.plans.plan.views_of(survey, attributes)
    asked = hearsay.plans.plan.questions(attributes, views.values())
    by_name = {question.name: question for question in found}
    shared: Counter[str] = Counter()
    if survey.budget != "sample":  # a record may report several views
        shared.update(name for view in views.values() for name in view.attributes)
    return [
        _view(views[name], asked[name].domain, by_name, shared) if name in views else by_name[name]
        for name in asked
    ]


def _view(
    view: View, domain: Domain | Grid, attributes: Mapping[str, Question], shared: Mapping[str, int]
) -> Question:
    """Return a view as a question; `shared` is among how many views an attribute's cap is."""
    parts = [attributes[name] for name in view.attributes]
    named = sorted({part.asked_for or "auto" for part in parts})
    if len(named) > 1:
        raise InvalidInput(
            f"views ({view.name}): the attributes of a view must name one mechanism, "
            f"got {' and '.join(named)}"
        )
    caps = [float_below(Fraction(part.cap) / max(1, shared[part.name])) for part in parts]
    weight = sum(part.weight for part in parts) / len(parts)
    return Question(view.name, domain, weight, min(caps), named[0])


def levels_in_words(plan: Plan) -> str:
    """List a plan's levels, each with the epsilon of a record, and mark the default one."""
    return ", ".join(
        f"{level.name} = {level.epsilon:g}{' (default)' * (level.name == plan.default_level)}"
        for level in plan.levels.values()
    )


def decide(budget: str, epsilons: Sequence[float], asked: Sequence[Question]) -> Decision:
    """Return each level's split of epsilon over the attributes, and the compared alternatives.

    All levels get budgets of one kind, with the same chances where attributes are sampled: then
    a level of less epsilon has less for every attribute, so that users may mix levels, and
    every user counts alike. Raises `InvalidInput` for a budget that is not split, sample, auto
    or empty, and for a weight so small that its attribute would never be reported.
    """
    attributes = [budgets.Attribute(q.name, lru_cache(q.variance), q.weight, q.cap) for q in asked]
    match budget:
        case "auto":
            return budgets.decide(epsilons, attributes)
        case "sample":
            found = "one attribute of a record", budgets.sample(epsilons, attributes)
        case "" | "split":
            found = "all attributes, by weight", _by_weight(epsilons, asked)
        case _:
            raise InvalidInput(f"budget must be split, sample or auto, got {budget!r}")
    return budgets.compared([found], attributes)


def _allocate(
    budget: str, epsilons: Sequence[float], asked: Sequence[Question]
) -> tuple[Budget, ...]:
    """Return the budgets of `decide`, with no variances predicted where none are compared."""
    if budget in ("", "split"):
        return _by_weight(epsilons, asked)
    return decide(budget, epsilons, asked).budgets


def _by_weight(epsilons: Sequence[float], asked: Sequence[Question]) -> tuple[Budget, ...]:
    weights, caps = [q.weight for q in asked], [q.cap for q in asked]
    return tuple(budgets.split_by_weight(epsilon, weights, caps) for epsilon in epsilons)
