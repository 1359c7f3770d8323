"""Every text and number of an `Answer`, by itself: words that can be seen, numbers that can be."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hearsay.asking.answer import Answer, Column, FigureValue, Role, Table
from hearsay.plain import is_plain
from ldp.errors import InvalidInput

_LONGEST = 1 << 16
"""Characters of a text, unless it is the label of a row: those of sums name all their values."""

_MOST = 1 << 53
"""The greatest integer of a column, unless it is of `_ENDLESS`."""

_RANGES: Mapping[Role, tuple[float, float]] = {
    "p": (0.0, 1.0),
    "error": (0.0, np.inf),
    "n": (0.0, np.inf),
}
"""The least and the greatest number of a column, by what it is."""

_ALWAYS: Sequence[Role] = ("p", "statistic")
"""What columns are whose numbers are never missing."""

_FIGURES: Mapping[str, Sequence[str]] = {
    "any_p_value": ("float",),
    "by": ("str",),
    "chi2": ("named",),
    "closed": ("bool",),
    "delta": ("float",),
    "design_effect": ("float",),
    "detectable_difference": ("float", "NoneType"),
    "findable": ("numbers",),
    "forged": ("int",),
    "formula": ("str",),
    "groups": ("named",),
    "homogeneity": ("float", "NoneType"),
    "kind": ("str",),
    "n": ("int",),
    "other": ("str",),
    "panels": ("int",),
    "rate": ("float", "NoneType"),
    "reached": ("str", "NoneType"),
    "step": ("float", "NoneType"),
    "targets": ("texts",),
    "trust": ("str",),
    "twice": ("str", "NoneType"),
    "weights": ("numbers",),
}
"""What the value of a figure is, by the figure's name (`_kind_of`)."""

_POSITIVE = ("design_effect", "detectable_difference", "findable", "rate", "weights")
_SHARES = ("any_p_value", "homogeneity")

_ENDLESS = ("effective_sample_size", "reports_for_goal")
"""Columns of numbers that may be infinite, as the people without privacy of an exact estimate."""


def check_tables(answer: Answer) -> None:
    """Raise `InvalidInput`, naming the place, for what no answer of an honest server has.

    Texts can be seen (`hearsay.plain.is_plain`). Numbers are finite, or nan where there is none,
    and within the range of what the column is; an interval does not end before it begins. Whether
    a number may be missing depends on the question (`check_known`).
    """
    for place, text in _texts(answer):
        _check_plain(place, text)
        if len(text) > _LONGEST:
            raise InvalidInput(f"{place}: a text of {len(text):,} characters")
    for name, value in answer.figures.items():
        _check_figure(name, value)
    for cohort in answer.cohorts:
        if not 0 <= cohort.epsilon < np.inf:
            raise InvalidInput(f"cohorts: epsilon: {cohort.epsilon} is no number that it can have")
    if not 1 <= answer.repeats < np.inf:
        raise InvalidInput(f"repeats: {answer.repeats} is no number of reports of one person")
    for table in answer.tables:
        _check_table(table)


def check_known(answer: Answer) -> None:
    """Raise `InvalidInput` where a number of an answer is missing."""
    for table in answer.tables:
        check_estimated(table)


def check_estimated(
    table: Table, without: Collection[str] = (), rows: Sequence[int] | None = None
) -> None:
    """Raise `InvalidInput` where a number of a table is missing, but in the columns `without`.

    `rows` are the places of those that are checked: all, unless they are given.
    """
    for column in table.columns:
        if column.role == "text" or column.name in without:
            continue
        numbers = _numbers(column)
        if np.isnan(numbers if rows is None else numbers[list(rows)]).any():
            raise InvalidInput(f"{table.name}: {column.name} is nan")


