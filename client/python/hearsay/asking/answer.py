"""`Answer`: what a server says to one question of an analyst, as a value of any view.

An answer has tables of columns, each with what it is (`Role`) and in which unit, and what there is
to know beside the numbers. Frames, JSON, CSV and notebooks are made from it here, each by one rule
for all views. Nothing here needs pandas but `Answer.to_frame`.
"""

import csv
import html
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, cast

import numpy as np
from numpy.typing import NDArray

from hearsay.asking import cautions
from ldp.errors import InvalidInput, MissingExtra, needs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_P = ParamSpec("_P")

Role = Literal[
    "estimate", "error", "low", "high", "p", "n", "statistic", "reference", "moved", "text"
]
"""What a column is: an estimate, its standard error, an end of its interval, a p-value, a number of
reports or people, a test's statistic, another estimate to compare with, how far forged reports
could move the estimate, or words."""

Unit = Literal["share", "count", "own", "per period", "none"]
"""What a number counts in: a share of the people, a count, the attribute's own unit, its change per
period of the survey, or nothing, as p-values."""

FigureValue = float | str | bool | None | Sequence[float] | Sequence[str] | Mapping[str, Any]

_MOST_NAMED = 12
"""Groups whose numbers of reports are listed."""

_MOST_PRINTED = 40
"""Rows of a table that is printed; of more, the first and the last ones are."""


@dataclass(frozen=True)
class Subject:
    """An attribute that an answer is about: its name, and its question as people see it."""

    name: str
    title: str = ""

    @property
    def shown(self) -> str:
        """The title, or the name where there is none."""
        return self.title or self.name


@dataclass(frozen=True, eq=False)
class Level:
    """A level of a table's index: its name, and a label or a number for each row."""

    name: str
    labels: Sequence[str] | Sequence[float]


@dataclass(frozen=True, eq=False)
class Column:
    """A column: its name, what it is, its unit, and a number, or a text, for each row.

    `values` has shape (rows,); nan stands for a number that there is none of.
    """

    name: str
    role: Role
    unit: Unit
    values: NDArray[np.float64] | Sequence[str]
    whole: bool = False
    """Whether the numbers are integers."""

    def plain(self) -> list[float | int | str | None]:
        """Return the values for JSON and CSV: None for nan."""
        if self.role == "text":
            return list(self.values)
        numbers = np.asarray(self.values).tolist()
        convert = int if self.whole else float
        return [convert(number) if math.isfinite(number) else None for number in numbers]


