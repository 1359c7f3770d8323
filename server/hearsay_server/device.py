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
from hearsay import Caps
from hearsay.ledger import left_for_life, person_key
from hearsay.v1 import collector_pb2
from hearsay_server.describe import describe
from hearsay_server.tools import AsJson
from ldp import InvalidInput

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
    found = read(file, person)
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


def read(file: Path, person: str = "") -> dict[str, Any]:
    """Return a ledger's content as plain values; raise `InvalidInput` where it is none."""
    with _opened(file) as connection:
        settings = dict(connection.execute("SELECT name, value FROM settings"))
        key = person_key(person, settings["salt"])
        rows = connection.execute(
            "SELECT survey, consent, caps, plan, latest FROM surveys ORDER BY survey"
        ).fetchall()
        return {
            "created": settings.get("created"),
            "surveys": [_survey(connection, key, settings.get("life"), *row) for row in rows],
        }


def _survey(
    connection: sqlite3.Connection,
    person: bytes,
    life: float | None,
    name: str,
    consent: int,
    own_caps: str,
    plan: bytes,
    latest: str,
) -> dict[str, Any]:
    parsed = hearsay.plan.parse(plan) if plan else None
    accounts = {
        person: json.loads(account)
        for person, account in connection.execute("SELECT person, account FROM accounts")
    }
    account = accounts.get(person, {})
    mine = account.get(name) or {"period": "", "spent": {}, "life": {}}
    caps = Caps(**json.loads(own_caps), life=life)
    reports = connection.execute(
        "SELECT report FROM reports WHERE survey = ? ORDER BY seq", (name,)
    )
    batches = connection.execute("SELECT batch FROM batches WHERE survey = ? ORDER BY seq", (name,))
    sent = connection.execute(
        "SELECT at, became, batch FROM sent WHERE survey = ? ORDER BY seq", (name,)
    )
    names = parsed.attributes if parsed else mine["life"]
    return {
        "survey": name,
        "consent": bool(consent),
        "caps": caps.as_dict(),
        "revision": parsed.revision.hex() if parsed else None,
        "latest period": latest or None,
        "persons": sum(1 for person, account in accounts.items() if person and name in account),
        "spent": {
            attribute: [
                {"epsilon": float.fromhex(epsilon), "times": times}
                for epsilon, times in by_epsilon.items()
            ]
            for attribute, by_epsilon in mine["life"].items()
        },
        "left": {attribute: left_for_life(account, name, attribute, caps) for attribute in names},
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
