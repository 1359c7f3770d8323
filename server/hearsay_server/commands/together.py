"""Two attributes together at the command line: tables, tests, and groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from hearsay import Analyst
from hearsay.asking import reading
from hearsay.asking.selection import Selection
from hearsay.asking.texts import message
from hearsay.asking.together import groups_request
from hearsay.v1 import analyst_pb2
from hearsay_server import tabular
from hearsay_server.commands import plotting
from hearsay_server.commands.shown import Shown, interval_heading, plain, repeats_text, warn
from hearsay_server.printing import Console, headed, say_json
from ldp.errors import InvalidInput

_VALUES, _CELL = 20, 10
"""Characters of a joint table for the values at its left, and for a column of shares."""

_DIFFERENCES = 40
"""Differences that are printed; CSV and JSON have all."""


@dataclass(frozen=True)
class TwoAttributes:
    """What is asked of two attributes: `--joint`, `--independent` or `--given ATTRIBUTE`."""

    joint: bool
    independent: bool
    given: str
    nonnegative: bool
    reference: str

    @property
    def asked(self) -> bool:
        return self.joint or self.independent or bool(self.given)

    def check(self, attribute: str, other: str) -> None:
        """Raise `InvalidInput` unless two attributes are named, and one of them is `given`."""
        if not self.asked:
            raise InvalidInput(
                f"of {attribute!r} and {other!r} say what is asked: --joint, --independent, or "
                "--given one of them"
            )
        if not (attribute and other):
            raise InvalidInput("name two attributes after the survey")
        if self.given and self.given not in (attribute, other):
            raise InvalidInput(f"--given must be {attribute} or {other}, got {self.given!r}")

    def ask(
        self,
        analyst: Analyst,
        survey: str,
        attribute: str,
        other: str,
        show: Shown,
        *,
        confidence: float,
        simultaneous: bool,
        method: str,
        selection: Selection,
        plot: Path | None,
    ) -> None:
        """Ask the server and print the answer."""
        if self.given:
            told = other if self.given == attribute else attribute
            groups = analyst.query_groups(
                groups_request(
                    survey,
                    told,
                    self.given,
                    reference=self.reference,
                    confidence=confidence,
                    simultaneous=simultaneous,
                    method=method,
                    selection=selection,
                )
            )
            _show_groups(groups, show)
            if plot is not None:
                plotting.draw([reading.given(groups)], plot)
            return
        table = analyst.query_crosstab(
            analyst_pb2.CrosstabRequest(
                survey=survey,
                attribute=attribute,
                other=other,
                confidence=confidence,
                simultaneous=simultaneous,
                method=method,
                nonnegative=self.nonnegative,
                selection=message(selection),
            )
        )
        if self.independent:
            _show_test(table, show)
        else:
            _show_table(table, show)
        if plot is not None:
            plotting.draw([reading.joint(table)], plot)


def _show_table(answer: analyst_pb2.CrosstabResponse, show: Shown) -> None:
    warn(answer.warning)
    numbers = ["estimate", "standard_error", "low", "high"]
    if show.as_json:
        say_json(plain(answer, reports=answer.reports))
        return
    if show.as_csv:
        lines = [
            [
                cell.value,
                cell.other,
                *(getattr(cell.share, name) for name in numbers),
                answer.confidence,
                answer.reports,
            ]
            for cell in answer.rows
        ]
        heading = [answer.attribute, answer.other, *numbers, "confidence", "reports"]
        show.write_csv(heading, lines)
        return
    across = list(dict.fromkeys(cell.other for cell in answer.rows))
    Console().print(
        headed(f"{answer.title or answer.attribute} / {answer.other_title or answer.other}")
    )
    cells = {(cell.value, cell.other): cell.share for cell in answer.rows}
    for names in _side_by_side(across, Console().width):
        table = Table(f"{answer.attribute} \\ {answer.other}")
        for name in names:
            table.add_column(name, justify="right")
        for value in dict.fromkeys(cell.value for cell in answer.rows):
            own = [cells[value, name] for name in names]
            table.add_row(value, *(f"{row.estimate:.4f}\n±{row.standard_error:.4f}" for row in own))
        tabular.show(table)
    Console().print("± one standard error; --csv has the intervals", soft_wrap=True)
    _print_test(answer)


def _side_by_side(names: Sequence[str], width: int) -> Iterator[list[str]]:
    """Divide the values of a joint table's columns among tables that fit into a width."""
    block: list[str] = []
    left = width - _VALUES
    for name in names:
        needed = _CELL + max(0, min(len(name) - 7, 3))  # a heading's words are broken at ten
        if block and needed > left:
            yield block
            block, left = [], width - _VALUES
        block.append(name)
        left -= needed
    yield block


