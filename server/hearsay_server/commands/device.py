"""`hearsay device`: make a device's ledger, and show its content to the user and their helpers."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

import hearsay
from hearsay.asking.columns import NO_MAP
from hearsay.plans import presence
from hearsay.plans.plan import Plan
from hearsay.recording import ledger_file
from hearsay.recording.ledger_file import SurveyFile
from hearsay.recording.trainings import Participation
from hearsay.sealed.keys import fingerprint
from hearsay.v1 import collector_pb2
from hearsay_server import tabular
from hearsay_server.commands.connect import AsJson
from hearsay_server.printing import Console, headed, say_json
from hearsay_server.surveys.describe import describe
from hearsay_server.trainings import figures
from hearsay_server.wrapping import print_wrapped
from ldp.planning.composition import DELTA
from ldp.two_servers.account import epsilon_of as split_epsilon

app = typer.Typer(
    help="Make a device's ledger, and look into one.", no_args_is_help=True, add_completion=False
)

PersonName = Annotated[
    str, typer.Option("--person", help="Whose account, where several people share the device.")
]
LedgerFile = Annotated[Path, typer.Argument(help="The ledger's file.")]
_SHOWN = 20
"""Codes of a column that are shown."""

_COUNTED = {
    "recorded": "records queued",
    "stored": "batches that the server stored",
    "duplicate": "batches that the server had stored before",
    "refused": "batches that the server refused",
    "period_closed": "batches that came too late for their period",
    "invalid": "answers outside the domain: a random value was reported",
    "idle": "answers to attributes that were not drawn for their record",
    "spent": "answers dropped: given in the period already, or above a cap",
    "withheld": "answers dropped: the app withholds the attribute",
    "unknown": "answers dropped: the survey has no such attribute",
    "failed": "answers lost by a fault of the SDK",
    "overflow": "reports dropped: the queue was full",
    "revoked": "reports dropped: consent was revoked",
    "lost": "reports dropped: the ledger was an old copy",
}
"""The ledger's counters, in words. Any other name is a `hearsay.Reason`."""


@app.command("create")
def create(file: LedgerFile) -> None:
    """Make the ledger of a new installation, vouching that it never had another one."""
    hearsay.create_ledger(file)


@app.command("show")
def show(file: LedgerFile, person: PersonName = "", as_json: AsJson = False) -> None:
    """Show what was spent and is left, what waits and what was sent; change nothing."""
    found = content(file, person)
    if as_json:
        say_json(found)
        return
    console = Console()
    if found["created"]:
        console.print(f"made by itself at {found['created']}: an earlier ledger may have been lost")
    for survey in found["surveys"]:
        _show(survey, console)
    if not found["surveys"] and not found["trainings"]:
        console.print("no survey has been answered or asked for consent")
    if found["trainings"]:
        _show_trainings(found, console)
    if found["spent"]:
        _show_together(found, console)


def content(file: Path, person: str = "") -> dict[str, Any]:
    """Return a ledger's content as plain values; raise `InvalidInput` where it is none."""
    found = ledger_file.read(file, person)
    spent = [
        epsilon * times
        for survey in found.surveys
        for by_epsilon in survey.spent.values()
        for epsilon, times in by_epsilon.items()
    ]
    return {
        "created": found.created,
        "surveys": [_survey(each) for each in found.surveys],
        "spent": math.fsum(spent),
        "composed": found.composed,
        "split": asdict(found.split),
        "trainings": [
            {"training": name, "consent": consent, **_training(found.participations, name)}
            for name, consent in found.trainings.items()
        ],
        "combined": found.combined,
    }


def _training(spent: Sequence[Participation], name: str) -> dict[str, Any]:
    """Return what was spent on a training; nothing where nobody took part."""
    return next((asdict(each) for each in spent if each.training == name), {})


def _survey(found: SurveyFile) -> dict[str, Any]:
    plan = found.plan
    return {
        "survey": found.survey,
        "consent": found.consent,
        "caps": found.caps.as_dict(),
        "revision": plan.revision.hex() if plan else None,
        "fingerprint": fingerprint(plan.sealing) if plan and plan.sealing else None,
        "helper key": plan.two_servers.helper_key.hex() if plan and plan.two_servers else None,
        "delta": plan.two_servers.delta if plan and plan.two_servers else None,
        "latest period": found.period or None,
        "panel": found.panel or None,
        "persons": found.people,
        "spent": {
            attribute: [{"epsilon": epsilon, "times": times} for epsilon, times in spent.items()]
            for attribute, spent in found.spent.items()
        },
        "composed": found.composed,
        "split": asdict(found.split),
        "left": found.left,
        "maps": {
            attribute: {"chosen": list(used), "protected": found.protected.get(attribute)}
            for attribute, used in found.maps.items()
        },
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
        "panel": batch.panel or None,
        "properties": _properties(known, batch),
        "columns": [_column(known, column, batch.rows) for column in batch.columns],
    }


