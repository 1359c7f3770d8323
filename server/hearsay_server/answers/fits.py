"""Answers to `Fit`: regressions from the records that report all of a model's attributes."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from hearsay.asking import cautions, roles
from hearsay.asking.answer import Answer, Note, Subject, Table
from hearsay.asking.columns import FIT_COLUMNS, variable_name
from hearsay.plain import is_plain
from hearsay.plans.kinds import ByKind, Categorical, Domain, Numeric
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.queries import NoReports, confidence_of
from hearsay_server.answers.records import Chosen, Complete, mechanisms, repeats
from ldp.core.intervals import check_confidence
from ldp.core.mechanism import Codes
from ldp.errors import InvalidInput, NotReady
from ldp.estimating.forward import forward
from ldp.estimating.logistic import logistic
from ldp.estimating.regression import (
    MAX_COLUMNS,
    Fit,
    Indicator,
    Number,
    Product,
    Records,
    Variable,
    linear,
    square_scores,
)
from ldp.mechanisms.numbers.mean import MeanMechanism

CORRECTED, FORWARD = "corrected", "forward"
"""By unbiased estimating equations, and by maximum likelihood."""

_LONGEST = 4096
"""Characters of a formula, and of a label."""

Request = analyst_pb2.FitRequest


def attributes_of(question: Request) -> tuple[str, ...]:
    """Return the attributes of a model, each once, the response first."""
    named = [question.response.attribute]
    named += [variable.attribute for column in question.columns for variable in column.variables]
    return tuple(dict.fromkeys(named))


def check_fit(plan: Plan, question: Request) -> None:
    """Raise `InvalidInput` for a model that cannot be fitted, before rows are read."""
    check_confidence(confidence_of(question))
    if question.family not in (Request.LINEAR, Request.LOGISTIC):
        raise InvalidInput(f"family must be LINEAR or LOGISTIC, got {question.family}")
    methods = (CORRECTED,) if question.family == Request.LINEAR else (CORRECTED, FORWARD)
    if question.method and question.method not in methods:
        raise InvalidInput(f"method must be {' or '.join(methods)}, got {question.method!r}")
    if not 1 <= len(question.columns) <= MAX_COLUMNS:
        raise InvalidInput(f"a model has 1..{MAX_COLUMNS} columns, got {len(question.columns)}")
    named = [question.formula, *(column.label for column in question.columns)]
    for text in named:
        if not is_plain(text) or len(text) > _LONGEST:
            raise InvalidInput(
                f"a formula and its labels are up to {_LONGEST:,} characters that can be seen, "
                f"got {text[:80]!r}"
            )
    response, _ = _model(plan, question)
    if question.family == Request.LOGISTIC and not isinstance(response, Indicator):
        raise InvalidInput(
            "a logistic regression explains whether an attribute has a value, not a number"
        )


def check_regressors(plan: Plan, question: Request, levels: Collection[str]) -> None:
    """Raise `InvalidInput` for a number that a level's reports cannot make a regressor."""
    for column in question.columns:
        for variable in column.variables:
            for level in levels:
                mechanism = plan.levels[level].mechanisms[variable.attribute]
                if isinstance(mechanism, MeanMechanism):
                    try:
                        square_scores(mechanism)
                    except InvalidInput as error:
                        raise InvalidInput(f"{variable.attribute!r}: {error}") from None


