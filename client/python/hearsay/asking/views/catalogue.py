"""All views, in the order in which an analyst needs them, and the survey that they are of."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hearsay.asking.views import differences, distributions, estimates, robustness, together
from hearsay.asking.views.options import LONGEST, WEIGHTS, Given, Option
from hearsay.asking.views.view import View
from hearsay.plans import plan as plans
from hearsay.plans.attributes import Attribute
from hearsay.plans.kinds import Binned, Numeric
from hearsay.plans.plan import Plan
from hearsay.v1 import admin_pb2
from ldp.assurance.suspicion import has_tests
from ldp.errors import InvalidInput

VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        *estimates.VIEWS,
        *differences.VIEWS,
        *together.VIEWS,
        *distributions.VIEWS,
        *robustness.VIEWS,
    )
}

_MOST = 400
"""Periods, values or attributes that a form lists."""

_PARTS = 24
"""Comparisons that a form suggests."""


@dataclass(frozen=True)
class Survey:
    """What can be told of a survey's questions before any is asked."""

    name: str
    title: str
    plan: Plan
    periods: Sequence[str]
    reports: Mapping[str, int]
    closed: bool

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        return self.plan.attributes

    def check_attribute(self, name: str) -> None:
        """Raise `InvalidInput`, which lists the attributes, where there is none of this name."""
        if name not in self.attributes:
            names = ", ".join(self.attributes)
            raise InvalidInput(f"{self.name!r} has no attribute {name!r}; it has {names}")

    def kind(self, attribute: str) -> str:
        """Return what kind of answers an attribute has, as `Analyst.attributes` names it."""
        return self.plan.attributes[attribute].domain.field

    def views(self, attribute: str) -> list[View]:
        """Return the views of an attribute, the first one first."""
        kind, found = self.kind(attribute), []
        for view in VIEWS.values():
            needs = {option.kind for option in view.options}
            fits = kind in view.kinds
            fits &= "other" not in needs or view.name == "between" or len(self.attributes) > 1
            fits &= view.name not in _OVER_TIME or bool(self.plan.period)
            fits &= view.name != "suspicions" or self._has_tests(attribute)
            if fits:
                found.append(view)
        return found

    def lacks(self, view: View) -> str:
        """Return what a view cannot do without and the survey has not, "" where it has all."""
        if view.name != "change" or len(self.periods) > 1:
            return ""
        so_far = "is one period" if self.periods else "are no reports"
        return f"There {so_far} so far: a change is from one period to another."

    def _has_tests(self, attribute: str) -> bool:
        """Tell whether forged reports of an attribute may look different at some level."""
        of_levels = (level.mechanisms.get(attribute) for level in self.plan.levels.values())
        return any(map(has_tests, filter(None, of_levels)))

    def options(self, view: View, attribute: str) -> list[Option]:
        """Return the options of a view for which the survey leaves a choice."""
        kind = self.kind(attribute)
        return [
            option
            for option in view.options
            if (not option.kinds or kind in option.kinds)
            and (option.kind not in _CHOSEN or len(self.choices(option, attribute)) > 1)
            and (option not in WEIGHTS or self.plan.properties.by_name)
        ]

    def choices(self, option: Option, attribute: str) -> Sequence[str]:
        """Return what an option can be, where it is one of several."""
        maps = self.plan.maps(attribute)
        match option.kind:
            case "choice":
                return option.choices
            case "levels":
                return list(self.plan.levels)
            case "periods" | "period" | "two periods":
                return self.periods[-_MOST:]
            case "maps":
                return [*maps, ""] if maps else []
            case "other":
                return [name for name in self.attributes if name != attribute][:_MOST]
            case "by":
                by = ["level", "period"] if self.plan.period else ["level"]
                return [*by, *(["map"] if maps else []), *self.plan.properties.by_name]
            case "values":
                return self.attributes[attribute].domain.labels[:_MOST]
            case "parts":
                return self._parts()
        return []

    def completed(self, view: View, given: Given) -> Given:
        """Return what is given with what the survey suggests for needed options that are not."""
        attribute = given.one("attribute")
        if attribute not in self.attributes:
            return given
        pairs = [(name, value) for name, values in given.values.items() for value in values]
        for option in view.options:
            if option.needed and not given.many(option.name):
                pairs += [(option.name, value) for value in self._suggested(option, attribute)]
        return Given(pairs, view.options)

    def _suggested(self, option: Option, attribute: str) -> list[str]:
        """Return what a needed option may be where none is given, nothing where there is none."""
        levels = list(self.plan.levels)
        ends = [self.periods[0], self.periods[-1]] if len(self.periods) > 1 else []
        match option.kind:
            case "by":
                choices = self.choices(option, attribute)
                return [choices[1] if len(levels) < 2 < len(choices) else choices[0]]
            case "parts":
                if len(levels) > 1:
                    return [f"level={levels[0]},{levels[-1]}"]
                return [f"period={','.join(ends)}"] if ends else []
            case "two periods":
                return ends
            case "other":
                others = self.choices(option, attribute)
                return [name for name in others if self._fit_together(attribute, name)][:1]
            case "pair":
                return self._middle(attribute)
        return []

    def _fit_together(self, attribute: str, other: str) -> bool:
        """Tell whether records tell of an attribute and of another one, whose values are groups."""
        if self.kind(other) != "categorical":
            return False
        if self.plan.questions_of((attribute, other)):
            return True
        apart = attribute in self.plan.questions and other in self.plan.questions
        return apart and any(level.budget.reported > 1 for level in self.plan.levels.values())

    def _middle(self, attribute: str) -> list[str]:
        """Return the ends of the middle half of a number's range, where bins or points begin."""
        domain = self.attributes[attribute].domain
        assert isinstance(domain, Numeric | Binned)  # by the view's kinds
        quarter = (domain.high - domain.low) / 4
        ends = [domain.low + quarter, domain.high - quarter]
        if (points := domain.points) is not None:
            ends = [points.lowest(points.at_or_below(end)) for end in ends]
            ends = ends if ends[0] < ends[1] else [domain.low, domain.high]
        return [f"{end:.10g}" for end in ends]

    def _parts(self) -> list[str]:
        """Return two parts of the reports that may be compared, as `compare` reads them."""
        every = {"level": list(self.plan.levels), "period": self.periods[-5:]}
        every |= {name: list(p.values) for name, p in self.plan.properties.by_name.items()}
        found = []
        for name, values in every.items():
            plain = [value for value in values if not set(value) & set(',"')]
            found += [f"{name}={a},{b}" for a, b in itertools.pairwise(plain)]
        return found[:_PARTS]


_OVER_TIME = ("change", "trend", "breaks")
_CHOSEN = {"levels", "periods", "period", "two periods", "maps"}


def survey_of(shown: admin_pb2.ShowSurveyResponse) -> Survey:
    """Return the survey that a server shows."""
    plan = plans.parse(shown.plan)
    reports = {
        name: sum(
            sum(each.reports)
            for each in shown.reports
            if each.attribute in plan.questions_of([name])
        )
        for name in plan.attributes
    }
    status = shown.status
    return Survey(status.survey, status.title, plan, list(shown.periods), reports, status.closed)


def given(pairs: Sequence[tuple[str, str]], view: View, longest: int = LONGEST) -> Given:
    """Return the options of an address, in which what a view is about has its name, `formula` of a
    regression.

    Raises `InvalidInput` for one that the view has not, and for more than `longest` characters.
    """
    length = sum(len(name) + len(value) for name, value in pairs)
    if length > longest:
        raise InvalidInput(
            f"options have at most {longest:,} characters here, these {length:,}: ask with longer "
            "ones by `hearsay ask`, whose --margins reads files, from Python, or by POST"
        )
    named = [("attribute" if name == view.subject else name, value) for name, value in pairs]
    return Given(named, view.options)
