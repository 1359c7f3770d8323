"""Print what mixing by a shuffler gives the records of a sealed survey."""

from collections.abc import Iterator
from dataclasses import asdict

from rich.table import Table

from hearsay.asking.shuffled import TRUST, Cohort, cohorts
from hearsay.plans.sealing import LEAST
from hearsay.v1 import analyst_pb2
from hearsay_server import tabular
from hearsay_server.printing import Console, say_json
from hearsay_server.wrapping import print_wrapped

_ROWS = 40
"""Cohorts that are shown: the ones of the last periods. JSON has all."""


def show(
    answers: Iterator[analyst_pb2.MixesResponse], delta: float, forged: int, as_json: bool
) -> None:
    """Print each cohort's records, its local epsilon, and its epsilon in the shuffler's order.

    Raises `InvalidInput` as `cohorts` does.
    """
    found = cohorts(answers, delta, forged)
    if as_json:
        rows = [_document(cohort) for cohort in found]
        said = {"delta": delta, "forged": forged, "trust": TRUST, "cohorts": rows}
        say_json(said)
        return
    console = Console()
    if not found:
        console.print("there are no records yet")
        return
    table = Table("period", "level", "answers to")
    for heading in ("records", "local", "mixed"):
        table.add_column(heading, justify="right")
    for cohort in found[-_ROWS:]:
        mixed = "no claim" if cohort.shuffled is None else f"{cohort.shuffled:.4g}"
        counted = (f"{cohort.records:,}", f"{cohort.epsilon:.4g}", mixed)
        table.add_row(cohort.period, cohort.level, cohort.attributes, *counted)
    tabular.show(table)
    if len(found) > _ROWS:
        console.print(f"{len(found) - _ROWS:,} earlier cohorts are not shown: --json has all")
    less = f", {forged:,} of each cohort taken for forged" if forged else ""
    print_wrapped(
        "Each line is of records that left the shuffler together. "
        f"epsilon of a whole record: local, and at delta {delta:g} in the shuffler's order{less}. "
        f"Nothing is claimed for fewer than {LEAST:,} honest records, for reports from memos, and "
        "where a report may reveal an answer.",
        console,
    )
    print_wrapped(TRUST, console)


def _document(cohort: Cohort) -> dict[str, object]:
    fields = asdict(cohort)
    fields["answers"] = [
        {"attribute": name, "level": level, "map": chosen} for name, level, chosen in cohort.answers
    ]
    return fields
