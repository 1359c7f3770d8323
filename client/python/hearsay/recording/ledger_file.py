"""Read a device's file without changing it: spent epsilon, waiting reports, sent batches."""

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearsay.choices import Caps
from hearsay.plans.plan import Plan, parse
from hearsay.recording.account import Account, SplitSpent
from hearsay.recording.ledger import person_key
from hearsay.recording.outbox import Sent
from hearsay.recording.trainings import (
    Participation,
    combined,
    is_training,
    participations,
    training_of,
)
from hearsay.storage.schema import APPLICATION, VERSION
from hearsay.v1 import collector_pb2
from ldp.errors import InvalidInput, StorageFailed
from ldp.planning.composition import DELTA

Batch = collector_pb2.Batch


@dataclass(frozen=True)
class SurveyFile:
    """The file's content about one survey and person.

    `caps` are the person's own, the caps for life included; `people` is how many accounts others
    than the device's own user have; `spent` maps attributes to how many times each epsilon was
    spent; `composed` to the epsilon of all these together but for a probability of 1e-6
    (`Spending.composed`), without records that were split between two servers, which `split` tells
    (`Spending.split`); `left` is the epsilon that the person's caps for life leave, None without
    one; `maps` the maps that reports were made by, "" for none, by attribute that has maps, and
    `protected` the values that all of these protected then, of attributes that the plan has;
    `answered` the attributes reported in the latest `period`; `waiting` the queued batches and
    reports. `panel` is the person's panel, which each report is sent with; 0 without panels.
    """

    survey: str
    plan: Plan | None
    consent: bool
    caps: Caps
    people: int
    period: str
    answered: tuple[str, ...]
    spent: dict[str, dict[float, int]]
    composed: dict[str, float]
    split: SplitSpent
    left: dict[str, float | None]
    counters: dict[str, int]
    waiting: tuple[Batch, ...]
    sent: tuple[Sent, ...]
    maps: dict[str, tuple[str, ...]]
    protected: dict[str, tuple[str, ...]]
    panel: int


@dataclass(frozen=True)
class LedgerFile:
    """A file's content: when it was made, where nobody vouched that it is the first (None:
    somebody did), its surveys by name, and the epsilon of all that the person reported to all of
    them but for a probability of 1e-6, without records that were split between two servers, which
    `split` tells; what they spent on trainings, and whether they consent to
    each that the file knows; and one epsilon of these reports and all trainings
    (`trainings.combined`),
    None where the file knows no participation in a training."""

    created: str | None
    surveys: tuple[SurveyFile, ...]
    composed: float
    split: SplitSpent
    participations: tuple[Participation, ...] = ()
    trainings: Mapping[str, bool] = field(default_factory=dict)
    combined: float | None = None


def read(file: Path, person: str = "") -> LedgerFile:
    """Return a file's content about one person ("" is the device's own user).

    Raises `InvalidInput` where it is no ledger, or does not know the person, and `StorageFailed`
    where it cannot be read, is damaged, or is of another schema.
    """
    with _opened(file) as connection:
        settings = dict(connection.execute("SELECT name, value FROM settings"))
        key = person_key(person, settings["salt"])
        _check_known(connection, person, key)
        names = connection.execute(
            "SELECT survey FROM surveys UNION SELECT survey FROM people ORDER BY survey"
        ).fetchall()
        surveys = tuple(
            _survey(connection, name, key) for (name,) in names if not is_training(name)
        )
        consents = connection.execute(
            "SELECT survey, consent FROM people WHERE person = ? ORDER BY survey", (key,)
        ).fetchall()
        account = Account(_stored(connection, key)[0], "")
        spent = tuple(participations(connection, key))
        return LedgerFile(
            created=settings.get("created"),
            surveys=surveys,
            composed=account.composed(),
            split=account.split(),
            participations=spent,
            trainings={
                training_of(name): bool(given) for name, given in consents if is_training(name)
            },
            combined=combined(account, spent, DELTA) if spent else None,
        )


def _check_known(connection: sqlite3.Connection, person: str, key: bytes) -> None:
    known = {
        found
        for (found,) in connection.execute(
            "SELECT person FROM people UNION SELECT person FROM accounts"
        )
    }
    if key and key not in known:
        raise InvalidInput(
            f"the ledger knows no person {person!r}; it keeps names as hashes only, so it cannot "
            f"list them. People that it knows, besides the device's own user: {len(known - {b''})}"
        )


