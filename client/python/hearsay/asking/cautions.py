"""What an analyst must know before using an answer: each caution by its code, and in words.

A caution is a function of what it is about, whose name is its code on the wire; the parameters'
annotations say what a message may give.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast, get_args, get_origin

from ldp.errors import InvalidInput

Given = str | bool | int | float | Sequence[str] | Sequence[float]
"""What a caution is about."""

Pooled = Literal["levels", "levels or maps"]
Chosen = Literal["level", "map"]
"""What people choose, many and one."""

Tests = Literal["norm_sub_gap"]
"""Tests of forged reports that may be left out."""


# --- levels, maps and periods of the reports ------------------------------------------------


def groups_differ(groups: Pooled, statistic: float, degrees: int, p_value: float) -> str:
    """Pooled levels or maps answer differently: `groups` says which of the two."""
    return (
        f"the {groups} differ (chi-squared {statistic:.1f} on {degrees} degrees of freedom, "
        f"p = {p_value:.2g}), so what is pooled describes nobody: ask for the stratified estimate, "
        "or for each one by itself"
    )


def groups_not_tested(groups: Pooled) -> str:
    """Levels or maps are pooled, and whether they differ is not known."""
    return f"whether the {groups} differ was not tested: so many values would take too long"


def pooled_for_forged() -> str:
    """The estimate is the pooled one because forged reports were asked about."""
    return (
        "this is the pooled estimate, for which forged reports can be bounded: it assumes that "
        "people of all levels answer alike, as the usual estimate, the stratified one, does not"
    )


def share_moved(kind: Chosen, name: str, first: float, second: float) -> str:
    """The reports of two parts are of other mixes: `kind` is "level" or "map"."""
    return (
        f"the share of the {kind} {name} in the reports went from {first:.0%} to {second:.0%}, "
        f"which is part of the differences: ask for one {kind} to leave it out"
    )


def mix_unknown() -> str:
    """The mix of levels or maps may have changed between periods, and nothing tells by how much."""
    return (
        "not all periods have reports of each level and map, so the estimate of a period is of the "
        "mix of people who answered in it: ask for one level to tell a change of the mix from one "
        "of the answers"
    )


def mix_changed(label: str, moved: float) -> str:
    """The mix of levels or maps changed, which by itself moved the estimate of a value."""
    return (
        "the shares of the levels or maps in the reports changed, which by itself moved "
        f"{label} by {moved:.4f}: changes are told as if the shares had stayed"
    )


def unfinished(periods: Sequence[str]) -> str:
    """Periods are not over."""
    are = "period {} is" if len(periods) == 1 else "periods {} are"
    listed = are.format(", ".join(periods))
    return f"the {listed} not over: who has answered so far may differ from the rest"


def few_panels(panels: int, reports: int) -> str:
    """No error can be told from panels, which takes so many, with so many reports each."""
    return (
        f"the panels have too few reports to tell an error by: it takes {panels} panels, and "
        f"{reports} reports for each panel and period on average"
    )


# --- groups and their weights ---------------------------------------------------------------


def small_groups(least: int, groups: Sequence[str]) -> str:
    """Groups are left out because few people are in them, or could be told by subtraction."""
    return (
        f"left out are groups with fewer than {least} reports of a level and period, and groups of "
        f"which the answers would tell such a one by subtraction: {', '.join(groups)}"
    )


def groups_unclear(groups: Sequence[str]) -> str:
    """Nothing can be told within groups that few people are known to be in."""
    return (
        f"too few people are known to be in {', '.join(groups)} to tell of them: their intervals "
        "are all of the range, and they are not compared"
    )


def same_within(properties: Sequence[str], within: Sequence[str]) -> str:
    """Margins are taken to hold within a part of the population."""
    return (
        f"the shares of {' and '.join(properties)} are taken to be the same within each "
        f"{' and '.join(within)}: a margin of them together tells"
    )


def without_share(respondents: int) -> str:
    """Respondents are left out whose group is no part of the population."""
    return f"{respondents:,} respondents of groups with a share of 0 are left out"


def joined(groups: Sequence[str]) -> str:
    """Small groups have one weight."""
    return f"small groups are taken together: {'; '.join(groups)}"


# --- what reports tell ----------------------------------------------------------------------


def ratings_unknown(keys: Sequence[str]) -> str:
    """Too few people rated some keys for a mean."""
    more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
    listed = ", ".join(keys[:5]) + more
    return f"too few people rated {listed} for a mean: their share alone is told"


def larger_sets(most: int, share: float) -> str:
    """Sets of more items than a survey reports count as smaller ones."""
    return (
        f"larger sets count as {most} items: a share of {share:.3f} have {most} or more, and the "
        "shares of their items are too small"
    )


def mean_size_alone(of_all: bool) -> str:
    """All reports, or some levels', tell of sizes the mean alone."""
    left = "all reports" if of_all else "some levels' reports"
    return f"{left} are set_bits, which tell the mean size alone"


