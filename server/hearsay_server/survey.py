"""From a survey file to a frozen plan."""

import math
import re
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

import hearsay.plan
from hearsay import period
from hearsay.plan import Categorical, Domain
from hearsay.v1 import plan_pb2, survey_pb2
from hearsay_server import catalogue
from ldp import InvalidInput, Mechanism
from ldp.exact import check_epsilon, float_below

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def from_file(file: Path) -> survey_pb2.Survey:
    """Read a survey as `from_toml` does; raise `InvalidInput` where the file cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    return from_toml(text, str(file))


def from_toml(text: str, source: str) -> survey_pb2.Survey:
    """Read a survey; raise `InvalidInput` that starts with `source` and names the place.

    The schema is the proto's: an unknown key or a value of another type is refused. Whether the
    survey makes sense is for `resolve` to say.
    """
    try:
        document = tomllib.loads(text, parse_float=_float)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{source}: {error}") from None
    attributes = document.pop("attributes", [])
    if not isinstance(attributes, list) or not all(isinstance(a, dict) for a in attributes):
        raise InvalidInput(f"{source}: attributes are written as [[attributes]] tables")
    survey = survey_pb2.Survey()
    _fill(survey, document, source)
    for position, table in enumerate(attributes):
        _fill(survey.attributes.add(), table, f"{source}: attributes[{position}]")
    return survey


def _fill(message: Message, table: dict[str, Any], place: str) -> None:
    try:
        ParseDict(table, message)
    except ParseError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        if unknown := re.search(r'has no field named "(.*?)"', reason):
            reason = f"unknown key {unknown[1]!r}"
        raise InvalidInput(f"{place}: {reason}") from None


def resolve(survey: survey_pb2.Survey) -> bytes:
    """Return the survey's plan, serialised once and for all.

    A level's epsilon is split over the attributes by weight (sequential composition), each
    share rounded down; every mechanism is calibrated to its share. Raises `InvalidInput` that
    names the place for a survey that cannot be.
    """
    _check_name("name", survey.name)
    period.check_unit(survey.period)
    if not survey.levels:
        raise InvalidInput("levels: at least one is needed, such as [levels] standard = 1.0")
    if not survey.attributes:
        raise InvalidInput("attributes: at least one is needed, as [[attributes]]")
    domains: dict[str, Domain] = {}
    weights: list[Fraction] = []
    for position, attribute in enumerate(survey.attributes):
        place = f"attributes[{position}]"
        _check_name(f"{place}: name", attribute.name)
        if attribute.name in domains:
            raise InvalidInput(f"{place}: the name {attribute.name!r} is taken by an earlier one")
        place = f"{place} ({attribute.name})"
        try:
            domains[attribute.name] = hearsay.plan.domain(attribute)
        except InvalidInput as error:
            raise InvalidInput(f"{place}: {error}") from None
        weights.append(_weight(attribute, place))
    plan = plan_pb2.Plan(survey=survey)
    for name, epsilon in sorted(survey.levels.items(), key=lambda item: (item[1], item[0])):
        _check_name("levels", name)
        check_epsilon(epsilon, f"levels.{name}: epsilon")
        level = plan.levels.add(name=name, epsilon=epsilon)
        for attribute, weight in zip(survey.attributes, weights, strict=True):
            share = float_below(Fraction(epsilon) * weight / sum(weights))
            try:
                mechanism = _mechanism(attribute.mechanism, domains[attribute.name], share)
            except InvalidInput as error:
                raise InvalidInput(f"levels.{name}, {attribute.name}: {error}") from None
            level.mechanisms.append(hearsay.plan.mechanism_message(mechanism))
    data: bytes = plan.SerializeToString(deterministic=True)
    hearsay.plan.parse(data)  # what a client will check, checked before anything is frozen
    return data


def _float(literal: str) -> float | str:
    """Spell nan and the infinities as the JSON mapping does, so that `resolve` can refuse them."""
    number = float(literal)
    if math.isnan(number):
        return "NaN"
    return number if math.isfinite(number) else "Infinity" if number > 0 else "-Infinity"


def _check_name(place: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f'{place}: expected a lower-case letter, then letters, digits or "_", '
            f"at most 64 in all, got {name!r}"
        )


def _weight(attribute: survey_pb2.Attribute, place: str) -> Fraction:
    weight = attribute.weight if attribute.HasField("weight") else 1.0
    if not (math.isfinite(weight) and weight > 0):
        raise InvalidInput(f"{place}: weight must be finite and > 0, got {weight!r}")
    return Fraction(weight)


def _mechanism(name: str, domain: Domain, epsilon: float) -> Mechanism:
    if isinstance(domain, Categorical):
        return catalogue.categorical(name or "auto", len(domain.values), epsilon)
    return catalogue.numeric(name or "auto", epsilon)
