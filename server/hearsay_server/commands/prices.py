"""`hearsay plan --prices`: what a looser level is worth, and prices in proportion to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from hearsay_server import tabular
from hearsay_server.printing import say, say_json
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys import worth
from hearsay_server.surveys.explain import explain
from ldp import InvalidInput
from ldp.planning import value
from ldp.planning.value import Levels, People


@dataclass(frozen=True)
class Asked:
    """The options of `--prices`: numbers as texts with commas between them, "" for none."""

    levels: str = ""
    survey: Path | None = None
    respondents: str = ""
    budget: float | None = None
    highest: str = ""
    cost: str = ""


def show(asked: Asked, variance: Callable[[float], float], n: int | None, as_json: bool) -> None:
    """Print what levels are worth, and prices; `variance` is of one report, by epsilon.

    `n` is how many are invited, in a model of people.
    """
    names, levels = _levels(asked, variance)
    if not asked.highest:
        if asked.cost or n is not None:
            raise InvalidInput("--n and --cost are of a model of people: give --highest, too")
        _of_counts(asked, names, levels, as_json)
        return
    if asked.budget is None or n is None or n < 1 or not asked.cost or asked.respondents:
        raise InvalidInput(
            "a model of people takes --highest, --cost, --budget and --n (people who are invited), "
            "and has no --respondents"
        )
    median, spread = _numbers(asked.cost, "--cost", 2)
    people = People(_numbers(asked.highest, "--highest", len(names)), median, spread)
    _of_people(names, levels, people, asked.budget, n, as_json)


def _levels(asked: Asked, variance: Callable[[float], float]) -> tuple[list[str], Levels]:
    if (asked.survey is None) == (not asked.levels):
        raise InvalidInput(
            "--prices takes --levels, their epsilons as 0.5,1,2,4, or a --survey that has them"
        )
    if asked.survey is None:
        epsilons = _numbers(asked.levels, "--levels", None)
        return [f"{e:g}" for e in epsilons], Levels(epsilons, [variance(e) for e in epsilons])
    survey = surveys.from_file(asked.survey)
    told = explain(survey, str(asked.survey), 1)
    if told.precisions is None:
        raise InvalidInput(
            f"{asked.survey} has one level: prices for one level only have nothing to be compared "
            "with"
        )
    return list(told.plan.levels), told.precisions


def _of_counts(asked: Asked, names: Sequence[str], levels: Levels, as_json: bool) -> None:
    counts = np.ones(len(names))
    if asked.respondents:
        counts = np.array(_numbers(asked.respondents, "--respondents", len(names)))
    elif asked.budget is not None:
        raise InvalidInput(
            "--budget is what --respondents cost together: say how many you expect at each level, "
            "as --respondents 4000,3000,2000,1000, or give a model of people by --highest"
        )
    reference = _reference(levels)
    found: dict[str, Any] = {
        "level": list(names),
        "epsilon": levels.strengths.tolist(),
        "in_respondents": levels.in_respondents(counts, reference).tolist(),
        "stratified": _moved(levels, counts),
    }
    if asked.respondents:
        found |= {
            "respondents": counts.tolist(),
            "share": levels.shares(counts).tolist(),
            "lowers": (levels.one_more(counts) / levels.variance(counts)).tolist(),
        }
    if asked.budget is not None:
        found["price"] = levels.prices(counts, asked.budget).tolist()
    if as_json:
        document: dict[str, Any] = {"reference": names[reference], "levels": _rows(found)}
        if asked.respondents:
            document["variance"] = levels.variance(counts)
        say_json(document)
        return
    headings: dict[str, tuple[str, Callable[[Any], str]]] = {
        "level": ("level", str),
        "in_respondents": ("worth", "{:,.4g}".format),
        "respondents": ("people", "{:,.0f}".format),
        "share": ("information", "{:.1%}".format),
        "lowers": ("one more", worth.lowered),
        "price": ("price", "{:,.4g}".format),
        "stratified": ("stratified", "{:.1%}".format),
    }
    shown = {
        heading: (found[key], form) for key, (heading, form) in headings.items() if key in found
    }
    tabular.show(_table(shown))
    say(f"worth: in respondents at {names[reference]}, where levels are pooled")
    if asked.respondents:
        say("one more: what one more respondent changes the variance by, pooled")
    say(
        f"stratified: without pooling, what a move from {names[0]} to the level gains,\n"
        "  as a share of what the loosest level gains"
    )
    if asked.respondents:
        say(f"variance of all together, pooled: {levels.variance(counts):.4g}")


def _of_people(
    names: Sequence[str],
    levels: Levels,
    people: People,
    budget: float,
    n: int,
    as_json: bool,
) -> None:
    each = budget / n
    ones = np.ones(len(names))
    menus = {
        "by information": value.posted(levels, people, levels.one_more(ones), each),
        "best found": value.best(levels, people, each),
        "one level only": value.best_alone(levels, people, each),
        "by epsilon": value.posted(levels, people, levels.strengths, each),
    }
    if as_json:
        listed = [
            {
                "menu": label,
                "prices": menu.prices.tolist(),
                "respondents": (n * menu.chosen).tolist(),
                "spent": n * menu.spent,
                "variance": menu.variance / n,
            }
            for label, menu in menus.items()
        ]
        say_json({"levels": list(names), "menus": listed})
        return
    best = menus["best found"].variance
    for label, menu in menus.items():
        say(
            f"{label}: variance {menu.variance / n:.4g}, {best / menu.variance:.1%} of the "
            "information of the best"
        )
    columns: dict[str, tuple[Sequence[Any], Callable[[Any], str]]] = {"level": (names, str)}
    for label in ("by information", "best found"):
        menu = menus[label]
        columns[f"price, {label}"] = (menu.prices.tolist(), "{:,.3g}".format)
        columns[f"takers, {label}"] = ((n * menu.chosen).tolist(), "{:,.0f}".format)
    tabular.show(_table(columns))


def _moved(levels: Levels, counts: NDArray[np.float64]) -> list[float]:
    gains = levels.moved_stratified(counts)
    found: list[float] = (gains / gains[-1]).tolist()
    return found


def _reference(levels: Levels) -> int:
    """Return the level of epsilon 1, or else the strictest."""
    found = np.flatnonzero(levels.strengths == 1)
    return int(found[0]) if found.size else 0


def _rows(columns: dict[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _table(columns: dict[str, tuple[Sequence[Any], Callable[[Any], str]]]) -> Table:
    table = Table()
    for heading in columns:
        table.add_column(heading, justify="left" if heading == "level" else "right")
    for row in zip(*(values for values, _ in columns.values()), strict=True):
        forms = (form for _, form in columns.values())
        table.add_row(*(form(cell) for cell, form in zip(row, forms, strict=True)))
    return table


def _numbers(text: str, option: str, expected: int | None) -> list[float]:
    """Return numbers that stand between commas, as many as expected."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} takes numbers with commas between, got {text!r}") from None
    if expected is not None and len(found) != expected:
        raise InvalidInput(f"{option} takes {expected} numbers, got {len(found)} in {text!r}")
    return found
