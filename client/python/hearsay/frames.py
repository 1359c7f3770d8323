"""Answers as DataFrames, which a notebook shows with their question, method and warning."""

import html
from collections.abc import Sequence
from typing import Any

import pandas as pd

from hearsay.columns import DIFFERENCE_COLUMNS, PAIR_COLUMNS, given_columns, number
from hearsay.v1 import analyst_pb2


class AnswerFrame(pd.DataFrame):
    """A DataFrame of an answer; what is made from it is a plain DataFrame."""

    def _repr_html_(self) -> str | None:
        """Return the table as HTML, between its question and what to know of it."""
        table: str | None = super()._repr_html_()  # type: ignore[misc]
        if table is None or "attribute" not in self.attrs:
            return table
        lines = [html.escape(line) for line in _notes(self.attrs)]
        title = html.escape(self.attrs["title"] or self.attrs["attribute"])
        warning = html.escape(self.attrs["warning"])
        parts = [f"<p><b>{title}</b></p>", table, f"<p>{'<br>'.join(lines)}</p>"]
        if warning:
            parts.append(f"<p><b>Warning:</b> {warning}</p>")
        return "".join(parts)


def estimates(answer: analyst_pb2.EstimateResponse) -> AnswerFrame:
    """Return an answer as a DataFrame; see `Analyst.estimate`."""
    return _estimates(answer, answer.rows)


def sums(answer: analyst_pb2.EstimateResponse) -> AnswerFrame:
    """Return an answer's sums as a DataFrame; see `Analyst.sums`."""
    return _estimates(answer, answer.sums)


def rated_shares(answer: analyst_pb2.EstimateResponse) -> AnswerFrame:
    """Return the shares of people who rated each key, of an answer about ratings."""
    table = _estimates(answer, answer.rows)
    columns = {name: name.removeprefix("share_") for name in table.columns if "share_" in name}
    shares = AnswerFrame(
        table[["share", *columns]].rename(columns={"share": "estimate", **columns})
    )
    shares.attrs = {**table.attrs, "statistic": "share who rated"}
    return shares


def pairs(answer: analyst_pb2.PairsResponse) -> AnswerFrame:
    """Return the shares of people who have both of two items, indexed by the items."""
    index = pd.MultiIndex.from_tuples(
        [(pair.first, pair.second) for pair in answer.pairs], names=["first", "second"]
    )
    columns = list(PAIR_COLUMNS[2:])
    numbers = [[getattr(pair, column) for column in columns] for pair in answer.pairs]
    table = AnswerFrame(numbers, index=index, columns=columns, dtype=float)
    names = (
        "survey",
        "attribute",
        "title",
        "confidence",
        "reports",
        "method",
        "repeats",
        "warning",
    )
    table.attrs = {
        **{name: getattr(answer, name) for name in names},
        "statistic": "share of both",
        "pairs_left_out": answer.pairs_left_out,
    }
    return table


def grouped(answers: Sequence[analyst_pb2.EstimateResponse], by: str) -> AnswerFrame:
    """Return the answers of all groups as one DataFrame, indexed by group and value."""
    tables = {answer.group: estimates(answer) for answer in answers}
    attrs = next(iter(tables.values())).attrs
    for table in tables.values():
        table.attrs = {}  # pandas compares them, and they differ
    found = AnswerFrame(pd.concat(tables, names=[by, answers[0].attribute]))
    found.attrs = {
        **{name: attrs[name] for name in ("survey", "attribute", "title", "statistic")},
        **{name: attrs[name] for name in ("confidence", "simultaneous")},
        "reports": {answer.group: answer.reports for answer in answers},
        "warning": "; ".join(f"{a.group}: {a.warning}" for a in answers if a.warning),
    }
    return found


def histogram(answer: analyst_pb2.DistributionResponse) -> AnswerFrame:
    """Return the shares of a distribution, indexed by left and right."""
    ends = ([each.left for each in answer.bins], [each.right for each in answer.bins])
    index = pd.MultiIndex.from_arrays(ends, names=["left", "right"])
    return _distribution(answer, _frame([each.share for each in answer.bins], index))


def quantiles(answer: analyst_pb2.DistributionResponse) -> AnswerFrame:
    """Return the quantiles of a distribution, indexed by their levels."""
    index = pd.Index([float(row.label) for row in answer.quantiles], name="quantile")
    return _distribution(answer, _frame(answer.quantiles, index))


def comparison(answer: analyst_pb2.CompareResponse) -> AnswerFrame:
    """Return the differences between two parts as a DataFrame; see `Analyst.compare`."""
    index = pd.Index([row.label for row in answer.rows], name=answer.attribute)
    numbers = [[getattr(row, column) for column in DIFFERENCE_COLUMNS] for row in answer.rows]
    table = AnswerFrame(numbers, index=index, columns=list(DIFFERENCE_COLUMNS), dtype=float)
    names = ("survey", "attribute", "title", "statistic", "confidence", "simultaneous", "repeats")
    table.attrs = {
        **{name: getattr(answer, name) for name in names},
        "reports": (answer.first_reports, answer.second_reports),
        "warning": answer.warning,
    }
    return table


def _estimates(
    answer: analyst_pb2.EstimateResponse, rows: Sequence[analyst_pb2.Row]
) -> AnswerFrame:
    table = _frame(rows, pd.Index([row.label for row in rows], name=answer.attribute))
    names = ("survey", "attribute", "title", "statistic", "confidence", "simultaneous")
    table.attrs = {
        **{name: getattr(answer, name) for name in (*names, "reports", "repeats", "method")},
        "rows_left_out": answer.rows_left_out,
        "homogeneity": answer.homogeneity if answer.HasField("homogeneity") else None,
        "detectable_difference": (
            answer.detectable_difference if answer.HasField("detectable_difference") else None
        ),
        "warning": answer.warning,
    }
    return table


def _distribution(answer: analyst_pb2.DistributionResponse, table: AnswerFrame) -> AnswerFrame:
    names = ("survey", "attribute", "title", "confidence", "reports", "repeats", "method")
    table.attrs = {
        **{name: getattr(answer, name) for name in names},
        "step": answer.step if answer.HasField("step") else None,
        "warning": answer.warning,
    }
    return table


def _frame(rows: Sequence[analyst_pb2.Row], index: pd.Index) -> AnswerFrame:
    columns = given_columns(rows)
    numbers = [[number(row, column) for column in columns] for row in rows]
    return AnswerFrame(numbers, index=index, columns=columns, dtype=float)


def _notes(attrs: Any) -> list[str]:
    """Return what an answer is from, one line each."""
    reports = attrs["reports"]
    if isinstance(reports, dict):
        counted = ", ".join(f"{group}: {n:,}" for group, n in reports.items()) + " reports"
    elif isinstance(reports, tuple):
        counted = f"{reports[0]:,} and {reports[1]:,} reports"
    else:
        counted = f"{reports:,} reports"
    kind = "simultaneous " if attrs.get("simultaneous") else ""
    lines = [f"{attrs['survey']}, {attrs['attribute']}: {counted}"]
    if attrs.get("method"):
        lines[0] += f", {attrs['method']}"
    lines.append(f"low and high: {kind}{100 * attrs['confidence']:g}% intervals")
    if attrs.get("repeats", 0) > 1:
        lines.append(f"errors allow for people with {attrs['repeats']:.3g} reports each")
    return lines
