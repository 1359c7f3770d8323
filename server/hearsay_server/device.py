"""`hearsay device`: what a device's ledger says, for its user and for those who help them."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import hearsay
import hearsay.plan
from hearsay.v1 import collector_pb2
from hearsay_server.describe import describe
from hearsay_server.tools import AsJson
from ldp import InvalidInput

app = typer.Typer(help="Make a device's ledger, and look into one.", no_args_is_help=True)

LedgerFile = Annotated[Path, typer.Argument(help="The ledger's file.")]
_SHOWN = 20
"""Codes of a batch that are shown."""


@app.command("create")
def create(file: LedgerFile) -> None:
    """Make the ledger of a new installation, vouching that it never had another one."""
    hearsay.create_ledger(file)


@app.command("show")
def show(file: LedgerFile, as_json: AsJson = False) -> None:
    """Show what was spent, what waits, and what left the device; change nothing."""
    found = read(file)
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


def read(file: Path) -> dict[str, Any]:
    """Return a ledger's content as plain values; raise `InvalidInput` where it is none."""
    with _opened(file) as connection:
        created = connection.execute("SELECT value FROM settings WHERE name = 'created'").fetchone()
        rows = connection.execute(
            "SELECT survey, consent, caps, plan, latest FROM surveys ORDER BY survey"
        ).fetchall()
        return {
            "created": created[0] if created else None,
            "surveys": [_survey(connection, *row) for row in rows],
        }


def _survey(
    connection: sqlite3.Connection, name: str, consent: int, caps: str, plan: bytes, latest: str
) -> dict[str, Any]:
    parsed = hearsay.plan.parse(plan) if plan else None
    accounts = {
        person: json.loads(account).get(name)
        for person, account in connection.execute("SELECT person, account FROM accounts")
    }
    mine = accounts.get(b"") or {"period": "", "spent": {}, "life": {}}
    life = connection.execute("SELECT value FROM settings WHERE name = 'life'").fetchone()
    reports = connection.execute(
        "SELECT report FROM reports WHERE survey = ? ORDER BY seq", (name,)
    )
    batches = connection.execute("SELECT batch FROM batches WHERE survey = ? ORDER BY seq", (name,))
    sent = connection.execute(
        "SELECT at, became, batch FROM sent WHERE survey = ? ORDER BY seq", (name,)
    )
    return {
        "survey": name,
        "consent": bool(consent),
        "caps": json.loads(caps) | ({"life": life[0]} if life else {}),
        "revision": parsed.revision.hex() if parsed else None,
        "latest period": latest or None,
        "persons": sum(1 for person, account in accounts.items() if person and account),
        "spent": {
            attribute: [
                {"epsilon": float.fromhex(epsilon), "times": times}
                for epsilon, times in by_epsilon.items()
            ]
            for attribute, by_epsilon in mine["life"].items()
        },
        "answered": {mine["period"]: list(mine["spent"])} if mine["period"] else {},
        "counters": dict(
            connection.execute(
                "SELECT name, count FROM counters WHERE survey = ? ORDER BY name", (name,)
            )
        ),
        "waiting": [_decoded(parsed, data) for (data,) in [*batches, *reports]],
        "sent": [
            {
                "at": datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
                "became": became,
                **_decoded(parsed, data),
            }
            for at, became, data in sent
        ],
    }


def _decoded(plan: hearsay.plan.Plan | None, data: bytes) -> dict[str, Any]:
    batch = collector_pb2.Batch.FromString(data)
    known = plan if plan is not None and plan.revision == batch.revision else None
    return {
        "id": batch.id.hex() or None,
        "period": batch.period,
        "rows": batch.rows,
        "bytes": batch.ByteSize(),
        "columns": [_column(known, column, batch.rows) for column in batch.columns],
    }


def _column(
    plan: hearsay.plan.Plan | None, column: collector_pb2.Column, rows: int
) -> dict[str, Any]:
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


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    if not file.is_file():
        raise InvalidInput(f"there is no file {file}")
    try:
        with contextlib.closing(
            sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        ) as connection:
            connection.execute("SELECT 1 FROM accounts LIMIT 1")
            yield connection
    except sqlite3.DatabaseError as error:
        raise InvalidInput(f"{file} is no ledger that can be read: {error}") from None


def _show(survey: dict[str, Any], console: Console) -> None:
    consent = "granted" if survey["consent"] else "not granted, or revoked"
    console.print(f"\n[bold]{escape(survey['survey'])}[/bold]: consent {consent}")
    revision = (survey["revision"] or "none yet")[:12]
    console.print(f"plan {revision}, last period answered {survey['latest period'] or 'none'}")
    if survey["caps"]:
        console.print(f"the user's caps: {escape(json.dumps(survey['caps']))}")
    if survey["persons"]:
        console.print(f"{survey['persons']} persons share the device; below is its own account")
    spent = Table("attribute", "epsilon", "times", "in all")
    for attribute, spendings in survey["spent"].items():
        for each in spendings:
            total = each["epsilon"] * each["times"]
            row = (f"{each['epsilon']:.6g}", str(each["times"]), f"{total:.6g}")
            spent.add_row(escape(attribute), *row)
    if spent.row_count:
        console.print("spent")
        console.print(spent)
    counters = ", ".join(f"{name} {count}" for name, count in survey["counters"].items())
    console.print(f"counted: {counters or 'nothing yet'}")
    for title, batches in (("waiting", survey["waiting"]), ("sent", survey["sent"])):
        table = Table("period", "rows", "bytes", "what it says", "became")
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
            became = f"{batch['became']} {batch['at']}" if "became" in batch else "waits"
            row = (batch["period"], str(batch["rows"]), str(batch["bytes"]))
            table.add_row(*row, escape("\n".join(lines)), became)
        console.print(title + (": nothing" if not batches else ""))
        if batches:
            console.print(table)