@dataclass(frozen=True, eq=False)
class Table:
    """A table of an answer: its name, levels of an index, columns, and how many rows of the whole
    answer it leaves out. `statistic` is what its estimates are of, "" for the answer's."""

    name: str
    index: tuple[Level, ...]
    columns: tuple[Column, ...]
    left_out: int = 0
    statistic: str = ""

    def __len__(self) -> int:
        return len(self.index[0].labels)

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        """Return a column; raise `InvalidInput`, which lists the columns, where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        names = ", ".join(self.names)
        raise InvalidInput(f"the table {self.name!r} has no column {name!r}, only {names}")


@dataclass(frozen=True)
class Note:
    """What an analyst must know before using an answer: of the whole, or of one of its parts.

    `code` names one of `hearsay.asking.cautions`, and `given` is what that is about.
    """

    code: str
    given: Mapping[str, cautions.Given]
    part: str = ""

    @classmethod
    def of(cls, caution: Callable[_P, str], /, *args: _P.args, **given: _P.kwargs) -> "Note":
        """Return the note of a caution, which takes what it is about by name."""
        if args:
            raise TypeError("what a caution is about is given by name")
        return cls(caution.__name__, cautions.checked(caution.__name__, given))

    @property
    def words(self) -> str:
        """The caution in words."""
        return cautions.CAUTIONS[self.code](**self.given)

    def __str__(self) -> str:
        return f"{self.part}: {self.words}" if self.part else self.words


@dataclass(frozen=True)
class Cohort:
    """Reports that share one channel, and went into an answer.

    `epsilon` is what the mechanism's integers realise; `map` is "" where none was chosen.
    """

    revision: bytes
    level: str
    period: str
    map: str
    epsilon: float
    mechanism: str
    reports: int


@dataclass(frozen=True, eq=False)
class Answer:
    """What a server says to one question.

    `view` is the question's name. The first of `tables` is the answer; others are told by their
    names, such as "quantiles" of a distribution. `reports` is how many reports, or records of
    several attributes, it is of; `parts` how many each group, part or period has, where there are
    several. `repeats` is how often one person may be among them, at most, which errors allow for.
    `confidence` is that of all intervals, of all rows at once where `simultaneous`; 0 without any.
    `figures` are single numbers by name, None where there is none, such as "homogeneity".
    """

    view: str
    survey: str
    subjects: tuple[Subject, ...]
    statistic: str
    tables: tuple[Table, ...]
    confidence: float = 0.0
    simultaneous: bool = False
    reports: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    repeats: float = 1.0
    method: str = ""
    notes: tuple[Note, ...] = ()
    figures: Mapping[str, FigureValue] = field(default_factory=dict)
    cohorts: tuple[Cohort, ...] = ()

    @property
    def attribute(self) -> str:
        """The attribute, or attributes, that the answer is about."""
        return " and ".join(subject.name for subject in self.subjects)

    @property
    def title(self) -> str:
        """The question as people see it; the attributes' names where they have no title."""
        return " / ".join(subject.shown for subject in self.subjects)

    @property
    def warning(self) -> str:
        """All notes in one line, "" without any."""
        return "; ".join(map(str, self.notes))

    def table(self, name: str = "") -> Table:
        """Return a table by its name, the first one without a name.

        Raises `InvalidInput`, which lists the tables, where there is none of this name.
        """
        for table in self.tables:
            if name in ("", table.name):
                return table
        names = ", ".join(table.name for table in self.tables)
        raise InvalidInput(f"the answer has no table {name!r}, only {names}")

    def to_frame(self, table: str = "") -> "pd.DataFrame":
        """Return a table as a DataFrame, the first one unless another is named.

        `frame.attrs` has the survey, attribute, title, view, statistic, confidence, simultaneous,
        reports (of each group or period, where there are several), repeats, method, warning,
        rows_left_out, and the answer's figures. Raises `InvalidInput` as `table`, and
        `MissingExtra` without pandas (`pip install 'hearsay-ldp[analyst]'`).
        """
        with needs("a DataFrame", "analyst"):
            import pandas as pd

        chosen = self.table(table)
        levels = [pd.Index(list(level.labels), name=level.name) for level in chosen.index]
        index = levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels)
        columns = {
            column.name: list(column.values) if column.role == "text" else column.values
            for column in chosen.columns
        }
        frame = pd.DataFrame(columns, index=index)
        frame.attrs = {
            "survey": self.survey,
            "attribute": self.attribute,
            "title": self.title,
            "view": self.view,
            "statistic": chosen.statistic or self.statistic,
            "confidence": self.confidence,
            "simultaneous": self.simultaneous,
            "reports": dict(self.parts) if self.parts else self.reports,
            "repeats": self.repeats,
            "method": self.method,
            "warning": self.warning,
            "rows_left_out": chosen.left_out,
        }
        frame.attrs.update(self.figures)
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Return the whole answer as plain values, which JSON can have; None stands for nan."""
        return {
            "view": self.view,
            "survey": self.survey,
            "subjects": [{"name": each.name, "title": each.title} for each in self.subjects],
            "statistic": self.statistic,
            "confidence": self.confidence,
            "simultaneous": self.simultaneous,
            "reports": self.reports,
            "parts": dict(self.parts),
            "repeats": self.repeats,
            "method": self.method,
            "notes": [{"words": note.words, **vars(note)} for note in self.notes],
            "figures": {name: _plain(value) for name, value in self.figures.items()},
            "tables": {table.name: _document(table) for table in self.tables},
            "cohorts": [
                {**vars(cohort), "revision": cohort.revision.hex()} for cohort in self.cohorts
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as JSON, one object, which has no NaN."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, allow_nan=False)

    def to_csv(self, table: str = "") -> str:
        """Return a table as CSV below one heading: attribute, index, columns, confidence, reports.

        A number that there is none of is empty; there is no confidence where there is no interval,
        and no second column "reports" where the table has one. Of an answer by group, reports are
        the group's. A level of the index that is called as another column is, such as an attribute
        "low", is "low.value". Commands (`--csv`) and pages guard text that a spreadsheet would
        run; this does not. Raises `InvalidInput` as `table`.
        """
        chosen = self.table(table)
        levels = [list(level.labels) for level in chosen.index]
        columns = [column.plain() for column in chosen.columns]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        ends = ["confidence"] if self.confidence else []
        ends += ["reports"] if "reports" not in chosen.names else []
        taken = {"attribute", *chosen.names, *ends}
        index = [
            f"{level.name}.value" if level.name in taken else level.name for level in chosen.index
        ]
        writer.writerow(["attribute", *index, *chosen.names, *ends])
        for row in zip(*levels, *columns, strict=True):
            reports = self.parts[row[0]] if self.view == "by" else self.reports
            known = {"confidence": self.confidence, "reports": reports}
            writer.writerow([self.attribute, *row, *(known[name] for name in ends)])
        return text.getvalue()

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw the answer, each panel below the one before, and return the figure of matplotlib.

        With `ax` the first panel is drawn there, as beside other plots. Raises `InvalidInput` for
        an answer without rows or intervals, as a test of independence; and
        `MissingExtra` without matplotlib (`pip install 'hearsay-ldp[analyst]'`).
        """
        with needs("a plot", "analyst"):
            from hearsay.asking import plots

        if ax is None:
            return plots.figure(self)
        plots.draw(self, ax)
        return cast("Figure", ax.figure)

    def __str__(self) -> str:
        """Return the question, the first table, and what to know of it, for `print`."""
        try:
            table = self.to_frame().to_string(max_rows=_MOST_PRINTED)
        except MissingExtra:
            table = self.to_csv()
        warnings = [f"warning: {note}" for note in self.notes]
        return "\n".join([self.title, table, *self.lines(), *warnings])

    def _repr_html_(self) -> str:
        """Return the first table as HTML, between its question and what to know of it."""
        table = self.to_frame()._repr_html_()  # type: ignore[operator]
        lines = "<br>".join(html.escape(line) for line in self.lines())
        parts = [f"<p><b>{html.escape(self.title)}</b></p>", table, f"<p>{lines}</p>"]
        parts += [f"<p><b>Warning:</b> {html.escape(str(note))}</p>" for note in self.notes]
        return "".join(parts)

    def lines(self) -> list[str]:
        """Return what the answer is from, a line each: reports, method, intervals, repeats."""
        found = [self.counted]
        if self.confidence:
            kind = "simultaneous " if self.simultaneous else ""
            found.append(f"low and high: {kind}{100 * self.confidence:g}% intervals")
        if isinstance(effect := self.figures.get("design_effect"), float):
            found.append(f"design effect of the weights: {effect:.3g}")
        if "panels" in self.figures:
            found.append(errors_text(int(self.figures["panels"])))  # type: ignore[arg-type]
        if self.repeats > 1:
            found.append(self.repeated)
        return found

    @property
    def counted(self) -> str:
        """How many reports it is of, of each part where there are several, and the method."""
        if len(self.parts) > _MOST_NAMED:
            by = self.table().index[0].name if self.view == "by" else "period"
            many = "periods" if by == "period" else f"groups by {by}"
            counted = f"{len(self.parts):,} {many}, {sum(self.parts.values()):,} reports"
        elif self.parts:
            counted = ", ".join(f"{part}: {n:,}" for part, n in self.parts.items()) + " reports"
        else:
            counted = f"{self.reports:,} report{'s' if self.reports != 1 else ''}"
        found = f"{self.survey}, {self.attribute}: {counted}"
        return f"{found}, {self.method}" if self.method else found

    @property
    def repeated(self) -> str:
        """What errors allow for where people may have several reports."""
        return f"errors allow for people with {self.repeats:.3g} reports each"


def errors_text(panels: int) -> str:
    """Say what the errors of changes over time are."""
    if panels:
        return f"errors from the spread of {panels} panels"
    return "errors: the largest that the same people in several periods could make"


def _document(table: Table) -> dict[str, Any]:
    return {
        "index": {level.name: list(level.labels) for level in table.index},
        "columns": {
            column.name: {"role": column.role, "unit": column.unit, "values": column.plain()}
            for column in table.columns
        },
        "left_out": table.left_out,
        "statistic": table.statistic,
    }


def _plain(value: Any) -> Any:
    """Return a figure for JSON: None for nan."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
