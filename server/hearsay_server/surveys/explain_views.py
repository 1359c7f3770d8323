"""What views cost and bring: the predicted errors, beside those of attributes asked one by one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hearsay.plans.plan import Level, Plan
from hearsay.v1 import survey_pb2
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.question import Question
from ldp import Mechanism
from ldp.core.exact import ONE
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.estimating.marginals import table_variance
from ldp.planning.budget import Budget


@dataclass(frozen=True)
class Together:
    """The predicted error of a view, or of an attribute that is asked in views, at one level.

    `error` is the root mean square over all combinations (of an attribute: over its values), if all
    are equally frequent. `apart` is that of the same survey without views: for a view from records
    that report all attributes (`budget = "split"`), for an attribute with the survey's own budget.
    """

    level: str
    name: str
    error: float
    apart: float

    @property
    def factor(self) -> float:
        """How many times as many users the survey without views needs for the same error."""
        return (self.apart / self.error) ** 2


def compared(survey: survey_pb2.Survey, plan: Plan, users: int) -> list[Together]:
    """Return for each level its views, and then the attributes in them; empty without views."""
    if not plan.views:
        return []
    plain = survey_pb2.Survey()
    plain.CopyFrom(survey)
    plain.ClearField("views")
    asked = surveys.questions(plain)
    epsilons = [level.epsilon for level in plan.levels.values()]
    own = surveys.decide(survey.budget, epsilons, asked).budgets
    split = surveys.decide("split", epsilons, asked).budgets
    found = []
    for place, level in enumerate(plan.levels.values()):
        reported = _mechanisms(asked, split[place])
        alone = _mechanisms(asked, own[place])
        for name, view in plan.views.items():
            chance = _chance(level.budget, list(plan.questions).index(name))
            pairs = [reported[part] for part in view.attributes]
            apart = math.sqrt(table_variance(pairs) / view.combinations / users)
            error = math.sqrt(_mean_variance(level.mechanisms[name]) / (users * chance))
            found.append(Together(level.name, name, error, apart))
        for position, question in enumerate(asked):
            if question.name not in plan.questions:
                chance = _chance(own[place], position)
                apart = math.sqrt(_mean_variance(alone[question.name]) / (users * chance))
                error = _from_views(plan, level, question.name, users)
                found.append(Together(level.name, question.name, error, apart))
    return found


def _mechanisms(asked: Sequence[Question], budget: Budget) -> dict[str, CategoricalMechanism]:
    found = {}
    for question, epsilon in zip(asked, budget.epsilons, strict=True):
        if question.domain.joins:
            mechanism = question.mechanism(epsilon)
            assert isinstance(mechanism, CategoricalMechanism)  # as of values and bins
            found[question.name] = mechanism
    return found


def _chance(budget: Budget, position: int) -> float:
    return budget.chances[position] / ONE


def _mean_variance(mechanism: Mechanism) -> float:
    """Return the mean variance over the categories, if all are equally frequent."""
    k = mechanism.parameters
    return float(np.mean(mechanism.variance(np.full(k, 1 / k), 1)))


def _from_views(plan: Plan, level: Level, attribute: str, users: int) -> float:
    """Return the error of an attribute's frequencies, from all views that contain it."""
    precise = 0.0
    for position, name in enumerate(plan.questions):
        parts = plan.parts(name)
        if attribute not in parts:
            continue
        mechanism, view = level.mechanisms[name], plan.views[name]
        assert isinstance(mechanism, CategoricalMechanism)  # as the plan was checked
        place = parts.index(attribute)
        values = np.unravel_index(np.arange(view.combinations), view.sizes)[place]
        sets = np.equal.outer(np.arange(view.sizes[place]), values) * 1.0
        uniform = np.full(view.combinations, 1 / view.combinations)
        variance = float(np.mean(mechanism.sum_variances(sets, uniform, 1)))
        precise += users * _chance(level.budget, position) / variance
    return math.sqrt(1 / precise)