def no_pairs(levels: Sequence[str]) -> str:
    """Reports of some levels tell no pairs."""
    return f"reports of {', '.join(levels)} tell no pairs"


def curve() -> str:
    """A distribution has no intervals, because the numbers have no steps."""
    return (
        "this is a curve without intervals, because the numbers were not collected in steps. If "
        "all answers were whole numbers, ask with the step 1; otherwise declare a step in the next "
        "survey"
    )


def no_distribution(
    reports: int, epsilons: Sequence[float], values: int, known: float, needed: float, goal: float
) -> str:
    """So many reports cannot show a distribution; `epsilons` are the least and the greatest."""
    at = " to ".join(f"{epsilon:.3g}" for epsilon in epsilons)
    at = f" at epsilon {at}" if at else ""
    return (
        f"{reports:,} report{'s' * (reports > 1)}{at} cannot show a distribution of {values} "
        f"values: the share below the middle is known to ±{known:.2f}. About {needed:,.0f} would "
        f"give ±{goal:g}."
    )


def few_for_test(test: Tests, levels: Sequence[str]) -> str:
    """A test was left out at some levels."""
    return f"too few reports for {test} at {', '.join(levels)}"


def columns_alike() -> str:
    """The columns of a regression can hardly be told apart."""
    return (
        "the columns of this model can hardly be told apart by so many randomised records: its "
        "coefficients may be far off, and their intervals too short"
    )


def rows_dropped(batches: int) -> str:
    """Rows that an answer is read from are not stored any longer."""
    return (
        f"the retention has dropped the rows of {batches} batches: this is from the rows that are "
        "stored still"
    )


def impossible_count(count: float) -> str:
    """A sum of two servers is none that answers make."""
    return f"a count is {count:,.0f}, which no answers make: devices have added what they may not"


def impossible_total(answers: float, records: int) -> str:
    """The sums of two servers are of more answers than there are records."""
    return (
        f"the counts add up to {answers:,.0f} answers of {records:,} records: devices have added "
        "what they may not"
    )


CAUTIONS: Mapping[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        groups_differ,
        groups_not_tested,
        pooled_for_forged,
        share_moved,
        mix_unknown,
        mix_changed,
        unfinished,
        few_panels,
        small_groups,
        groups_unclear,
        same_within,
        without_share,
        joined,
        ratings_unknown,
        larger_sets,
        mean_size_alone,
        no_pairs,
        curve,
        no_distribution,
        few_for_test,
        columns_alike,
        rows_dropped,
        impossible_count,
        impossible_total,
    )
}
"""All cautions, by code."""


def checked(code: str, given: Mapping[str, object]) -> dict[str, Given]:
    """Return what a caution is given as its parameters are declared.

    Raises `InvalidInput` for a code that is none, and for other names or kinds of values.
    """
    if code not in CAUTIONS:
        raise InvalidInput(f"notes: {code[:80]!r} is no caution of this version")
    declared = inspect.signature(CAUTIONS[code]).parameters
    if set(declared) != set(given):
        raise InvalidInput(f"notes: {code} is given {sorted(given)}, not {sorted(declared)}")
    return {name: _as(each.annotation, given[name], code) for name, each in declared.items()}


def _as(declared: object, value: Any, code: str) -> Given:
    """Return a value as a parameter is declared; raise `InvalidInput` for one of another kind."""
    several = [*value] if isinstance(value, list | tuple) else None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if declared == Sequence[str] and several is not None:
        return [str(_as(str, each, code)) for each in several]
    if declared == Sequence[float] and several is not None:
        return [float(cast(float, _as(float, each, code))) for each in several]
    if declared is float and number:
        return float(value)
    if declared is int and number and math.isfinite(value) and value == int(value):
        return int(value)
    is_one = get_origin(declared) is Literal and value in get_args(declared)
    if is_one or (declared in (str, bool) and type(value) is declared):
        found: Given = value
        return found
    raise InvalidInput(f"notes: {code} cannot be given {str(value)[:80]!r}")