def _properties(plan: Plan | None, batch: collector_pb2.Batch) -> dict[str, str]:
    """Return the properties in the clear; by their numbers where the plan is not known."""
    names: list[str] = list(plan.properties.by_name) if plan is not None else []
    names = names or [str(number) for number in range(len(batch.properties))]
    return dict(zip(names, batch.properties, strict=True))


_SHARES = "two sealed shares, each random by itself: one for the server, one for its helper"


def _column(plan: Plan | None, column: collector_pb2.Column, rows: int) -> dict[str, Any]:
    count = int(presence.unpack(column.present, rows).sum())
    width = len(column.codes) // count
    codes = [column.codes[i * width : (i + 1) * width] for i in range(min(count, _SHOWN))]
    shown = [{"code": code.hex(), "means": ""} for code in codes]
    if plan is not None and plan.two_servers:
        shown = [{"code": code.hex(), "means": _SHARES} for code in codes]
    elif plan is not None:
        mechanism = plan.mechanism(column.level, column.attribute, column.map)
        domain = plan.questions[column.attribute].domain
        for each, code in zip(shown, codes, strict=True):
            each["means"] = describe(domain, mechanism, code).partition("  ")[2]
    return {
        "attribute": column.attribute,
        "level": column.level,
        "map": column.map,
        "codes": shown,
        "more": count - len(shown),
    }


def _show(survey: dict[str, Any], console: Console) -> None:
    consent = "granted" if survey["consent"] else "not granted, or revoked"
    console.print(headed(f"\n{survey['survey']}", f": consent {consent}"))
    revision = (survey["revision"] or "none yet")[:12]
    console.print(f"plan {revision}, last period answered {survey['latest period'] or 'none'}")
    if survey["fingerprint"]:
        console.print(f"sealed to keys with the fingerprint {survey['fingerprint']}")
    if survey["helper key"]:
        print_wrapped(
            "each record is split between the server and the helper of the key "
            f"{survey['helper key'][:16]}...; epsilon is of sums at delta {survey['delta']:g}, and "
            "holds while one of the two is honest",
            console,
        )
    if survey["panel"]:
        console.print(f"panel {survey['panel']}, which every report is sent with")
    if survey["caps"]:
        console.print(f"the user's caps: {json.dumps(survey['caps'])}")
    if survey["persons"]:
        console.print(f"people besides the device's own user: {survey['persons']} (see --person)")
    spent = Table("attribute")
    for heading in ("epsilon", "times", "in all", f"at delta {DELTA:g}", "left of the user's caps"):
        spent.add_column(heading, justify="right")
    for attribute, spendings in survey["spent"].items():
        left = survey["left"].get(attribute)
        for number, each in enumerate(spendings):
            total = each["epsilon"] * each["times"]
            composed = survey["composed"][attribute]  # of all the rows; 0 of split records
            spent.add_row(
                attribute,
                f"{each['epsilon']:.6g}",
                str(each["times"]),
                f"{total:.6g}",
                f"{composed:.4g}" if composed and not number else "",
                "no cap" if left is None else f"{left:.6g}",
            )
    if spent.row_count:
        console.print("epsilon spent")
        console.print(spent)
    if survey["split"]["epsilon"]:
        print_wrapped(f"Of this, {_split(survey['split'])}", console)
    for attribute, maps in survey["maps"].items():
        chosen = ", ".join(name or NO_MAP for name in maps["chosen"])
        line = f"{attribute} was answered by {chosen}"
        if maps["protected"] is not None:
            line += f", which together protect {', '.join(maps['protected']) or 'no value'}"
        console.print(line, soft_wrap=True)
    counted = Table("counter")
    counted.add_column("count", justify="right")
    counted.add_column("what was counted", overflow="fold")
    for name, count in survey["counters"].items():
        counted.add_row(name, str(count), _COUNTED.get(name, "answers dropped, for this reason"))
    console.print("counted" + ("" if counted.row_count else ": nothing"))
    if counted.row_count:
        tabular.show(counted)
    for title, batches in (("waiting", survey["waiting"]), ("sent", survey["sent"])):
        table = Table()
        for heading in ("period", "rows", "bytes"):
            table.add_column(
                heading, justify="right" if heading != "period" else "left", no_wrap=True
            )
        table.add_column("what it says", overflow="fold")
        table.add_column("became (UTC)", no_wrap=True)
        for batch in batches:
            lines = _in_the_clear(batch)
            lines += [line for column in batch["columns"] for line in _lines(column)]
            became = "waits"
            if "became" in batch:
                at = datetime.fromisoformat(batch["at"])
                became = f"{batch['became']}\n{at:%Y-%m-%d}\n{at:%H:%M:%S}"
            row = (batch["period"], str(batch["rows"]), str(batch["bytes"]))
            table.add_row(*row, "\n".join(lines), became)
        console.print(title + (": nothing" if not batches else ""))
        if batches:
            tabular.show(table)