def _print_test(answer: analyst_pb2.CrosstabResponse) -> None:
    test = answer.independence
    Console().print(
        f"independence: chi-squared {test.statistic:.2f} on {test.degrees} degrees of freedom, "
        f"p = {test.p_value:.3g}",
        soft_wrap=True,
    )
    Console().print(
        f"{answer.reports:,} records, {answer.method}{repeats_text(answer.repeats)}", soft_wrap=True
    )


def _show_test(answer: analyst_pb2.CrosstabResponse, show: Shown) -> None:
    warn(answer.warning)
    names = ("statistic", "degrees", "p_value", "noncentrality", "detectable")
    found = {name: getattr(answer.independence, name) for name in names}
    if show.as_json:
        say_json({**found, "reports": answer.reports})
    elif show.as_csv:
        show.write_csv([*names, "reports"], [[*found.values(), answer.reports]])
    else:
        _print_test(answer)
        test = answer.independence
        Console().print(
            f"noncentrality about {test.noncentrality:.1f}; a dependence of {test.detectable:.1f} "
            "would be found at significance 0.05 in 80% of cases",
            soft_wrap=True,
        )


def _show_groups(answer: analyst_pb2.CompareGroupsResponse, show: Shown) -> None:
    warn(answer.warning)
    if show.as_json:
        say_json(plain(answer, reports=answer.reports))
        return
    names = ["estimate", "standard_error", "low", "high"]
    if show.as_csv:
        lines = [
            [
                row.group,
                "",
                row.row.label,
                *(getattr(row.row, name) for name in names),
                "",
                answer.confidence,
                answer.reports,
            ]
            for row in answer.rows
        ]
        lines += [
            [
                row.first_group,
                row.second_group,
                row.difference.label,
                row.difference.difference,
                row.difference.standard_error,
                row.difference.low,
                row.difference.high,
                row.difference.adjusted_p_value,
                answer.confidence,
                answer.reports,
            ]
            for row in answer.differences
        ]
        heading = [answer.by, "less_than", answer.attribute, *names, "adjusted_p_value"]
        heading[1] = "compared_with"
        show.write_csv([*heading, "confidence", "reports"], lines)
        return
    Console().print(headed(f"{answer.title or answer.attribute} / {answer.by_title or answer.by}"))
    interval = interval_heading(answer.confidence, answer.simultaneous)
    table = Table(answer.by, answer.attribute)
    for heading_ in (answer.statistic, "std. error", interval):
        table.add_column(heading_, justify="right")
    before = ""
    for row in answer.rows:
        if before and row.group != before:
            table.add_section()
        own = row.row
        table.add_row(
            row.group if row.group != before else "",
            own.label,
            f"{own.estimate:.4f}",
            f"{own.standard_error:.4f}",
            f"{own.low:.4f} to {own.high:.4f}",
        )
        before = row.group
    tabular.show(table)
    table = Table("difference", answer.attribute)
    for heading_ in (answer.statistic, interval, "p (Holm)"):
        table.add_column(heading_, justify="right")
    for each in answer.differences[:_DIFFERENCES]:
        found = each.difference
        table.add_row(
            f"{each.second_group} - {each.first_group}",
            found.label,
            f"{found.difference:.4f}",
            f"{found.low:.4f} to {found.high:.4f}",
            f"{found.adjusted_p_value:.2g}",
        )
    tabular.show(table)
    if (more := len(answer.differences) - _DIFFERENCES) > 0:
        Console().print(f"{more:,} more differences are not shown: --csv has all")
    Console().print(
        f"{answer.reports:,} records, {answer.method}{repeats_text(answer.repeats)}", soft_wrap=True
    )
