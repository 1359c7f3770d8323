"""What devices sent beside the truth that they kept: one device in full, and ten of each level."""

from collections.abc import Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.demo.devices import Answer, Sent
from hearsay_server.printing import Console, headed
from hearsay_server.surveys.describe import describe
from ldp import KRR

_SHOWN = 10
"""Devices of a level."""


def show_devices(sent: Sequence[Sent], plan: Plan, console: Console) -> None:
    """Print the truth and the report of ten devices of each level, and how many reports differ.

    They are reports of the first attribute whose report names one of its values (k-ary randomised
    response, at every level). Without such an attribute nothing is printed.
    """
    alone = (name for name in plan.questions if name not in plan.views)
    name = next((name for name in alone if _names_a_value(plan, name)), None)
    if name is None:
        return
    table = Table(title=f"{name}: truth -> report, of {_SHOWN} devices a level", box=SIMPLE_HEAD)
    for level in plan.levels.values():
        heading = f"{level.name}\nepsilon {level.mechanisms[name].epsilon:g}"
        table.add_column(heading, no_wrap=True)
    columns, lines = [], []
    for level_name in plan.levels:
        pairs = list(_reported(sent, plan, level_name, name))
        differ = sum(truth != report for truth, report in pairs)
        columns.append([_pair(truth, report) for truth, report in pairs[:_SHOWN]])
        lines.append(_odds(differ, len(pairs)))
    for row in range(max(map(len, columns))):
        table.add_row(*(column[row] if row < len(column) else "" for column in columns))
    table.add_section()
    table.add_row(*lines)
    console.print(table)


def _names_a_value(plan: Plan, name: str) -> bool:
    return all(isinstance(level.mechanisms[name], KRR) for level in plan.levels.values())


def _reported(sent: Sequence[Sent], plan: Plan, level: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the true and the reported value of each device of a level that reported a question."""
    mechanism = plan.levels[level].mechanisms[name]
    domain = plan.questions[name].domain
    for each in sent:
        if each.respondent.level != level:
            continue
        for column in collector_pb2.Batch.FromString(each.batch).columns:
            if column.attribute == name and not column.map:
                (code,) = mechanism.decode(column.codes, 1).tolist()
                yield str(each.respondent.answers[name]), domain.labels[code]


def _pair(truth: str, report: str) -> str | Text:
    if truth == report:
        return f"{truth} -> {report}"
    return headed(f"{truth} -> {report}  differs", style="bold red")


def _odds(differ: int, reports: int) -> str:
    if not differ:
        return f"none of {reports:,} differs"
    one_in = reports / differ
    return f"1 in {one_in:.{0 if one_in >= 10 else 1}f} reports differ"


def show_device(exhibit: Sent, plan: Plan, console: Console) -> None:
    """Print everything that one device sent, beside the answers that it kept."""
    batch = collector_pb2.Batch.FromString(exhibit.batch)
    level = plan.level(exhibit.respondent.level)
    table = Table("attribute", "the truth, kept", "what left the device", "epsilon")
    columns = {column.attribute: column for column in batch.columns}
    for name, by_map in level.by_map.items():
        if name in columns:
            column = columns[name]
            mechanism = by_map[column.map]
            kept = [exhibit.respondent.answers[part] for part in plan.parts(name)]
            table.add_row(
                f"{name}, map {column.map}" if column.map else name,
                ", ".join(map(_in_words, kept)),
                describe(plan.questions[name].domain, mechanism, column.codes),
                f"{mechanism.realised_epsilon:.3f}",
            )
    console.print(
        f"\nWhat one device really sent: {batch.ByteSize()} bytes, at level {level.name!r} "
        f"(epsilon {level.epsilon:g} in all)"
    )
    console.print(table)


def _in_words(answer: Answer) -> str:
    if isinstance(answer, float):
        return f"{answer:g}"
    if isinstance(answer, Mapping):
        return ", ".join(f"{key} {rating:g}" for key, rating in answer.items()) or "none"
    return answer if isinstance(answer, str) else ", ".join(answer) or "none"