def _split(spent: dict[str, float]) -> str:
    """Return in words what records that were split between two servers spent."""
    return (
        f"records split between two servers: epsilon {spent['epsilon']:.6g} at delta "
        f"{spent['delta']:.3g}, both added up. It is of sums, and holds against either server "
        "while the other one is honest; nothing protects them from both together."
    )


def _show_together(found: dict[str, Any], console: Console) -> None:
    """Print what all surveys spent: what holds against everybody, and what needs an honest server,
    apart from each other."""
    line = f"\nall surveys together: epsilon {found['spent']:.6g} spent"
    if found["composed"]:
        which = "reports that are not split" if found["split"]["epsilon"] else "reports"
        line += (
            f"; but for a probability of {DELTA:g} the {which} tell no more than epsilon "
            f"{found['composed']:.6g} would"
        )
    console.print(line)
    if found["split"]["epsilon"]:
        print_wrapped(f"Of this, {_split(found['split'])}", console)


_PROTECTS = {
    "central": (
        "rho: spent at the first update, for all of them. It protects from all but the server, and "
        f"only if the server is honest. Its epsilon is at delta {DELTA:g}; hearsay training show "
        f"has it at {figures.DELTA:g} unless told --delta {DELTA:g}."
    ),
    "two_servers": (
        "rho: spent at the first update, for all of them. It protects from either of two servers, "
        f"if the other one is honest. Its epsilon is at delta {DELTA:g}."
    ),
    "local_noise": "epsilon: spent with each update. It holds whoever reads them.",
    "record_level": "records only: single records are protected, and not the person.",
}
"""What a training spends, and who must be honest for it, by its protection."""


def _show_trainings(found: dict[str, Any], console: Console) -> None:
    console.print("\ntrainings")
    table = Table()
    table.add_column("training", overflow="fold")
    table.add_column("consent")
    for heading in ("rounds", "last", "waits"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("spent", no_wrap=True)
    joined = [each for each in found["trainings"] if "used" in each]
    for each in found["trainings"]:
        consent = "yes" if each["consent"] else "no"
        took_part = ["0", "", "", "nothing"]
        if "used" in each:
            took_part = [
                f"{each['used']:,}/{each['participations']:,}",
                f"{each['last_round']:,}",
                str(each["waiting"]),
                _spent(each),
            ]
        table.add_row(each["training"], consent, *took_part)
    tabular.show(table)
    if joined:
        print_wrapped(
            "rounds: taken part in, of the most that the training allows; last: the newest of "
            "them; waits: updates that the server has not stored.",
            console,
        )
    for protection in sorted({each["protection"] for each in joined}):
        print_wrapped(_PROTECTS[protection], console)
    if found["combined"] is not None:
        by_maps = any(
            any(used["chosen"]) for each in found["surveys"] for used in each["maps"].values()
        )
        others = " but those split between two servers" * bool(found["split"]["epsilon"])
        of_maps = "; of answers by maps, of the values that the maps protect" * by_maps
        print_wrapped(
            f"All reports{others}, and all trainings whose server is trusted, together: epsilon "
            f"{found['combined']:.6g} but for a probability of {DELTA:g}, for anything else in "
            f"the place of all that the person gave, if those servers are honest{of_maps}.",
            console,
        )


def _spent(training: dict[str, Any]) -> str:
    """Return what a person has spent on a training, of the ledger's figures."""
    match training["protection"]:
        case "central":
            epsilon = figures.epsilon_of(Fraction(training["rho"]), DELTA)
            return f"rho {training['rho']:.6g} \nepsilon {epsilon:.4g}"
        case "two_servers":
            epsilon = split_epsilon(Fraction(training["rho"]), DELTA)
            return f"rho {training['rho']:.6g} \nepsilon {epsilon:.4g}"
        case "local_noise":
            return f"epsilon {training['epsilon']:.6g}"
        case _:
            return "records only"


def _in_the_clear(batch: dict[str, Any]) -> list[str]:
    """Return what a batch tells of the device besides codes."""
    told = [f"panel {batch['panel']}"] if batch["panel"] else []
    told += [f"{name} {value or 'not given'}" for name, value in batch["properties"].items()]
    return [", ".join(told)] if told else []


def _lines(column: dict[str, Any]) -> list[str]:
    by_map = f", map {column['map']}" if column["map"] else ""
    lines = [f"{column['attribute']} ({column['level']}{by_map})"]
    for each in column["codes"]:
        code = each["code"]
        short = code if len(code) <= 16 else f"{code[:16]}..."
        lines.append(f"  {short}  {each['means']}".rstrip())
    if column["more"]:
        lines.append(f"  and {column['more']} more")
    return lines
