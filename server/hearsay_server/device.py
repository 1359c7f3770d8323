"""`hearsay device`: what a device's ledger says, for its user and for those who help them."""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import hearsay
from hearsay import ledger_file
from hearsay.ledger_file import SurveyFile
from hearsay.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.describe import describe
from hearsay_server.tools import AsJson

app = typer.Typer(help="Make a device's ledger, and look into one.", no_args_is_help=True)

PersonName = Annotated[
    str, typer.Option("--person", help="Whose account, where several people share the device.")
]
LedgerFile = Annotated[Path, typer.Argument(help="The ledger's file.")]
_SHOWN = 20
"""Codes of a batch that are shown."""


@app.command("create")
def create(file: LedgerFile) -> None:
    """Make the ledger of a new installation, vouching that it never had another one."""
    hearsay.create_ledger(file)


@app.command("show")
def show(file: LedgerFile, person: PersonName = "", as_json: AsJson = False) -> None:
    """Show what was spent, what is left, what waits, and what left the device; change nothing."""
    found = content(file, person)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = Console()
    if found["created"]:
        console.print(f"made by itself at {found['created']}: an earlier ledger may have been lost")
    for survey in found["surveys"]:
        _show(survey, console)
    if not found["surveys"]:
        console.print("no survey has been answered or asked for consent")


def content(file: Path, person: str = "") -> dict[str, Any]:
    """Return a ledger's content as plain values; raise `InvalidInput` where it is none."""
    found = ledger_file.read(file, person)
    return {"created": found.created, "surveys": [_survey(each) for each in found.surveys]}


def _survey(found: SurveyFile) -> dict[str, Any]:
    plan = found.plan
    return {
        "survey": found.survey,
        "consent": found.consent,
        "caps": found.caps.as_dict(),
        "revision": plan.revision.hex() if plan else None,
        "latest period": found.period or None,
        "persons": found.people,
        "spent": {
            attribute: [{"epsilon": epsilon, "times": times} for epsilon, times in spent.items()]
            for attribute, spent in found.spent.items()
        },
        "left": found.left,
        "answered": {found.period: list(found.answered)} if found.period else {},
        "counters": found.counters,
        "waiting": [_decoded(plan, batch) for batch in found.waiting],
        "sent": [
            {
                "at": sent.at.isoformat(timespec="seconds"),
                "became": sent.became,
                **_decoded(plan, sent.batch),
            }
            for sent in found.sent
        ],
    }


def _decoded(plan: Plan | None, batch: collector_pb2.Batch) -> dict[str, Any]:
    known = plan if plan is not None and plan.revision == batch.revision else None
    return {
        "id": batch.id.hex() or None,
        "period": batch.period,
        "rows": batch.rows,
        "bytes": batch.ByteSize(),
        "columns": [_column(known, column, batch.rows) for column in batch.columns],
    }


def _column(plan: Plan | None, column: collector_pb2.Column, rows: int) -> dict[str, Any]:
    count = sum(byte.bit_count() for byte in column.present) if column.present else rows
    width = len(column.codes) // count
    codes = [column.codes[i * width : (i + 1) * width] for i in range(min(count, _SHOWN))]
    shown = [code.hex() for code in codes]
    if plan is not None:
        mechanism = plan.level(column.level).mechanisms[column.attribute]
        domain = plan.attributes[column.attribute].domain
        shown = [describe(domain, mechanism, code) for code in codes]
    return {
        "attribute": column.attribute,
        "level": column.level,
        "codes": shown,
        "more": count - len(shown),
    }


def _show(survey: dict[str, Any], console: Console) -> None:
    consent = "granted" if survey["consent"] else "not granted, or revoked"
    console.print(f"\n[bold]{escape(survey['survey'])}[/bold]: consent {consent}")
    revision = (survey["revision"] or "none yet")[:12]
    console.print(f"plan {revision}, last period answered {survey['latest period'] or 'none'}")
    if survey["caps"]:
        console.print(f"the user's caps: {escape(json.dumps(survey['caps']))}")
    if survey["persons"]:
        console.print(f"{survey['persons']} persons share the device; --person shows one's account")
    spent = Table("attribute", "epsilon", "times", "in all", "left of the user's caps")
    for attribute, spendings in survey["spent"].items():
        left = survey["left"].get(attribute)
        for each in spendings:
            total = each["epsilon"] * each["times"]
            row = (f"{each['epsilon']:.6g}", str(each["times"]), f"{total:.6g}")
            spent.add_row(escape(attribute), *row, "no cap" if left is None else f"{left:.6g}")
    if spent.row_count:
        console.print("spent")
        console.print(spent)
    counters = ", ".join(f"{name} {count}" for name, count in survey["counters"].items())
    console.print(f"counted: {counters or 'nothing yet'}")
    for title, batches in (("waiting", survey["waiting"]), ("sent", survey["sent"])):
        table = Table("period", "rows", "bytes", "what it says", "became (UTC)")
        for batch in batches:
            lines = [
                f"{column['attribute']} ({column['level']}): {code}"
                for column in batch["columns"]
                for code in column["codes"]
            ]
            lines += [
                f"{column['attribute']}: and {column['more']} more"
                for column in batch["columns"]
                if column["more"]
            ]
            became = "waits"
            if "became" in batch:
                at = datetime.fromisoformat(batch["at"])
                became = f"{batch['became']}\n{at:%Y-%m-%d}\n{at:%H:%M:%S}"
            row = (batch["period"], str(batch["rows"]), str(batch["bytes"]))
            table.add_row(*row, escape("\n".join(lines)), became)
        console.print(title + (": nothing" if not batches else ""))
        if batches:
            console.print(table)
