"""The commands that verify, back up, restore and purge stored data, and that end a survey."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hearsay.v1 import admin_pb2
from hearsay_server import config, tabular
from hearsay_server.commands import connect
from hearsay_server.commands.confirming import Yes, confirm
from hearsay_server.commands.connect import DEFAULT_ADDRESS, AsJson, Insecure, Target, Token
from hearsay_server.commands.local import ConfigFile, Data, Url, opened, where
from hearsay_server.printing import Console, say, say_json
from hearsay_server.storage import audit
from hearsay_server.storage import backup as backups
from hearsay_server.storage import retention as retaining
from hearsay_server.storage import verify as verifying
from hearsay_server.storage.verify import Verdict
from ldp import InvalidInput

_TIMEOUT = 600.0
"""Seconds that a survey may take to be deleted."""


def verify(
    data: Data = None, database: Url = None, config_file: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Recount the stored batches and compare with every tally; exit with 1 where one differs.

    Servers may go on meanwhile.
    """
    with opened(data, database, config_file) as found:
        checked = list(verifying.verify(found))
    wrong = [one for one in checked if one.verdict is Verdict.DIFFERS]
    if as_json:
        rows = [{**asdict(one), "verdict": one.verdict.name.lower()} for one in checked]
        say_json(rows)
    else:
        table = Table("survey", "period", "attribute", "level")
        for heading in ("kept", "recounted"):
            table.add_column(heading, justify="right")
        table.add_column("")
        for one in checked:
            attribute = one.attribute or "records"
            numbers = (f"{one.kept:,}", f"{one.recounted:,}")
            said = one.detail or one.verdict.value
            panel = f"panel {one.panel}" if one.panel else ""
            level = ", ".join(filter(None, (one.level, one.map, panel, one.group)))
            table.add_row(one.survey, one.period, attribute, level, *numbers, said)
        tabular.show(table)
        Console().print(f"{len(checked)} checked, {len(wrong)} differ")
    if wrong:
        raise typer.Exit(1)


def backup(
    file: Annotated[Path, typer.Argument(help="Where to; it must not exist.")],
    recipient: Annotated[
        list[str] | None,
        typer.Option(help="Encrypt for this public key, of age or SSH; repeatable."),
    ] = None,
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Copy everything, as it is at one moment, into one file; servers may go on meanwhile."""
    with opened(data, database, config_file) as found:
        backups.backup(found, file, recipient or ())
    say(f"{file} holds {file.stat().st_size:,} bytes")


def restore(
    file: Annotated[Path, typer.Argument(help="A backup, of SQLite or PostgreSQL.")],
    identity: Annotated[
        Path | None, typer.Option(help="The private key of an encrypted one, of age or SSH.")
    ] = None,
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Copy a backup into an empty folder or database."""
    place, keys = where(data, database, config_file)
    backups.restore_into(place, file, identity, keys)
    say(f"{file} is restored")


def retention(
    keep_days: Annotated[
        int | None, typer.Option(help="Drop rows that came longer ago; default: as configured.")
    ] = None,
    data: Data = None,
    database: Url = None,
    config_file: ConfigFile = None,
) -> None:
    """Close ended periods, drop old rows and purge unneeded ids; a server does so every hour.

    Dropped rows cannot be exported, recounted or forgotten any more; they stay in the tallies.
    """
    if keep_days is None:
        keep_days = config.load(config_file).keep_batches_days
    elif keep_days < 1:
        raise InvalidInput(f"--keep-days must be at least 1, got {keep_days}")
    with opened(data, database, config_file) as found:
        now = datetime.now(UTC)
        with found.beside() as connection:
            kept = {"keep_days": keep_days}
            audit.record(connection, "retention", os_user=audit.this_user(), detail=kept)
        retaining.remember(found, now)
        for step in retaining.due(found, now, keep_days):
            while step():
                pass


def close_survey(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey's name.")],
    period: Annotated[str, typer.Option(help="Only its periods up to this one.")] = "",
    yes: Yes = False,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Take no more reports of a survey, for good; its tallies stay."""
    closed = f"the periods of {survey} up to {period}" if period else survey
    confirm(yes, f"Close {closed} for good? Later reports are refused.")
    with connect.connected(context, target, insecure, token) as calls:
        request = admin_pb2.CloseSurveyRequest(survey=survey, period=period)
        calls.call("Admin/CloseSurvey", request, admin_pb2.SurveyStatus, _TIMEOUT)
    say(f"{survey} is closed" + (f" up to {period}" if period else ""))


def delete_survey(
    context: typer.Context,
    survey: Annotated[str, typer.Argument(help="The survey's name.")],
    yes: Yes = False,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Delete a survey with all its reports."""
    confirm(yes, f"Delete {survey} and all its reports, for good?")
    with connect.connected(context, target, insecure, token) as calls:
        request = admin_pb2.DeleteSurveyRequest(survey=survey)
        kind = admin_pb2.DeleteSurveyResponse
        held = calls.call("Admin/DeleteSurvey", request, kind, _TIMEOUT)
    say(f"{survey} is deleted, with {held.records:,} records in {held.batches:,} batches")
