"""Print answers: as tables, as JSON, or as CSV with one heading."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.table import Table

from hearsay.asking.columns import DIFFERENCE_COLUMNS, PAIR_COLUMNS, given_columns
from hearsay.asking.reading import number
from hearsay.v1 import analyst_pb2
from hearsay_server import spreadsheets, tabular
from hearsay_server.printing import Console, headed, say_json

_ROWS = 40
"""Rows of a table unless more are asked for: those of the largest estimates."""

_WIDE = 96
"""Columns of a terminal from which a table has more than what fits into 80."""

_HEADINGS = {
    "raw": "raw",
    "effective_sample_size": "effective n",
    "shift_down": "forged down",
    "shift_up": "forged up",
    "share": "who rated",
    "share_standard_error": "std. error",
    "unweighted": "unweighted",
}


class Shown:
    """How answers are printed: as a table, as JSON, or as CSV with one heading."""

    def __init__(self, as_json: bool, as_csv: bool, limited: bool) -> None:
        """Print tables of `_ROWS` rows at most unless the rows are `limited` already."""
        self.as_json, self.as_csv = as_json, as_csv
        self._most = None if limited else _ROWS
        self._headed = False

    def estimates(self, answers: Sequence[analyst_pb2.EstimateResponse], by: str = "") -> None:
        several = len({answer.attribute for answer in answers}) > 1
        for answer in answers:
            warn(answer.warning, answer.attribute if several else "", answer.group)
        if self.as_json:
            documents = [document(answer) for answer in answers]
            say_json(documents if several or by else documents[0])
            return
        if self.as_csv:
            self._estimates_csv(answers, by)
            return
        for answer in answers:
            columns = given_columns(answer.rows)
            if answer.title:
                Console().print(headed(answer.title))
            if answer.group:
                Console().print(headed(answer.group))
            shown = [column for column in columns[4:] if column in _HEADINGS]
            wide = Console().width >= _WIDE
            if "unweighted" in shown or ("shift_down" in shown and not wide):
                shown = [column for column in shown if column != "effective_sample_size"]
            more = [_HEADINGS[column] for column in shown]
            table = _table(
                answer.attribute, answer.statistic, answer.confidence, answer.simultaneous, more
            )
            rows: Sequence[analyst_pb2.Row] = answer.rows
            if self._most is not None and len(rows) > self._most:
                rows = sorted(rows, key=_order)[: self._most]
            for row in rows:
                table.add_row(*_cells(row), *(_cell(row, column) for column in shown))
            if answer.sums:
                table.add_section()
            for row in answer.sums:
                table.add_row(*_cells(row), *(_cell(row, column) for column in shown))
            tabular.show(table)
            if hidden := answer.rows_left_out + len(answer.rows) - len(rows):
                Console().print(
                    f"{hidden:,} more rows are not shown: --top N shows N rows, those of the "
                    "largest estimates, --values A,B those of some values, and --csv all"
                )
            many = len(answer.cohorts)
            cohorts = f"{_reports(answer.reports)} in {many} cohort{'s' if many > 1 else ''}"
            Console().print(f"{cohorts}, {answer.method}{repeats_text(answer.repeats)}")
            _tell_weights(answer)
            if any(row.estimate < row.low or row.estimate > row.high for row in answer.rows):
                Console().print(
                    "Intervals are cut to what is possible: an estimate may lie outside of its own."
                )
            if "alike" in columns:
                Console().print(_if_alike(answer))

    def words(self, answer: analyst_pb2.EstimateResponse) -> None:
        """Print words with their shares, and of those that were found what might be missing."""
        if not answer.findable or self.as_json or self.as_csv:
            self.estimates([answer])
            return
        shown = analyst_pb2.EstimateResponse()
        shown.CopyFrom(answer)
        shown.rows_left_out = 0
        self.estimates([shown])
        if answer.rows_left_out:
            Console().print(
                f"{answer.rows_left_out:,} more words were found: see --top. The intervals hold "
                "for all of them at once",
                soft_wrap=True,
            )
        steps = [
            (letters, share)
            for letters, share in enumerate(answer.findable, 1)
            if letters == len(answer.findable) or answer.findable[letters] > share
        ]
        each = ", ".join(f"{share:.2%} (of up to {letters} letters)" for letters, share in steps)
        Console().print(
            f"With probability {answer.confidence:g} every word of the answer is somebody's. A "
            f"word with a share of {each} is found about every second time, and rarer ones less.",
            soft_wrap=True,
        )

    def _estimates_csv(self, answers: Sequence[analyst_pb2.EstimateResponse], by: str) -> None:
        given = [given_columns(answer.rows) for answer in answers]
        more = list(dict.fromkeys(column for columns in given for column in columns[4:]))
        columns = [*given_columns([]), *more]
        lines = [
            [
                answer.attribute,
                *([answer.group] if by else []),
                statistic,
                row.label,
                *_numbers(row, columns),
                answer.confidence,
                answer.reports,
            ]
            for answer in answers
            for statistic, rows in ((answer.statistic, answer.rows), ("sum", answer.sums))
            for row in rows
        ]
        self.write_csv(_csv_columns(columns, by), lines)

    def comparisons(
        self, answers: Sequence[analyst_pb2.CompareResponse], parts: Sequence[str]
    ) -> None:
        """Print the differences between two parts of the reports, whose names head a table."""
        several = len(answers) > 1
        for answer in answers:
            warn(answer.warning, answer.attribute if several else "")
        if self.as_json:
            documents = [
                plain(a, first_reports=a.first_reports, second_reports=a.second_reports)
                for a in answers
            ]
            say_json(documents if several else documents[0])
            return
        if self.as_csv:
            lines = [
                [
                    answer.attribute,
                    answer.statistic,
                    row.label,
                    *(getattr(row, column) for column in DIFFERENCE_COLUMNS),
                    answer.confidence,
                    answer.first_reports,
                    answer.second_reports,
                ]
                for answer in answers
                for row in answer.rows
            ]
            names = ["attribute", "statistic", "value", *DIFFERENCE_COLUMNS, "confidence"]
            self.write_csv([*names, "first_reports", "second_reports"], lines)
            return
        for answer in answers:
            if answer.title:
                Console().print(headed(answer.title))
            table = Table(answer.attribute)
            interval = interval_heading(answer.confidence, answer.simultaneous)
            # What fits into 80 columns; CSV and JSON have the errors and uncorrected p-values too.
            for heading in (*parts, "difference", interval, "p (Holm)"):
                table.add_column(heading, justify="right", no_wrap=heading == interval)
            for row in answer.rows:
                table.add_row(
                    row.label,
                    *(f"{number:.4f}" for number in (row.first, row.second)),
                    f"{row.difference:.4f}",
                    f"{row.low:.4f} to {row.high:.4f}",
                    f"{row.adjusted_p_value:.2g}",
                )
            tabular.show(table)
            counts = f"{answer.first_reports:,} and {answer.second_reports:,} reports"
            Console().print(f"{counts}{repeats_text(answer.repeats)}")

    def distribution(self, answer: analyst_pb2.DistributionResponse) -> None:
        warn(answer.warning)
        if self.as_json:
            say_json(plain(answer, reports=answer.reports))
            return
        parts = (
            ("share", [each.share for each in answer.bins]),
            ("share", list(answer.ranges)),
            ("share below", list(answer.cumulative)),
            ("quantile", list(answer.quantiles)),
        )
        if self.as_csv:
            columns = given_columns([])
            ends = [answer.confidence, answer.reports]
            for kind, rows in parts:
                lines = (
                    [answer.attribute, kind, row.label, *_numbers(row, columns), *ends]
                    for row in rows
                )
                self.write_csv(_csv_columns(columns), lines)
            return
        if answer.title:
            Console().print(headed(answer.title))
        for kind, rows in parts:
            if not rows:
                continue
            table = _table(answer.attribute, kind, answer.confidence, False, [])
            for row in rows:
                table.add_row(*_cells(row))
            tabular.show(table)
        repeats = repeats_text(answer.repeats)
        Console().print(f"{_reports(answer.reports)}, {answer.method}{repeats}")
        _tell_weights(answer)

    def pairs(self, answer: analyst_pb2.PairsResponse) -> None:
        """Print the shares of people who have both of two items."""
        warn(answer.warning)
        if self.as_json:
            integers = {"reports": answer.reports, "pairs_left_out": answer.pairs_left_out}
            say_json(plain(answer, **integers))
            return
        if self.as_csv:
            ends = [answer.confidence, answer.reports]
            lines = (
                [answer.attribute, *(getattr(pair, name) for name in PAIR_COLUMNS), *ends]
                for pair in answer.pairs
            )
            self.write_csv(["attribute", *PAIR_COLUMNS, "confidence", "reports"], lines)
            return
        if answer.title:
            Console().print(headed(answer.title))
        table = Table(answer.attribute, "and")
        for heading in ("share of both", "std. error", "95% interval", "if independent"):
            heading = heading.replace("95", f"{100 * answer.confidence:g}")
            table.add_column(heading, justify="right")
        for pair in answer.pairs:
            table.add_row(
                pair.first,
                pair.second,
                f"{pair.estimate:.4f}",
                f"{pair.standard_error:.4f}",
                f"{pair.low:.4f} to {pair.high:.4f}",
                f"{pair.independent:.4f}",
            )
        tabular.show(table)
        if answer.pairs_left_out:
            Console().print(f"{answer.pairs_left_out:,} more pairs are not shown: see --top")
        counts = f"{answer.reports:,} reports, {answer.method}{repeats_text(answer.repeats)}"
        Console().print(counts)

    def suspicions(self, answer: analyst_pb2.SuspicionsResponse) -> None:
        warn(answer.warning)
        if self.as_json:
            document = plain(answer)
            for entry, message in zip(document["suspicions"], answer.suspicions, strict=True):
                entry["reports"] = message.reports
            say_json(document)
            return
        headings = ["level", "test", "statistic", "p_value", "reports"]
        if self.as_csv:
            lines = ([getattr(each, name) for name in headings] for each in answer.suspicions)
            self.write_csv(headings, lines)
            return
        table = Table("level", "test")
        for heading in ("statistic", "p-value", "reports"):
            table.add_column(heading, justify="right")
        for each in answer.suspicions:
            numbers = (f"{each.statistic:.4g}", f"{each.p_value:.3g}", f"{each.reports:,}")
            table.add_row(each.level, each.test, *numbers)
        tabular.show(table)
        Console().print(f"together: {', '.join(answer.targets)}")

    def write_csv(self, headings: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
        """Print lines of CSV, the first time below their headings."""
        spreadsheets.write(sys.stdout, [*([] if self._headed else [headings]), *lines])
        self._headed = True


def _table(
    attribute: str, statistic: str, confidence: float, simultaneous: bool, more: Sequence[str]
) -> Table:
    table = Table(attribute)
    interval = interval_heading(confidence, simultaneous)
    for heading in (statistic, "std. error", interval, *more):
        table.add_column(heading, justify="right")
    return table


def interval_heading(confidence: float, simultaneous: bool) -> str:
    """Return the heading of a column of intervals."""
    return f"{'simultaneous ' if simultaneous else ''}{100 * confidence:g}% interval"


def _csv_columns(columns: Sequence[str], by: str = "") -> list[str]:
    """Return the heading of CSV with these numeric columns; `by` is "level", "period" or ""."""
    group = [by] if by else []
    return ["attribute", *group, "statistic", "value", *columns, "confidence", "reports"]


def _cells(row: analyst_pb2.Row) -> list[str]:
    error = f"{row.standard_error:.4f}" if row.HasField("standard_error") else "-"
    interval = f"{row.low:.4f} to {row.high:.4f}" if row.HasField("low") else "-"
    estimate = "-" if math.isnan(row.estimate) else f"{row.estimate:.4f}"
    return [row.label, estimate, error, interval]


def _cell(row: analyst_pb2.Row, column: str) -> str:
    if column == "effective_sample_size":
        return f"{row.effective_sample_size:,.0f}"
    return f"{getattr(row, column):.4f}"


def _order(row: analyst_pb2.Row) -> float:
    """Return a key that puts the largest estimates first, and what has none last."""
    return math.inf if math.isnan(row.estimate) else -row.estimate


def _if_alike(answer: analyst_pb2.EstimateResponse) -> str:
    """Say how much narrower pooled intervals are, and which difference the test may miss."""
    kept = [
        (row.alike_high - row.alike_low) / (row.high - row.low)
        for row in answer.rows
        if row.high > row.low
    ]
    narrower = 100 * (1 - sum(kept) / max(1, len(kept)))
    several = len({cohort.map for cohort in answer.cohorts}) > 1
    groups = "levels and maps" if several else "levels"
    unseen = f"whether {groups} differ was not tested"
    if answer.HasField("detectable_difference"):
        found = answer.detectable_difference
        unseen = f"differences between {groups} below {found:.2g} may go unseen"
    return (
        f"Pooling (--method mle), which assumes that people of all {groups} answer alike, would "
        f"make the intervals {narrower:.0f}% narrower; {unseen}."
    )


def _tell_weights(
    answer: analyst_pb2.EstimateResponse | analyst_pb2.DistributionResponse,
) -> None:
    """Print how unequal the weights of an answer with margins are."""
    if answer.HasField("design_effect"):
        Console().print(
            f"design effect of the weights (Kish) {answer.design_effect:.3g}; weights "
            f"{answer.smallest_weight:.3g} to {answer.largest_weight:.3g}"
        )


def _reports(count: int) -> str:
    return f"{count:,} report{'s' if count != 1 else ''}"


def warn(warning: str, *names: str) -> None:
    """Print a warning, if there is one, beside the answer; `names` say what it is of."""
    if warning:
        where = "".join(f"{name}: " for name in names if name)
        Console(stderr=True).print(f"warning: {where}{warning}", soft_wrap=True)


def repeats_text(most: float) -> str:
    """Say that errors allow for people with several reports, where they do."""
    return f"; errors allow for people with {most:.3g} reports each" if most > 1 else ""


def _numbers(row: analyst_pb2.Row, columns: Sequence[str]) -> list[float | None]:
    """Return a row's numbers; None, an empty field of CSV, where it has none."""
    numbers = (number(row, column) for column in columns)
    return [None if math.isnan(found) else found for found in numbers]


def document(answer: analyst_pb2.EstimateResponse) -> dict[str, Any]:
    """Return an estimate as JSON."""
    found = plain(answer, reports=answer.reports)
    for entry, row in zip(found["rows"], answer.rows, strict=True):
        if math.isnan(row.estimate):
            entry["estimate"] = None
        if math.isnan(row.unweighted):
            entry["unweighted"] = None
    for cohort, message in zip(found["cohorts"], answer.cohorts, strict=True):
        cohort |= {"revision": message.revision.hex(), "reports": message.reports}
    return found


def plain(answer: Message, **integers: int) -> dict[str, Any]:
    """Return a message as JSON, with `integers` for its 64-bit fields, which JSON has as text."""
    document: dict[str, Any] = MessageToDict(
        answer, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )
    document.pop("more", None)  # of messages, which are one answer here
    return document | integers
