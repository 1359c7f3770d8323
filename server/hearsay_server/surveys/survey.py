"""Read a survey file, and resolve it into a frozen plan."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

import hearsay.plans.plan
from hearsay import files
from hearsay.plans import attested, period
from hearsay.plans.kinds import (
    Binned,
    Categorical,
    Domain,
    Grid,
    Numeric,
    Ratings,
    SetOf,
    Strings,
)
from hearsay.plans.plan import Plan
from hearsay.plans.properties import properties_of
from hearsay.plans.texts import check_name
from hearsay.plans.views import View
from hearsay.v1 import plan_pb2, survey_pb2
from hearsay_server.declared import fill, load
from hearsay_server.surveys import catalogue, graded, sealing, two_servers
from ldp import RAPPOR, InvalidInput, Mechanism, PolicyUnary, PrefixHashing, SetSelection
from ldp.core.exact import MAX_EPSILON, ONE, check_epsilon, float_below
from ldp.estimating.ratings import RatedShares
from ldp.mechanisms.ranges.wave_design import predicted_variance
from ldp.mechanisms.ranges.waves import Waves
from ldp.planning import budget as budgets
from ldp.planning.budget import Budget, Decision
from ldp.planning.choice import minimax_constant
from ldp.planning.design import design

_MAX_RECORD = 1 << 20
"""Bytes of a record's codes: batches stay well below gRPC's default limit of 4 MiB a message."""

_MOST_COUNTS = 1 << 26
"""Counts of the tallies of a period in all panels and groups: devices choose which they fill."""

_NOISE_ANCHORS = tuple(math.log(2.0) * step for step in (-7, -5, -3, -2, -1, 0, 1, 2, 3, 4, 5))

SPREAD = 1 / 3
"""The variance of numbers spread evenly over [-1, 1], which is added to the noise's variance."""

_ANCHORS = tuple(math.log(epsilon) for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0))


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


@dataclass(frozen=True)
class Question:
    """An attribute or a view as it is budgeted for and resolved."""

    name: str
    domain: Domain | Grid
    weight: float
    cap: float
    asked_for: str
    """The mechanism that the survey names; "" or "auto" for the best."""
    memo: float = 0.0
    """The ratio of a memo's epsilon to a report's; 0 without memos."""

    def mechanism(self, epsilon: float) -> Mechanism:
        """Calibrate the mechanism to a share of a record's epsilon."""
        if isinstance(self.domain, SetOf):
            name, items = self.asked_for or "auto", len(self.domain.values)
            return catalogue.sets(name, items, self.domain.most, epsilon)
        if isinstance(self.domain, Ratings):
            if self.asked_for not in ("", "auto", "set_selection"):
                raise InvalidInput(
                    f"mechanism must be auto or set_selection for ratings, got {self.asked_for!r}"
                )
            return SetSelection(2 * len(self.domain.keys), epsilon, self.domain.most)
        if isinstance(self.domain, Strings):
            lasting = float_below(Fraction(self.memo) * Fraction(epsilon)) if self.memo else 0.0
            return catalogue.strings(self.asked_for or "auto", self.domain, epsilon, lasting)
        if isinstance(self.domain, Binned | Grid):
            return catalogue.binned(self.asked_for or "auto", self.domain.sides, epsilon)
        if isinstance(self.domain, Numeric) and self.asked_for == Waves.name:
            raise InvalidInput("waves are for numbers in bins: declare them, such as bins = 64")
        if isinstance(self.domain, Numeric):
            if self.domain.is_graded:
                if self.asked_for not in ("", "auto", "mean_table"):
                    raise InvalidInput(
                        "mechanism must be auto or mean_table where numbers are sensitive or have "
                        f"a resolution, got {self.asked_for!r}"
                    )
                return graded.table(self.domain, epsilon)
            steps = len(self.domain.points) - 1 if self.domain.points else 0
            return catalogue.numeric(self.asked_for or "auto", epsilon, steps)
        policy = self.domain.policy(epsilon)
        if policy is None:
            k, name = len(self.domain.values), self.asked_for or "auto"
            if self.memo > 1:
                lasting = float_below(Fraction(self.memo) * Fraction(epsilon))
                return catalogue.chain(name, k, epsilon, lasting)
            return catalogue.categorical(name, k, epsilon)
        if self.asked_for == PolicyUnary.name and self.domain.sensitive:
            sensitive = map(self.domain.encode, self.domain.sensitive)
            return PolicyUnary.utility_optimised(policy.k, sensitive, epsilon)
        if self.asked_for not in ("", "auto"):
            raise InvalidInput(
                "mechanism must be auto where values are sensitive or have classes, or "
                f"policy_unary where they are sensitive, got {self.asked_for!r}"
            )
        # The policy's largest distance may be less than epsilon, by way of a third value.
        return replace(design(policy).mechanism, epsilon=epsilon)

    def mapped(self, epsilon: float) -> list[Mechanism]:
        """Return the mechanism of each of the domain's maps, in order, at a share of epsilon."""
        return [
            replace(self, domain=self.domain.chosen(name), asked_for="").mechanism(epsilon)
            for name in self.domain.map_names
        ]

    def variance(self, epsilon: float) -> float:
        """Predict the variance of one report: of a value's frequency on average, or of a number.

        For numbers, that of the worst one, in a population spread evenly over the range; where
        they have regions or a resolution, of all on average. For categories the least possible for
        a uniform population, also where there are maps, as a person may choose none. Where values
        or numbers are protected differently, as much more or less than without as it is at the
        nearest epsilons for which a channel was designed.
        For bins that of a range, on average over the ranges. For sets that of an item's share, for
        ratings that of the share who rate a key, if half as many apply as may, for words that of a
        rare one: `planned`.
        """
        if isinstance(self.domain, SetOf | Ratings | Strings):
            return planned(self.domain, self.mechanism(epsilon))
        if isinstance(self.domain, Binned | Grid):
            logs = _log_range_variances(self.domain.sides)
            return math.exp(np.interp(math.log(epsilon), _ANCHORS, logs))
        factor = math.exp(np.interp(math.log(epsilon), _ANCHORS, self._log_factors))
        if not isinstance(self.domain, Categorical):
            noise = np.interp(math.log(epsilon), _NOISE_ANCHORS, _log_noise())
            return factor * math.exp(noise) + SPREAD
        k = len(self.domain.values)
        return factor * minimax_constant(k, epsilon) / k

    @cached_property
    def _log_factors(self) -> list[float]:
        """Log factors by which the policy changes the variance, at the epsilons of `_ANCHORS`."""
        found: list[float] = []
        if isinstance(self.domain, Numeric) and self.domain.is_graded:
            for anchor in _ANCHORS:
                noise = graded.predicted_noise(self.domain, math.exp(anchor))
                plain = float(np.interp(anchor, _NOISE_ANCHORS, _log_noise()))
                found.append(math.log(noise) - plain)
            return found
        if not isinstance(self.domain, Categorical) or self.domain.policy(1.0) is None:
            return [0.0] * len(_ANCHORS)
        for epsilon in map(math.exp, _ANCHORS):
            policy = self.domain.policy(epsilon)
            assert policy is not None
            least = minimax_constant(policy.k, epsilon)
            found.append(math.log(design(policy, gap=1e-3).variance / least))
        return found