def fit(plan: Plan, question: Request, records: Complete) -> Answer:
    """Answer a `FitRequest` from the records that report all its attributes.

    Raises `NoReports` where there are none, or too few for the model, `InvalidInput` for what
    cannot be asked.
    """
    check_fit(plan, question)
    names = attributes_of(question)
    given = cohorts(plan, names, records)
    response, columns = _model(plan, question)
    alike = plan.levels_differ_at_most == 0
    found: Fit
    try:
        if question.family == Request.LINEAR:
            found = linear(given, response, columns, alike=alike)
        else:
            assert isinstance(response, Indicator)
            if question.method == FORWARD:
                found = forward(given, response, columns)
            else:
                found = logistic(given, response, columns, alike=alike)
    except NotReady as error:
        raise NoReports(str(error)) from error
    confidence = confidence_of(question)
    low, high = found.interval(confidence, simultaneous=question.simultaneous)
    numbers = (
        found.value,
        found.standard_error,
        found.z,
        found.p_value,
        low,
        high,
        found.naive,
    )
    explained = variable_name(question.response)
    labels = [column.label or _label(column) for column in question.columns]
    terms = Table(
        "rows",
        roles.index((explained, labels)),
        tuple(roles.column(*each, "own") for each in zip(FIT_COLUMNS, numbers, strict=True)),
    )
    return Answer(
        "fit",
        plan.survey,
        (Subject(explained, question.formula),),
        "coefficient",
        (terms,),
        confidence=confidence,
        simultaneous=question.simultaneous,
        reports=found.n,
        repeats=max(own.repeats.factor for own in given),
        method=found.method,
        notes=(Note.of(cautions.columns_alike),) if found.is_doubtful else (),
        figures={"formula": question.formula, "n": found.n},
    )


def _label(column: analyst_pb2.Product) -> str:
    """Return what a column is called by its variables."""
    return ":".join(map(variable_name, column.variables)) or "Intercept"


def cohorts(plan: Plan, names: Sequence[str], records: Complete) -> list[Records]:
    """Return the records of each combination of levels and maps, with their repeats."""
    if not records.codes:
        raise NoReports(f"no stored record reports {' and '.join(map(repr, names))} together yet")
    counts = {key: len(codes[0]) for key, codes in records.codes.items()}
    known = repeats(plan, names, counts)
    parts: dict[tuple[Chosen, ...], list[Sequence[Codes]]] = {}
    for (_, chosen), codes in records.codes.items():
        parts.setdefault(chosen, []).append(codes)
    found = []
    for chosen, several in parts.items():
        joined = [np.concatenate(arrays) for arrays in zip(*several, strict=True)]
        found.append(Records(mechanisms(plan, names, chosen), joined, known[chosen]))
    return found


def _model(plan: Plan, question: Request) -> tuple[Variable, list[Product]]:
    """Return the response and the columns, by the attributes' places."""
    names = attributes_of(question)
    columns = [
        tuple(_variable(plan, names, variable) for variable in column.variables)
        for column in question.columns
    ]
    return _variable(plan, names, question.response), columns


def _variable(plan: Plan, names: Sequence[str], variable: analyst_pb2.Variable) -> Variable:
    domain = plan.attributes[variable.attribute].domain
    return _VARIABLES[domain](variable, names.index(variable.attribute), domain)


def _number(variable: analyst_pb2.Variable, place: int, domain: Numeric) -> Number:
    name = variable.attribute
    if variable.HasField("value"):
        raise InvalidInput(f"{name!r} is a number: it has no value {variable.value!r}")
    return Number(place, domain.low, domain.high)


def _indicator(variable: analyst_pb2.Variable, place: int, domain: Categorical) -> Indicator:
    name = variable.attribute
    if not variable.HasField("value"):
        raise InvalidInput(f"{name!r} has values: say which one the variable tells of")
    if variable.value not in domain.values:
        raise InvalidInput(f"{name!r} has no value {variable.value!r}; its values are {domain}")
    return Indicator(place, domain.values.index(variable.value))


def _none(variable: analyst_pb2.Variable, place: int, domain: Domain) -> Variable:
    raise InvalidInput(f"{variable.attribute!r} is {domain}: a regression is on values and numbers")


_VARIABLES: ByKind[Callable[[analyst_pb2.Variable, int, Any], Variable]] = ByKind.otherwise(
    _none, category=_indicator, number=_number
)
"""What a model's variable is, at its attribute's place; raises `InvalidInput` where it is none."""
