"""`hearsay query --change`, `--trend` and `--breaks`: what changed over time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from hearsay import Analyst
from hearsay.asking import reading
from hearsay.asking.analyst import Options, change_request
from hearsay.asking.answer import Answer, errors_text
from hearsay.asking.changes import ChangeOptions, Kind
from hearsay.asking.columns import DIFFERENCE_COLUMNS, change_columns
from hearsay.v1 import analyst_pb2
from hearsay_server import tabular
from hearsay_server.commands import plotting
from hearsay_server.commands.shown import Shown, interval_heading, plain, warn
from hearsay_server.printing import Console, headed, say_json

_ROWS = 40
"""Rows of a table: those of the smallest p-values."""

_DRAWN = 4
"""Values that are drawn over time, those of the smallest p-values."""


@dataclass(frozen=True)
class OverTime:
    """What one of `--change`, `--trend` and `--breaks` asks."""

    change: tuple[str, str] | None
    trend: bool
    breaks: bool

    @property
    def asked(self) -> bool:
        return self.change is not None or self.trend or self.breaks

    def ask(
        self,
        analyst: Analyst,
        survey: str,
        attributes: Sequence[str],
        options: ChangeOptions,
        show: Shown,
        plot: Path | None,
    ) -> None:
        """Ask the server, print the answers, and draw them."""
        kind: Kind = "TREND" if self.trend else "BREAKS" if self.breaks else "DIFFERENCE"
        if self.change is not None:
            options = {**options, "periods": list(self.change)}
        requests = [change_request(survey, name, kind, options) for name in attributes]
        answers = [analyst.query_change(request) for request in requests]
        _show(answers, show)
        if plot is not None:
            plotting.draw([a for answer in answers for a in _drawn(analyst, answer, options)], plot)


def _drawn(
    analyst: Analyst, answer: analyst_pb2.ChangeResponse, options: ChangeOptions
) -> list[Answer]:
    """Return a change to draw, below the estimates of its periods, if there are any."""
    change = reading.change(answer)
    periods = _estimates(analyst, answer, options)
    if not periods:
        return [change]
    from hearsay.asking.plots import over_time

    return [over_time(reading.by(periods, "period"), change), change]


def _estimates(
    analyst: Analyst, answer: analyst_pb2.ChangeResponse, options: ChangeOptions
) -> list[analyst_pb2.EstimateResponse]:
    """Return the estimates of each period of the values that changed most clearly.

    None of a difference, of sums and of ranges: their changes are drawn alone.
    """
    if answer.kind == analyst_pb2.ChangeRequest.DIFFERENCE or answer.statistic == "share":
        return []
    chosen = Options(
        levels=options.get("levels", ()),
        maps=options.get("maps", ()),
        periods=options.get("periods", ()),
        where=options.get("where", {}),
        panels=options.get("panels", ()),
        first_period=options.get("first_period", ""),
        last_period=options.get("last_period", ""),
        confidence=answer.confidence,
    )
    if answer.statistic != "mean":
        chosen["values"] = [row.label for row in _clearest(answer)[:_DRAWN]]
    return list(analyst.query_by(answer.survey, answer.attribute, "PERIOD", **chosen))


def _clearest(answer: analyst_pb2.ChangeResponse) -> list[analyst_pb2.Difference]:
    return sorted(answer.rows, key=lambda row: row.p_value)


def _show(answers: Sequence[analyst_pb2.ChangeResponse], show: Shown) -> None:
    several = len(answers) > 1
    for answer in answers:
        warn(answer.warning, answer.attribute if several else "")
    if show.as_json:
        documents = [plain(answer) for answer in answers]
        for document, answer in zip(documents, answers, strict=True):
            document["period_reports"] = list(answer.period_reports)
        say_json(documents if several else documents[0])
        return
    if show.as_csv:
        columns = change_columns(answers[0].kind)
        heading = ["attribute", "statistic", "value", "period", *columns, "mix"]
        show.write_csv([*heading, "confidence", "panels", "reports"], _lines(answers))
        return
    for answer in answers:
        _print(answer)


def _lines(answers: Sequence[analyst_pb2.ChangeResponse]) -> Iterator[list[object]]:
    for answer in answers:
        for row in answer.rows:
            yield [
                answer.attribute,
                answer.statistic,
                row.label,
                row.period,
                *(getattr(row, column) for column in DIFFERENCE_COLUMNS),
                row.mix if row.HasField("mix") else None,
                answer.confidence,
                answer.panels,
                sum(answer.period_reports),
            ]


def _print(answer: analyst_pb2.ChangeResponse) -> None:
    """Print a table of 80 columns; CSV and JSON have the errors and uncorrected p-values too."""
    request = analyst_pb2.ChangeRequest
    if answer.title:
        Console().print(headed(answer.title))
    table = Table(answer.attribute)
    broken, sloped = answer.kind == request.BREAKS, answer.kind == request.TREND
    if broken:
        table.add_column("from", no_wrap=True)
    changed = "per period" if sloped else "change"
    interval = interval_heading(answer.confidence, answer.simultaneous)
    within = [] if broken else [interval]  # of a break that was known: CSV and JSON have it
    names = [_headed(name) for name in answer.periods]
    ends = ["before", "after"] if broken else ["start", "end"] if sloped else names
    for heading in (*ends, changed, *within, "p (Holm)"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows: Sequence[analyst_pb2.Difference] = answer.rows
    if len(rows) > _ROWS:
        rows = _clearest(answer)[:_ROWS]
    digits = _digits(rows) if sloped else 4
    for row in rows:
        table.add_row(
            row.label,
            *([row.period] if broken else []),
            *(f"{number:.4f}" for number in (row.first, row.second)),
            f"{row.difference:.{digits}f}",
            *([] if broken else [f"{row.low:.{digits}f} to {row.high:.{digits}f}"]),
            f"{row.adjusted_p_value:.2g}",
        )
    tabular.show(table)
    if more := len(answer.rows) - len(rows):
        Console().print(f"{more:,} more rows are not shown: --csv has all")
    counts = answer.period_reports
    if len(answer.periods) == 2:
        each = zip(answer.periods, counts, strict=True)
        counted = ", ".join(f"{name}: {n:,} reports" for name, n in each)
    else:
        span = f"{answer.periods[0]} to {answer.periods[-1]}"
        counted = f"{span}: {len(counts)} periods, {sum(counts):,} reports"
    Console().print(counted)
    Console().print(errors_text(answer.panels))
    if len(answer.rows) > 1:
        Console().print(f"that nothing changed at all: p = {answer.any_p_value:.2g}")


def _headed(period: str) -> str:
    """Return a period's name as the heading of a narrow column, with the year in a line above."""
    return period if len(period) <= len("2026-11") else period.replace("-", "-\n", 1)


def _digits(rows: Sequence[analyst_pb2.Difference]) -> int:
    """Return the decimals that show two digits of the least standard error, four at least."""
    least = min((row.standard_error for row in rows), default=1.0)
    return max(4, min(9, math.ceil(1 - math.log10(least)))) if least > 0 else 4