def planned(domain: SetOf | Ratings | Strings, mechanism: Mechanism) -> float:
    """Predict the variance of one report of a set's item, or of the share who rate a key, where
    people have half as many items, or rate half as many keys, as they may, and all are alike; or of
    the share of a rare word of the longest length."""
    if isinstance(domain, Strings):
        return word_variance(mechanism, domain.longest)
    share = domain.most / (2 * len(domain.labels))
    if isinstance(domain, Ratings):
        assert isinstance(mechanism, SetSelection)
        mechanism = RatedShares.of(mechanism)
    return float(np.mean(mechanism.variance(share, 1)))


def word_variance(mechanism: Mechanism, letters: int) -> float:
    """Predict the variance of one report, of whatever group, of the share of a rare word."""
    assert isinstance(mechanism, PrefixHashing | RAPPOR)  # as the plan was checked
    p, q = map(float, mechanism.support)
    one = q * (1 - q) / (p - q) ** 2
    if isinstance(mechanism, RAPPOR):
        return one / mechanism.hashes
    # Nobody knows of a beginning of so many letters whether the word goes on, but of the longest.
    last = mechanism.lengths[-1]
    seen = zip(mechanism.lengths, mechanism.chances, strict=True)
    return one * ONE / sum(chance for length, chance in seen if length > letters or length == last)


@lru_cache(maxsize=64)
def _log_range_variances(sides: tuple[int, ...]) -> tuple[float, ...]:
    """The log variance of a range from one report, at the epsilons of `_ANCHORS`."""
    found = (predicted_variance(sides, math.exp(anchor)) for anchor in _ANCHORS)
    return tuple(math.log(variance) for variance in found)


@lru_cache(maxsize=1)
def _log_noise() -> tuple[float, ...]:
    """The log variance of one report of the worst number, at the epsilons of `_NOISE_ANCHORS`."""
    found = (catalogue.numeric("auto", math.exp(anchor)) for anchor in _NOISE_ANCHORS)
    return tuple(math.log(mechanism.largest_report_variance) for mechanism in found)


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
            if isinstance(domain, Categorical):
                domain.policy(1.0)  # refused here, where the place is known
            elif isinstance(domain, Numeric) and domain.is_graded:
                graded.steps(domain)
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