def _survey(connection: sqlite3.Connection, name: str, person: bytes) -> SurveyFile:
    def all_of(what: str, *given: object) -> list[Any]:
        return connection.execute(what, (name, *given)).fetchall()

    plans = all_of("SELECT plan FROM surveys WHERE survey = ?")
    plan = parse(plans[0][0]) if plans and plans[0][0] else None
    people = all_of("SELECT consent, caps FROM people WHERE survey = ? AND person = ?", person)
    consent, own = people[0] if people else (0, "{}")
    stored = _stored(connection, person)
    account = Account(stored[0], name)
    caps = Caps(**{**json.loads(own), **json.loads(stored[1])})
    (others,) = all_of(
        "SELECT count(*) FROM accounts, json_each(account) WHERE key = ? AND person != x''"
    )
    period, answered = account.current
    reports = all_of("SELECT report FROM reports WHERE survey = ? ORDER BY seq")
    batches = all_of("SELECT batch FROM batches WHERE survey = ? ORDER BY seq")
    return SurveyFile(
        survey=name,
        plan=plan,
        consent=bool(consent),
        caps=caps,
        people=others[0],
        period=period,
        answered=tuple(answered),
        spent={
            attribute: {float.fromhex(epsilon): times for epsilon, times in by_epsilon.items()}
            for attribute, by_epsilon in account.life.items()
        },
        composed={attribute: account.composed([attribute]) for attribute in account.life},
        split=account.split(account.life),
        left={
            question: _left(account, plan, question, caps)
            for question in {**(plan.questions if plan else {}), **account.life}
        },
        maps={attribute: tuple(used) for attribute, used in account.maps.items()},
        protected={
            attribute: account.protected(attribute, plan.attributes[attribute].domain)
            for attribute in account.maps
            if plan and attribute in plan.attributes
        },
        panel=account.panel_of(plan) if plan else 0,
        counters=dict(all_of("SELECT name, count FROM counters WHERE survey = ? ORDER BY name")),
        waiting=tuple(Batch.FromString(data) for (data,) in [*batches, *reports]),
        sent=tuple(
            Sent(datetime.fromtimestamp(at, UTC), became, Batch.FromString(data))
            for at, became, data in all_of(
                "SELECT at, became, batch FROM sent WHERE survey = ? ORDER BY seq"
            )
        ),
    )


def _stored(connection: sqlite3.Connection, person: bytes) -> tuple[str, str]:
    """Return a person's accounts and caps for life, as they are kept."""
    found: tuple[str, str] | None = connection.execute(
        "SELECT account, caps FROM accounts WHERE person = ?", (person,)
    ).fetchone()
    return found or ("{}", "{}")


def _left(account: Account, plan: Plan | None, question: str, caps: Caps) -> float | None:
    """Return the epsilon that caps leave a question: the least of its attributes'."""
    asked = plan.parts(question) if plan and question in plan.questions else ()
    parts = {*asked, *account.parts(question)}
    each = [account.left(part, (caps,)) for part in parts]
    return min((left for left in each if left is not None), default=None)


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[Path]:
    """Yield a file that SQLite can open without leaving a log or an index beside the ledger.

    Both exist while a process uses the ledger, or after it was killed: then the ledger itself is
    yielded. Otherwise SQLite would make them, and a connection that only reads does not remove
    them: then a temporary copy is yielded.
    """
    log, index = Path(f"{file}-wal"), Path(f"{file}-shm")
    if log.exists() and index.exists():
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "ledger")
        shutil.copyfile(file, copy)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(log, f"{copy}-wal")
        yield copy


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    if not file.is_file():
        raise InvalidInput(f"there is no file {file}")
    try:
        with (
            _readable(file.resolve()) as path,
            contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection,
        ):
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION:
                raise InvalidInput(f"{file} is no ledger")
            if version != VERSION:
                raise StorageFailed(
                    f"{file} has schema {version}; this version reads schema {VERSION}"
                )
            yield connection
    except sqlite3.DatabaseError as error:
        raise StorageFailed(f"{file} is no ledger that can be read: {error}") from None
    except OSError as error:
        raise StorageFailed(f"cannot read {file}: {error}") from None
