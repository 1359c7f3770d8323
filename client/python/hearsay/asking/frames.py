"""Answers as DataFrames, which a notebook shows with their question, method and warning."""

import html
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd

from hearsay.asking.columns import (
    DIFFERENCE_COLUMNS,
    FIT_COLUMNS,
    PAIR_COLUMNS,
    change_columns,
    errors_text,
    given_columns,
    naive,
    number,
)
from hearsay.v1 import analyst_pb2

_MOST_NAMED = 12
"""Groups whose numbers of reports are listed."""


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


def ranges(answer: analyst_pb2.DistributionResponse) -> AnswerFrame:
    """Return the shares of ranges, indexed by the ranges in words."""
    index = pd.Index([row.label for row in answer.ranges], name=answer.attribute)
    return _distribution(answer, _frame(answer.ranges, index))


def cumulative(answer: analyst_pb2.DistributionResponse) -> AnswerFrame:
    """Return the shares at or below points, or below the ends of bins, indexed by these."""
    index = pd.Index([float(row.label) for row in answer.cumulative], name="below")
    return _distribution(answer, _frame(answer.cumulative, index))


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


def change(answer: analyst_pb2.ChangeResponse) -> AnswerFrame:
    """Return changes over time as a DataFrame; see `Analyst.change`, `.trend` and `.breaks`."""
    index = pd.Index([row.label for row in answer.rows], name=answer.attribute)
    numbers = [[getattr(row, column) for column in DIFFERENCE_COLUMNS] for row in answer.rows]
    columns = change_columns(answer.kind)
    table = AnswerFrame(numbers, index=index, columns=columns, dtype=float)
    if answer.rows and answer.rows[0].HasField("mix"):
        table["mix"] = [row.mix for row in answer.rows]
    if answer.kind == analyst_pb2.ChangeRequest.BREAKS:
        table.insert(0, "period", [row.period for row in answer.rows])
    names = ("survey", "attribute", "title", "statistic", "confidence", "simultaneous", "panels")
    table.attrs = {
        **{name: getattr(answer, name) for name in names},
        "kind": analyst_pb2.ChangeRequest.Kind.Name(answer.kind).lower(),
        "any_p_value": answer.any_p_value,
        "reports": dict(zip(answer.periods, answer.period_reports, strict=True)),
        "warning": answer.warning,
    }
    return table


def over_time(
    answers: Sequence[analyst_pb2.EstimateResponse], changes: pd.DataFrame
) -> AnswerFrame:
    """Return the estimates of periods as `grouped`, with what `change` found to draw."""
    found = grouped(answers, "period")
    found.attrs["drawn"] = drawn(changes)
    return found


def suspicions(answer: analyst_pb2.SuspicionsResponse) -> pd.DataFrame:
    """Return tests of whether reports look forged, as `Analyst.suspicions` does."""
    tests = [(each.level, each.test) for each in answer.suspicions]
    table = pd.DataFrame(
        [[each.statistic, each.p_value, each.reports] for each in answer.suspicions],
        index=pd.MultiIndex.from_tuples(tests, names=["level", "test"]),
        columns=["statistic", "p_value", "reports"],
    )
    table.attrs = {"targets": list(answer.targets), "warning": answer.warning}
    return table


def drawn(changes: pd.DataFrame) -> dict[Hashable, list[Any]]:
    """Return for each value of a trend or of breaks what to draw over the estimates of periods:
    the heights at either end, and the period between, "" of a line."""
    ends = ["before", "after"] if "period" in changes else ["first", "second"]
    at = changes["period"] if "period" in changes else [""] * len(changes)
    each = zip(changes.index, *(changes[end] for end in ends), at, strict=True)
    return {label: heights for label, *heights in each}


def crosstab(answer: analyst_pb2.CrosstabResponse) -> AnswerFrame:
    """Return a joint table as a DataFrame; see `Analyst.crosstab`."""
    index = pd.MultiIndex.from_tuples(
        [(cell.value, cell.other) for cell in answer.rows], names=[answer.attribute, answer.other]
    )
    table = _frame([cell.share for cell in answer.rows], index)
    names = ("survey", "other", "confidence", "simultaneous", "reports", "repeats", "method")
    table.attrs = {
        **{name: getattr(answer, name) for name in names},
        "attribute": f"{answer.attribute} and {answer.other}",
        "title": _titles(answer.title or answer.attribute, answer.other_title or answer.other),
        "statistic": "frequency",
        "chi2": independence(answer).to_dict(),
        "warning": answer.warning,
    }
    return table