def _texts(answer: Answer) -> Iterator[tuple[str, str]]:
    for place in ("view", "survey", "statistic", "method"):
        yield place, getattr(answer, place)
    for subject in answer.subjects:
        yield from (("attribute", subject.name), ("title", subject.title))
    for note in answer.notes:
        yield from (("part", note.part), ("warning", note.words))
    yield from (("parts", name) for name in answer.parts)
    for cohort in answer.cohorts:
        for place in ("level", "period", "map", "mechanism"):
            yield f"cohorts: {place}", getattr(cohort, place)
    for table in answer.tables:
        yield from (("table", table.name), ("statistic", table.statistic))
        yield from (("index", level.name) for level in table.index)
        yield from (("column", column.name) for column in table.columns)


def _check_table(table: Table) -> None:
    for level in table.index:
        labels = level.labels
        if labels and not isinstance(labels[0], str):
            if not np.isfinite(np.asarray(labels, dtype=np.float64)).all():
                raise InvalidInput(f"{level.name}: a row's number is not finite")
            continue
        for label in set(labels):
            _check_plain(level.name, str(label))
    by_name = {column.name: column for column in table.columns}
    for column in table.columns:
        if column.role == "text":
            for text in set(column.values):
                _check_plain(column.name, str(text))
            continue
        numbers = _numbers(column)
        if column.role in _ALWAYS and np.isnan(numbers).any():
            raise InvalidInput(f"{column.name}: a number is nan")
        least, most = _RANGES.get(column.role, (-np.inf, np.inf))
        endless = column.name in _ENDLESS
        _check_range(column.name, numbers, least, most, endless)
        if column.whole:
            _check_whole(column.name, numbers, np.inf if endless else _MOST)
        if column.role == "low":
            high = by_name.get(_high(column.name))
            if high is None:
                raise InvalidInput(f"{table.name}: {column.name} has no other end")
            _check_ends(column.name, numbers, _numbers(high))


def _check_whole(name: str, numbers: NDArray[np.float64], most: float) -> None:
    parts = np.mod(numbers, 1, out=np.zeros_like(numbers), where=np.isfinite(numbers))
    if (parts != 0).any() or (numbers > most).any():
        raise InvalidInput(f"{name}: a number is no integer")


def _high(low: str) -> str:
    return low.removesuffix("low") + "high"


def _check_ends(name: str, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
    both = ~np.isnan(low) | ~np.isnan(high)
    if not (low[both] <= high[both]).all():
        place = int(np.flatnonzero(both)[np.argmin(low[both] <= high[both])])
        raise InvalidInput(f"{name}: an interval from {low[place]} to {high[place]}")


def _check_range(
    name: str, numbers: NDArray[np.float64], least: float, most: float, endless: bool
) -> None:
    known = numbers[~np.isnan(numbers)]
    wrong = (known < least) | (known > most) | (np.isinf(known) & (not endless))
    if wrong.any():
        raise InvalidInput(f"{name}: {known[wrong.argmax()]} is no number that it can have")


def _kind_of(value: FigureValue) -> str:
    if isinstance(value, Mapping):
        return "named"
    if isinstance(value, list | tuple):
        return "texts" if value and isinstance(value[0], str) else "numbers"
    return type(value).__name__


def _check_figure(name: str, value: FigureValue) -> None:
    _check_plain("figures", name)
    if _kind_of(value) not in _FIGURES.get(name, ()):
        raise InvalidInput(f"figures: {name[:80]!r} has no value that it can have")
    parts: Iterable[object] = value if isinstance(value, list | tuple) else [value]
    parts = value.values() if isinstance(value, Mapping) else parts
    for each in parts:
        if isinstance(each, str):
            _check_plain(name, each)
        elif isinstance(each, float):
            if np.isnan(each):
                raise InvalidInput(f"{name}: the number is nan")
            least = 0.0 if name in (*_POSITIVE, *_SHARES) else -np.inf
            most = 1.0 if name in _SHARES else np.inf
            _check_range(name, np.array([each]), least, most, name == "findable")


def _check_plain(place: str, text: str) -> None:
    if not is_plain(text):
        raise InvalidInput(f"{place}: {text[:80]!r} has characters that cannot be seen")


def _numbers(column: Column) -> NDArray[np.float64]:
    return np.asarray(column.values, dtype=np.float64)
