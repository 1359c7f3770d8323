"""How many sealed records left the shuffler together: each record hides among those alone.

A mix is counted after its records are stored. Where a process dies in between, they come again,
are known already, and are missing here: what is claimed of a mix is never more than it gives.
"""

import functools
import hashlib
from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.storage import schema
from hearsay_server.storage.database import Database
from hearsay_server.storage.selection import Selected

_mixes, _surveys = schema.mixes, schema.surveys

Kinds = Mapping[tuple[str, bytes, str, bytes], int]
"""How many records there are by survey, revision, period, and what they tell in the clear."""


def told(batch: collector_pb2.Batch) -> bytes:
    """Return what a record tells in the clear as a serialised `Mixed`, in one order."""
    return _told(tuple(sorted((c.attribute, c.level, c.map) for c in batch.columns)))


@functools.lru_cache(256)
def _told(columns: tuple[tuple[str, str, str], ...]) -> bytes:
    answers = [
        analyst_pb2.MixedAnswer(attribute=name, level=level, map=chosen)
        for name, level, chosen in columns
    ]
    return analyst_pb2.Mixed(answers=answers).SerializeToString(deterministic=True)


def count(database: Database, mix: bytes, kinds: Kinds) -> None:
    """Add records of surveys that are here still to a mix.

    It is tried once: where a connection breaks in a commit nobody can tell whether they count, and
    the mix must not have more than there were.
    """
    new = database.insert(_mixes)
    upsert = new.on_conflict_do_update(
        index_elements=list(_mixes.primary_key),
        set_={"records": _mixes.c.records + new.excluded.records},
    )
    with database.changing() as connection:
        here = sa.select(_surveys.c.survey, _surveys.c.revision).where(sa.not_(_surveys.c.deleted))
        known = {(row.survey, bytes(row.revision)) for row in connection.execute(here)}
        rows = [
            {
                "survey": survey,
                "period": period,
                "mix": mix,
                "answers_hash": hashlib.sha256(answers).digest(),
                "answers": answers,
                "records": records,
            }
            for (survey, revision, period, answers), records in sorted(kinds.items())
            if (survey, revision) in known
        ]
        if rows:
            connection.execute(upsert, rows)


def read(database: Database, survey: str, selected: Selected) -> Iterable[analyst_pb2.Mixed]:
    """Return the records of each mix that tell the same, by period, the largest first."""
    query = (
        sa.select(_mixes.c.period, _mixes.c.answers, _mixes.c.records)
        .where(_mixes.c.survey == survey)
        .order_by(_mixes.c.period, _mixes.c.records.desc(), _mixes.c.answers, _mixes.c.mix)
    )
    with database.reading() as connection:
        rows = connection.execute(query).all()
    found = []
    for period, answers, records in rows:
        mixed = analyst_pb2.Mixed.FromString(answers)
        if selected.has(period) and all(a.level in selected.levels for a in mixed.answers):
            mixed.period, mixed.records = period, records
            found.append(mixed)
    return found
