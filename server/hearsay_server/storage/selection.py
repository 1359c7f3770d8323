"""Which of a survey's stored reports a request reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.plans.properties import PANEL, group_of
from hearsay.v1 import analyst_pb2, collector_pb2
from ldp import InvalidInput

Apart = Literal["panel", "group"]
"""What cohorts are told apart by, besides level, period and map."""


@dataclass(frozen=True)
class Selected:
    """Levels, periods, the ends of a range of periods, which belong to it, maps, panels and groups.

    An empty field restricts nothing; an empty name among the maps stands for those who chose none.
    Tallies of several panels and of several groups are summed, and their cohorts have the panel 0
    and the group "", unless `apart` has "panel" or "group": then their cohorts have their own.
    """

    levels: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()
    first: str = ""
    last: str = ""
    maps: tuple[str, ...] = ()
    panels: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    apart: tuple[Apart, ...] = ()
    by: tuple[str, ...] = ()
    """The properties whose values groups are selected by, and `PANEL` where panels are."""

    @property
    def is_of_groups(self) -> bool:
        """Whether only reports of some panels or groups are selected."""
        return bool(self.by)

    @property
    def of_all_groups(self) -> "Selected":
        """The same levels, periods and maps, of all panels and groups."""
        return replace(self, panels=(), groups=(), by=())

    def takes(self, batch: collector_pb2.Batch) -> bool:
        """Tell whether a batch's panel and group are selected."""
        return self.takes_cell((batch.panel, group_of(batch.properties)))

    def takes_cell(self, cell: tuple[int, str]) -> bool:
        """Tell whether a panel and a group are selected."""
        panel, group = cell
        return (not self.panels or panel in self.panels) and (
            not self.groups or group in self.groups
        )

    def has(self, period: str) -> bool:
        """Tell whether a period is selected."""
        return (
            (not self.periods or period in self.periods)
            and period >= self.first
            and (not self.last or period <= self.last)
        )


EVERYTHING = Selected()

_MOST_PERIODS = 1000
"""Periods that one request may name; a range may hold any number."""


def resolve(
    plan: Plan,
    selection: analyst_pb2.Selection,
    attribute: str = "",
    apart: Sequence[Apart] = (),
) -> Selected:
    """Return what a request selects of a survey; without levels, all levels of the plan.

    `apart` is as in `Selected`. Raises `InvalidInput` for a level that the survey lacks, a map that
    the attribute lacks, or any where the request is not about one attribute, a property or a value
    that the survey does not declare, a panel that it lacks, a name that is no period of the survey,
    a range that ends before it begins, and more than 1000 periods.
    """
    first, last = selection.first_period, selection.last_period
    levels = tuple(dict.fromkeys(selection.levels))
    for name in levels:
        plan.level(name)
    maps = tuple(dict.fromkeys(selection.maps))
    if maps and not attribute:
        raise InvalidInput(
            "maps are selected in questions about one attribute: leave them out for rows, for "
            "tests of forged reports, and for several attributes together"
        )
    for name in filter(None, maps):
        known = plan.maps(attribute)
        if name not in known:
            raise InvalidInput(
                f"{attribute!r} has no map {name!r}; it has {', '.join(known) or 'none'}"
            )
    periods = tuple(dict.fromkeys(selection.periods))
    if len(periods) > _MOST_PERIODS:
        raise InvalidInput(
            f"a request names at most {_MOST_PERIODS} periods, got {len(periods)}: select a range"
        )
    for name in (*periods, *filter(None, (first, last))):
        period.start(plan.period, name)
    if last and first > last:
        raise InvalidInput(f"a range must not end before it begins, got {first!r} to {last!r}")
    return Selected(
        levels or tuple(plan.levels),
        periods,
        first,
        last,
        maps,
        _panels(plan, selection.panels),
        _groups(plan, selection.where),
        tuple(apart),
        (*([PANEL] if selection.panels else []), *(each.property for each in selection.where)),
    )


def _panels(plan: Plan, asked: Sequence[int]) -> tuple[int, ...]:
    """Return the panels asked for; raise `InvalidInput` for one that the survey lacks."""
    for panel in asked:
        if not 1 <= panel <= plan.panels:
            known = f"1 to {plan.panels}" if plan.panels else "none"
            raise InvalidInput(f"{plan.survey!r} has no panel {panel}; it has {known}")
    return tuple(dict.fromkeys(asked))


def _groups(plan: Plan, where: Sequence[analyst_pb2.Where]) -> tuple[str, ...]:
    """Return the groups that have, of each property named, one of the values asked for."""
    chosen: dict[str, Sequence[str]] = {}
    for each in where:
        plan.properties.named(each.property)
        if each.property in chosen:
            raise InvalidInput(f"select by each property once, got {each.property!r} twice")
        if not each.values:
            raise InvalidInput(f"select one value of {each.property!r} at least, got none")
        chosen[each.property] = each.values
    return plan.properties.groups(chosen) if chosen else ()