def independence(answer: analyst_pb2.CrosstabResponse) -> "pd.Series[float]":
    """Return a test of independence as a Series; see `Analyst.chi2_contingency`."""
    test = answer.independence
    found = {
        "statistic": test.statistic,
        "dof": test.degrees,
        "pvalue": test.p_value,
        "noncentrality": test.noncentrality,
        "detectable": test.detectable,
        "reports": answer.reports,
    }
    return pd.Series(found, name=f"{answer.attribute} and {answer.other}")


def within(answer: analyst_pb2.CompareGroupsResponse) -> AnswerFrame:
    """Return what is so within groups as a DataFrame; see `Analyst.within`."""
    index = pd.MultiIndex.from_tuples(
        [(row.group, row.row.label) for row in answer.rows], names=[answer.by, answer.attribute]
    )
    table = _frame([row.row for row in answer.rows], index)
    attrs = _group_attrs(answer)
    attrs["groups"] = {row.label: row.estimate for row in answer.groups}
    table.attrs = attrs
    return table


def group_differences(answer: analyst_pb2.CompareGroupsResponse) -> AnswerFrame:
    """Return the differences between groups as a DataFrame; see `Analyst.compare`."""
    index = pd.MultiIndex.from_tuples(
        [(row.first_group, row.second_group, row.difference.label) for row in answer.differences],
        names=["first_group", "second_group", answer.attribute],
    )
    numbers = [
        [getattr(row.difference, column) for column in DIFFERENCE_COLUMNS]
        for row in answer.differences
    ]
    table = AnswerFrame(numbers, index=index, columns=list(DIFFERENCE_COLUMNS), dtype=float)
    table.attrs = _group_attrs(answer)
    return table


def _group_attrs(answer: analyst_pb2.CompareGroupsResponse) -> dict[Hashable, Any]:
    names = ("survey", "attribute", "by", "statistic", "confidence", "simultaneous", "reports")
    return {
        **{name: getattr(answer, name) for name in (*names, "repeats", "method")},
        "title": _titles(answer.title or answer.attribute, answer.by_title or answer.by),
        "warning": answer.warning,
    }


def _titles(one: str, other: str) -> str:
    return f"{one} / {other}"


def fitted(
    answer: analyst_pb2.FitResponse, labels: Sequence[str], explained: str, formula: str
) -> AnswerFrame:
    """Return a regression as a DataFrame; see `Analyst.ols`."""
    columns = list(FIT_COLUMNS)
    numbers = [
        [*(getattr(row, column) for column in columns), naive(row)] for row in answer.coefficients
    ]
    index = pd.Index(list(labels), name=explained)
    table = AnswerFrame(numbers, index=index, columns=[*columns, "naive"], dtype=float)
    table.attrs = {
        **{name: getattr(answer, name) for name in ("survey", "confidence", "simultaneous")},
        **{name: getattr(answer, name) for name in ("reports", "repeats", "method", "warning")},
        "attribute": explained,
        "statistic": "coefficient",
        "title": formula,
        "formula": formula,
        "n": answer.reports,
        "naive": dict(zip(labels, table["naive"].tolist(), strict=True)),
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
    if answer.findable:
        table.attrs["findable"] = list(answer.findable)
    table.attrs |= _weights(answer)
    return table


def _weights(
    answer: analyst_pb2.EstimateResponse | analyst_pb2.DistributionResponse,
) -> dict[Hashable, Any]:
    """Return what there is to know of the weights of an answer with margins."""
    if not answer.HasField("design_effect"):
        return {}
    weights = answer.smallest_weight, answer.largest_weight
    return {"design_effect": answer.design_effect, "weights": weights}


def _distribution(answer: analyst_pb2.DistributionResponse, table: AnswerFrame) -> AnswerFrame:
    names = ("survey", "attribute", "title", "confidence", "reports", "repeats", "method")
    table.attrs = {
        **{name: getattr(answer, name) for name in names},
        "step": answer.step if answer.HasField("step") else None,
        "warning": answer.warning,
    }
    table.attrs |= _weights(answer)
    return table


def _frame(rows: Sequence[analyst_pb2.Row], index: pd.Index) -> AnswerFrame:
    columns = given_columns(rows)
    numbers = [[number(row, column) for column in columns] for row in rows]
    return AnswerFrame(numbers, index=index, columns=columns, dtype=float)


def _notes(attrs: Any) -> list[str]:
    """Return what an answer is from, one line each."""
    reports = attrs["reports"]
    if isinstance(reports, dict) and len(reports) > _MOST_NAMED:
        counted = f"{len(reports):,} periods, {sum(reports.values()):,} reports"
    elif isinstance(reports, dict):
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
    if "design_effect" in attrs:
        lines.append(f"design effect of the weights: {attrs['design_effect']:.3g}")
    if "panels" in attrs:
        lines.append(errors_text(attrs["panels"]))
    if attrs.get("repeats", 0) > 1:
        lines.append(f"errors allow for people with {attrs['repeats']:.3g} reports each")
    return lines
