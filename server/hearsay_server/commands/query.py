"""`hearsay query` and `hearsay export`: estimates and rows at the command line."""

import csv
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.analyst import Options, Selection, compare_request
from hearsay.columns import DIFFERENCE_COLUMNS, given_columns, number
from hearsay.v1 import analyst_pb2
from hearsay_server.commands import connect, plotting
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Insecure, Target, Token
from ldp.errors import InvalidInput, needs

Level = Annotated[list[str] | None, typer.Option(help="Only reports of this level; repeatable.")]
Period = Annotated[list[str] | None, typer.Option(help="Only reports of this period; repeatable.")]
First = Annotated[str, typer.Option("--from", help="Only this period and later ones.")]
Last = Annotated[str, typer.Option("--to", "--until", help="Only this period and earlier ones.")]

_ROWS = 40
"""Rows of a table unless more are asked for: those of the largest estimates."""

_HEADINGS = {
    "raw": "raw",
    "effective_sample_size": "effective n",
    "shift_down": "forged down",
    "shift_up": "forged up",
}


def query(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey's name.")],
    attribute: Annotated[str, typer.Argument(help="The attribute's name; all without it.")] = "",
    level: Level = None,
    period: Period = None,
    first: First = "",
    last: Last = "",
    by: Annotated[str, typer.Option(help="One answer for each level, or for each period.")] = "",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    simultaneous: Annotated[
        bool, typer.Option(help="Intervals that cover all values at once.")
    ] = False,
    method: Annotated[
        str, typer.Option(help="How levels are pooled: mle, gls, inverse_variance or scalar.")
    ] = "",
    consistent: Annotated[
        str, typer.Option(help="Make frequencies a distribution: norm-sub, power-ns, ...")
    ] = "",
    forged: Annotated[
        int | None, typer.Option(help="How far could so many forged reports move it?")
    ] = None,
    recover: Annotated[
        float | None, typer.Option(help="Take out so many forged reports per genuine one.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="Only so many rows, those of the largest estimates.")
    ] = None,
    values: Annotated[
        str, typer.Option(help='Only the rows of these values: A,B; one with a comma as "A,B".')
    ] = "",
    suspicions: Annotated[
        bool, typer.Option(help="Test whether the stored reports look forged.")
    ] = False,
    suspect: Annotated[
        list[str] | None, typer.Option(help="A value that may have been promoted; repeatable.")
    ] = None,
    sums: Annotated[
        list[str] | None,
        typer.Option("--sum", help='Values to add up, such as "bus,train"; repeatable.'),
    ] = None,
    compare: Annotated[
        str, typer.Option(help="Test two levels or periods: level=A,B or period=A,B or A..B,C..D.")
    ] = "",
    plot: Annotated[
        Path | None, typer.Option(help="Draw the answer, too: FILE.png, FILE.svg or FILE.pdf.")
    ] = None,
    distribution: Annotated[
        bool, typer.Option(help="How a number is distributed, instead of its mean.")
    ] = False,
    bins: Annotated[
        int, typer.Option(help="Of the distribution; 0: as many as the reports can show.")
    ] = 0,
    step: Annotated[
        float | None,
        typer.Option(help="Of the distribution's values: 1 for whole numbers. Else the survey's."),
    ] = None,
    quantile: Annotated[
        list[float] | None, typer.Option(help="Of the distribution; repeatable.")
    ] = None,
    watch: Annotated[
        float | None, typer.Option(help="Ask again every so many seconds if reports came in.")
    ] = None,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Ask for attributes' debiased frequencies, or means, with their errors."""
    if as_json and as_csv:
        raise InvalidInput("choose one of --json and --csv")
    if sum([bool(by), suspicions, distribution, bool(compare), watch is not None]) > 1:
        raise InvalidInput(
            "choose one of --by, --compare, --suspicions, --distribution and --watch"
        )
    limited = top is not None or bool(values)
    if limited and (suspicions or distribution or compare):
        raise InvalidInput("--top and --values choose among the rows of frequencies")
    shaping = [bool(sums), bool(method), bool(consistent), forged is not None, recover is not None]
    if compare and any(shaping):
        raise InvalidInput(
            "--compare compares stratified estimates of values: leave out --sum, --method, "
            "--consistent, --forged and --recover"
        )
    if sums and (distribution or suspicions):
        raise InvalidInput("--sum is about values: leave out --distribution and --suspicions")
    if not attribute:
        _refuse_all(sum=sums, suspicions=suspicions, distribution=distribution, watch=watch)
    if plot is not None:
        if suspicions or watch is not None:
            raise InvalidInput("--plot draws neither --suspicions nor --watch")
        plotting.check(plot)
    show = _Shown(as_json, as_csv, limited)
    chosen = Selection(
        levels=level or (), periods=period or (), first_period=first, last_period=last
    )
    selection = analyst_pb2.Selection(**chosen)
    options: Options = {
        **chosen,  # type: ignore[typeddict-item]
        "confidence": confidence,
        "simultaneous": simultaneous,
        "method": method,
        "consistency": consistent,
    }
    if forged is not None:
        if forged < 0:
            raise InvalidInput(f"--forged must be >= 0, got {forged}")
        options["forged"] = forged
    if recover is not None:
        options["recover"] = recover
    if top is not None:
        options["top"] = top
    if values:
        options["values"] = next(csv.reader([values]))
    with Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst:
        if suspicions:
            asked = analyst_pb2.SuspicionsRequest(
                survey=survey, attribute=attribute, targets=suspect or (), selection=selection
            )
            show.suspicions(analyst.query_suspicions(asked))
        elif distribution:
            question = analyst_pb2.DistributionRequest(
                survey=survey,
                attribute=attribute,
                bins=bins,
                step=step,
                quantiles=quantile or (0.25, 0.5, 0.75),
                confidence=confidence,
                selection=selection,
            )
            found = analyst.query_distribution(question)
            show.distribution(found)
            if plot is not None:
                plotting.distribution(found, plot)
        elif watch is not None:
            sets = _sets(sums)
            for answer in analyst.watch_query(
                survey, attribute, sums=sets, interval=watch, **options
            ):
                show.estimates([answer])
        elif compare:
            names = [attribute] if attribute else _attributes(analyst, survey)
            parts = _parts(compare, chosen)
            compared = [
                analyst.query_compare(
                    compare_request(
                        survey, name, *parts, confidence=confidence, simultaneous=simultaneous
                    )
                )
                for name in names
            ]
            show.comparisons(compared)
            if plot is not None:
                plotting.comparisons(compared, plot)
        else:
            names = [attribute] if attribute else _attributes(analyst, survey)
            answers: list[analyst_pb2.EstimateResponse] = []
            for name in names:
                if by:
                    answers += analyst.query_by(survey, name, _by(by), _sets(sums), **options)
                else:
                    answers.append(analyst.query(survey, name, _sets(sums), **options))
            show.estimates(answers, by)
            if plot is not None:
                plotting.estimates(answers, by, plot)


def export(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey's name.")],
    to: Annotated[str, typer.Option("--to", help="A new folder: a path, or a URI of a store.")],
    since: Annotated[
        str | None,
        typer.Option(help="Write only periods that changed since this earlier export, a folder."),
    ] = None,
    level: Level = None,
    period: Period = None,
    first: First = "",
    last: Annotated[str, typer.Option("--until", help="Only this period and earlier ones.")] = "",
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Write the randomised rows as Parquet, each period in files of its own."""
    with needs("exporting", "export"):
        from hearsay_server.answers.export import export as write
        from hearsay_server.answers.folders import without_credentials

    chosen = Selection(
        levels=level or (), periods=period or (), first_period=first, last_period=last
    )
    with Analyst(target, tls=connect.tls(context), token=token, insecure=insecure) as analyst:
        done = write(analyst, survey, to, since=since, **chosen)
    if done.kept:
        text = (
            f"warning: the server has dropped rows of {len(done.kept)} periods since, "
            f"{done.kept[0]} to {done.kept[-1]}: they stay as exported before"
        )
        Console(stderr=True).print(escape(text), soft_wrap=True)
    Console().print(f"{done.rows:,} rows of {survey} are in {escape(without_credentials(to))}")


def _refuse_all(**given: object) -> None:
    """Raise `InvalidInput` for an option that is about one attribute, where none is named."""
    for name, value in given.items():
        if value:
            raise InvalidInput(f"--{name} is about one attribute: name it after the survey")


def _attributes(analyst: Analyst, survey: str) -> list[str]:
    """Return the survey's attributes that have reports, in its order; all of them if none has."""
    shown = analyst.show_survey(survey)
    asked = hearsay.plans.plan.message(shown.plan).survey.attributes
    names = [attribute.name for attribute in asked]
    answered = {each.attribute for each in shown.reports}
    return [name for name in names if name in answered] or names


def _sets(sums: Sequence[str] | None) -> list[list[str]]:
    """Return the values of each `--sum`; quotes keep a comma within a value."""
    return [next(csv.reader([text])) if text else [] for text in sums or ()]


def _parts(compare: str, chosen: Selection) -> tuple[Selection, Selection]:
    """Return the two selections that `--compare` names, each restricted by the other options."""
    kind, _, names = compare.partition("=")
    parts = names.split(",")
    if kind not in ("level", "period") or len(parts) != 2 or not all(parts):
        raise InvalidInput(
            f"--compare must read like level=A,B or period=A,B or period=A..B,C..D, got {compare!r}"
        )
    if kind == "level":
        if chosen.get("levels"):
            raise InvalidInput("give --compare level=A,B or --level, not both")
        one, other = (Selection(**{**chosen, "levels": [name]}) for name in parts)
        return one, other
    if chosen.get("periods") or chosen.get("first_period") or chosen.get("last_period"):
        raise InvalidInput("give --compare period=A,B or --period, --from and --to, not both")
    found = []
    for name in parts:
        first, dots, last = name.partition("..")
        ends = {"first_period": first, "last_period": last} if dots else {"periods": [first]}
        found.append(Selection(**{**chosen, **ends}))  # type: ignore[typeddict-item]
    one, other = found
    return one, other


def _by(name: str) -> Literal["LEVEL", "PERIOD"]:
    if name == "level":
        return "LEVEL"
    if name == "period":
        return "PERIOD"
    raise InvalidInput(f"--by must be level or period, got {name!r}")


class _Shown:
    """How answers are printed: as a table, as JSON, or as CSV with one heading."""

    def __init__(self, as_json: bool, as_csv: bool, limited: bool) -> None:
        """Print tables of `_ROWS` rows at most unless the rows are `limited` already."""
        self._json = as_json
        self._most = None if limited else _ROWS
        self._csv = csv.writer(sys.stdout) if as_csv else None
        self._headed = False

    def estimates(self, answers: Sequence[analyst_pb2.EstimateResponse], by: str = "") -> None:
        several = len({answer.attribute for answer in answers}) > 1
        for answer in answers:
            if answer.warning:
                names = (answer.attribute if several else "", answer.group)
                where = "".join(f"{name}: " for name in names if name)
                text = f"warning: {where}{answer.warning}"
                Console(stderr=True).print(escape(text), soft_wrap=True)
        if self._json:
            documents = [_document(answer) for answer in answers]
            typer.echo(json.dumps(documents if several or by else documents[0], indent=2))
            return
        if self._csv:
            self._estimates_csv(answers, by)
            return
        for answer in answers:
            columns = given_columns(answer.rows)
            if answer.title:
                Console().print(f"[bold]{escape(answer.title)}[/bold]")
            if answer.group:
                Console().print(f"[bold]{escape(answer.group)}[/bold]")
            shown = [column for column in columns[4:] if column in _HEADINGS]
            more = [_HEADINGS[column] for column in shown]
            table = _table(
                answer.attribute, answer.statistic, answer.confidence, answer.simultaneous, more
            )
            rows: Sequence[analyst_pb2.Row] = answer.rows
            if self._most is not None and len(rows) > self._most:
                rows = sorted(rows, key=lambda row: -row.estimate)[: self._most]
            for row in rows:
                table.add_row(*_cells(row), *(_cell(row, column) for column in shown))
            if answer.sums:
                table.add_section()
            for row in answer.sums:
                table.add_row(*_cells(row), *(_cell(row, column) for column in shown))
            Console().print(table)
            if hidden := answer.rows_left_out + len(answer.rows) - len(rows):
                Console().print(
                    f"{hidden:,} more rows are not shown: --top N shows N rows, those of the "
                    "largest estimates, --values A,B those of some values, and --csv all"
                )
            many = len(answer.cohorts)
            cohorts = f"{answer.reports:,} reports in {many} cohort{'s' if many > 1 else ''}"
            Console().print(f"{cohorts}, {answer.method}{_repeats(answer.repeats)}")
            if "alike" in columns:
                Console().print(_if_alike(answer))

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
        self._write_csv(_csv_columns(columns, by), lines)

    def comparisons(self, answers: Sequence[analyst_pb2.CompareResponse]) -> None:
        several = len(answers) > 1
        for answer in answers:
            if answer.warning:
                where = f"{answer.attribute}: " if several else ""
                text = f"warning: {where}{answer.warning}"
                Console(stderr=True).print(escape(text), soft_wrap=True)
        if self._json:
            documents = [
                _plain(a, first_reports=a.first_reports, second_reports=a.second_reports)
                for a in answers
            ]
            typer.echo(json.dumps(documents if several else documents[0], indent=2))
            return
        if self._csv:
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
            self._write_csv([*names, "first_reports", "second_reports"], lines)
            return
        for answer in answers:
            if answer.title:
                Console().print(f"[bold]{escape(answer.title)}[/bold]")
            table = Table(answer.attribute)
            interval = _interval_heading(answer.confidence, answer.simultaneous)
            # What fits into 80 columns; CSV and JSON have the errors and uncorrected p-values too.
            for heading in ("first", "second", "difference", interval, "p (Holm)"):
                table.add_column(heading, justify="right", no_wrap=heading == interval)
            for row in answer.rows:
                table.add_row(
                    escape(row.label),
                    *(f"{number:.4f}" for number in (row.first, row.second)),
                    f"{row.difference:.4f}",
                    f"{row.low:.4f} to {row.high:.4f}",
                    f"{row.adjusted_p_value:.2g}",
                )
            Console().print(table)
            counts = f"{answer.first_reports:,} and {answer.second_reports:,} reports"
            Console().print(f"{counts}{_repeats(answer.repeats)}")

    def distribution(self, answer: analyst_pb2.DistributionResponse) -> None:
        if answer.warning:
            Console(stderr=True).print(escape(f"warning: {answer.warning}"), soft_wrap=True)
        if self._json:
            typer.echo(json.dumps(_plain(answer, reports=answer.reports), indent=2))
            return
        parts = (
            ("share", [each.share for each in answer.bins]),
            ("quantile", list(answer.quantiles)),
        )
        if self._csv:
            columns = given_columns([])
            ends = [answer.confidence, answer.reports]
            for kind, rows in parts:
                lines = (
                    [answer.attribute, kind, row.label, *_numbers(row, columns), *ends]
                    for row in rows
                )
                self._write_csv(_csv_columns(columns), lines)
            return
        if answer.title:
            Console().print(f"[bold]{escape(answer.title)}[/bold]")
        for kind, rows in parts:
            if not rows:
                continue
            table = _table(answer.attribute, kind, answer.confidence, False, [])
            for row in rows:
                table.add_row(*_cells(row))
            Console().print(table)
        repeats = _repeats(answer.repeats)
        Console().print(f"{answer.reports:,} reports, {answer.method}{repeats}")

    def suspicions(self, answer: analyst_pb2.SuspicionsResponse) -> None:
        if answer.warning:
            Console(stderr=True).print(escape(f"warning: {answer.warning}"), soft_wrap=True)
        if self._json:
            document = _plain(answer)
            for entry, message in zip(document["suspicions"], answer.suspicions, strict=True):
                entry["reports"] = message.reports
            typer.echo(json.dumps(document, indent=2))
            return
        headings = ["level", "test", "statistic", "p_value", "reports"]
        if self._csv:
            lines = ([getattr(each, name) for name in headings] for each in answer.suspicions)
            self._write_csv(headings, lines)
            return
        table = Table("level", "test")
        for heading in ("statistic", "p-value", "reports"):
            table.add_column(heading, justify="right")
        for each in answer.suspicions:
            numbers = (f"{each.statistic:.4g}", f"{each.p_value:.3g}", f"{each.reports:,}")
            table.add_row(each.level, each.test, *numbers)
        Console().print(table)
        Console().print(f"together: {escape(', '.join(answer.targets))}")

    def _write_csv(self, headings: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
        assert self._csv is not None
        if not self._headed:
            self._csv.writerow(headings)
            self._headed = True
        self._csv.writerows(lines)


def _table(
    attribute: str, statistic: str, confidence: float, simultaneous: bool, more: Sequence[str]
) -> Table:
    table = Table(attribute)
    interval = _interval_heading(confidence, simultaneous)
    for heading in (statistic, "std. error", interval, *more):
        table.add_column(heading, justify="right")
    return table


def _interval_heading(confidence: float, simultaneous: bool) -> str:
    return f"{'simultaneous ' if simultaneous else ''}{100 * confidence:g}% interval"


def _csv_columns(columns: Sequence[str], by: str = "") -> list[str]:
    """Return the heading of CSV with these numeric columns; `by` is "level", "period" or ""."""
    group = [by] if by else []
    return ["attribute", *group, "statistic", "value", *columns, "confidence", "reports"]


def _cells(row: analyst_pb2.Row) -> list[str]:
    error = f"{row.standard_error:.4f}" if row.HasField("standard_error") else "-"
    interval = f"{row.low:.4f} to {row.high:.4f}" if row.HasField("low") else "-"
    return [escape(row.label), f"{row.estimate:.4f}", error, interval]


def _cell(row: analyst_pb2.Row, column: str) -> str:
    if column == "effective_sample_size":
        return f"{row.effective_sample_size:,.0f}"
    return f"{getattr(row, column):.4f}"


def _if_alike(answer: analyst_pb2.EstimateResponse) -> str:
    """Say how much narrower pooled intervals are, and which difference the test may miss."""
    kept = [
        (row.alike_high - row.alike_low) / (row.high - row.low)
        for row in answer.rows
        if row.high > row.low
    ]
    narrower = 100 * (1 - sum(kept) / max(1, len(kept)))
    unseen = "whether levels differ was not tested"
    if answer.HasField("detectable_difference"):
        found = answer.detectable_difference
        unseen = f"differences between levels below {found:.2g} may go unseen"
    return (
        "Pooling (--method), which assumes that people of all levels answer alike, would make the "
        f"intervals {narrower:.0f}% narrower; {unseen}."
    )


def _repeats(most: float) -> str:
    return f"; errors allow for people with {most:.3g} reports each" if most > 1 else ""


def _numbers(row: analyst_pb2.Row, columns: Sequence[str]) -> list[float | None]:
    """Return a row's numbers; None, an empty field of CSV, where it has none."""
    numbers = (number(row, column) for column in columns)
    return [None if math.isnan(found) else found for found in numbers]


def _document(answer: analyst_pb2.EstimateResponse) -> dict[str, Any]:
    document = _plain(answer, reports=answer.reports)
    del document["more"]  # of messages, which are one answer here
    for cohort, message in zip(document["cohorts"], answer.cohorts, strict=True):
        cohort |= {"revision": message.revision.hex(), "reports": message.reports}
    return document


def _plain(answer: Message, **integers: int) -> dict[str, Any]:
    """Return a message as JSON, with `integers` for its 64-bit fields, which JSON has as text."""
    document: dict[str, Any] = MessageToDict(
        answer, always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )
    return document | integers
