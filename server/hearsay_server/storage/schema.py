"""The tables, as the newest migration leaves them; `migrations` says how they came to be."""

from typing import Any

import sqlalchemy as sa


class Name(sa.types.TypeDecorator[str]):
    """The type of columns with names of surveys, attributes, levels and periods.

    Replaces NUL: PostgreSQL takes none, not even in a query for a name that does not exist.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        return value and value.replace("\0", "\ufffd")


metadata = sa.MetaData()

surveys = sa.Table(
    "surveys",
    metadata,
    sa.Column("survey", Name, primary_key=True),
    sa.Column("revision", sa.LargeBinary, nullable=False),
    sa.Column("plan", sa.LargeBinary, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),  # of its periods, as in its plan
    # Periods that end by this moment, in seconds since 1970, are closed. It never goes back.
    sa.Column("closed_before", sa.BigInteger, nullable=False),
    sa.Column("deleted", sa.Boolean, nullable=False),  # its data is on its way out
    sa.Column("page", sa.LargeBinary),  # a serialised Page; null where nothing is public
)

# A row remembers the id of a batch, which tells it from others of its survey and period. A row
# without its batch stands for a batch that was counted and then dropped, or, with no rows, for a
# batch that was forgotten before or after it came. SQLite would number rows as they come, and so
# tell which came together; here their ids, drawn at random, are all their order within a period.
# The key finds duplicates and reads a period in pages: a further index would be a further page of
# the disk to write for every batch.
batches = sa.Table(
    "batches",
    metadata,
    sa.Column("survey", Name, primary_key=True),
    sa.Column("period", Name, primary_key=True),
    sa.Column("id", sa.LargeBinary, primary_key=True),
    sa.Column("ends", sa.BigInteger, nullable=False),  # the period, in seconds since 1970
    sa.Column("day", sa.BigInteger, nullable=False),  # of arrival, since 1970; no finer on purpose
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("batch", sa.LargeBinary),
    sqlite_with_rowid=False,
)
BATCH = [batches.c.survey, batches.c.period, batches.c.id]
"""What tells one batch from another: see `hearsay_server.ingest.judge.Key`."""

THIS = [column == sa.bindparam(f"_{column.name}") for column in BATCH]
"""The conditions of the batch with one key, in whose order its parameters go.

A tuple that is in a list of several has SQLite read the whole table, not its index.
"""


def key(row: sa.Row[Any]) -> dict[str, object]:
    """Return the parameters of `THIS` for a row of batches."""
    return {f"_{column.name}": getattr(row, column.name) for column in BATCH}


sa.Index(
    "batches_without_content",
    batches.c.survey,
    batches.c.ends,
    batches.c.rows,
    sqlite_where=batches.c.batch.is_(None),
    postgresql_where=batches.c.batch.is_(None),
)
sa.Index(
    "batches_with_content",
    batches.c.day,
    sqlite_where=batches.c.batch.is_not(None),
    postgresql_where=batches.c.batch.is_not(None),
)

# A period's counts are the sums over writers: each has rows of its own, so none waits for another.
# There are no foreign keys: their checks would write to one survey's row in every transaction.
counts = sa.Table(
    "counts",
    metadata,
    sa.Column("survey", Name, primary_key=True),
    sa.Column("period", Name, primary_key=True),
    sa.Column("writer", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("batches", sa.BigInteger, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("dropped", sa.BigInteger, nullable=False),  # batches counted, no longer stored
)

tallies = sa.Table(
    "tallies",
    metadata,
    sa.Column("survey", Name, primary_key=True),
    sa.Column("revision", sa.LargeBinary, primary_key=True),
    sa.Column("attribute", Name, primary_key=True),
    sa.Column("level", Name, primary_key=True),
    sa.Column("period", Name, primary_key=True),
    sa.Column("map", Name, primary_key=True),  # "" where none was chosen
    sa.Column("panel", sa.BigInteger, primary_key=True, autoincrement=False),  # 0: no panels
    sa.Column("group", Name, primary_key=True),  # of properties; "" where there are none
    sa.Column("writer", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("tally", sa.LargeBinary, nullable=False),
)

# The hash of each token, with its role, which decides the services that it may call.
tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("hash", sa.LargeBinary, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, index=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),  # seconds since 1970, as `expires`
    sa.Column("expires", sa.Float, nullable=True),
    sa.Column("revoked", sa.Float, nullable=True),
    # The day of its last use, since 1970; no finer on purpose, and never of a device's token.
    sa.Column("used", sa.BigInteger, nullable=True),
)

# Sessions of the pages: each lets in whoever has its secret, as the token it was begun with does.
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("hash", sa.LargeBinary, primary_key=True),  # of the secret
    sa.Column("token", sa.LargeBinary, nullable=False, index=True),  # its hash
    sa.Column("expires", sa.Float, nullable=False),  # seconds since 1970
)

# Who did what; triggers refuse to change or delete a row.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.LargeBinary, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),  # seconds since 1970
    sa.Column("token", sa.Text, nullable=False),  # its id
    sa.Column("os_user", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("survey", Name, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),  # JSON
)

# The rows that each device token sent, where they are limited, and how many ids it had barred that
# never came; "" stands for all callers without a token.
token_rows = sa.Table(
    "token_rows",
    metadata,
    sa.Column("token", sa.Text, primary_key=True),  # its id
    sa.Column("survey", Name, primary_key=True),
    sa.Column("period", Name, primary_key=True),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("barred", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
sa.Index("token_rows_by_period", token_rows.c.survey, token_rows.c.period)

# Trainings, which take names from the same space as surveys.
trainings = sa.Table(
    "trainings",
    metadata,
    sa.Column("training", Name, primary_key=True),
    sa.Column("revision", sa.LargeBinary, nullable=False),
    sa.Column("declared", sa.LargeBinary, nullable=False),  # a serialised Training
    sa.Column("created", sa.BigInteger, nullable=False),  # seconds since 1970, as all times below
    sa.Column("state", sa.Text, nullable=False),  # "running", "ended", "closed" or "deleted"
    sa.Column("round", sa.BigInteger, nullable=False),  # the newest
    sa.Column("trouble", sa.Text, nullable=False),  # why it does not go on; "" where it does
)

# What the noise of a central training is drawn from, or what opens this server's shares of updates
# that are split between two. A row of its own is never read along with
# others; it is deleted when its training is over, and no backup has it.
seeds = sa.Table(
    "seeds",
    metadata,
    sa.Column("training", Name, primary_key=True),
    sa.Column("seed", sa.LargeBinary, nullable=False),
)

rounds = sa.Table(
    "rounds",
    metadata,
    sa.Column("training", Name, primary_key=True),
    sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("state", sa.Text, nullable=False),  # "open", "closed", "aggregated" or "dropped"
    sa.Column("model", sa.LargeBinary, nullable=False),  # that its updates are to
    sa.Column("result", sa.LargeBinary),  # the model that it made
    sa.Column("opened", sa.BigInteger, nullable=False),
    sa.Column("deadline", sa.BigInteger, nullable=False),
    sa.Column("closed", sa.BigInteger, nullable=False),  # 0: not yet
    sa.Column("updates", sa.BigInteger, nullable=False),  # that are counted
    sa.Column("bytes", sa.BigInteger, nullable=False),  # of them
    # The optimizer's state after the newest round that made a model, and None in all others.
    sa.Column("optimizer", sa.LargeBinary),
)

NEWEST = sa.and_(rounds.c.training == trainings.c.training, rounds.c.round == trainings.c.round)
"""The condition of a training's newest round."""

# The ids of updates. A counted one stays, so that it is told from a new one when it comes again;
# its parts go with its round. One that is not whole yet goes when its round closes.
updates = sa.Table(
    "updates",
    metadata,
    sa.Column("training", Name, primary_key=True),
    sa.Column("id", sa.LargeBinary, primary_key=True),
    sa.Column("round", sa.BigInteger, nullable=False),
    sa.Column("counted", sa.Boolean, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False),  # bytes
    sa.Column("caller", sa.Text, nullable=False),  # the id of its token, "" once it is counted
    sqlite_with_rowid=False,
)
sa.Index("updates_by_round", updates.c.training, updates.c.round, updates.c.counted)

# The key that the parts of a training's newest round are encrypted with. It is deleted in the
# transaction that ends the round.
round_keys = sa.Table(
    "round_keys",
    metadata,
    sa.Column("training", Name, primary_key=True),
    sa.Column("key", sa.LargeBinary, nullable=False),
)

# Encrypted parts of updates: see `sealing`. Those of rounds that are over are deleted soon.
update_parts = sa.Table(
    "update_parts",
    metadata,
    sa.Column("training", Name, primary_key=True),
    sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("id", sa.LargeBinary, primary_key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# Models by SHA-256; of the training "" where a first one was uploaded and its training not created.
models = sa.Table(
    "models",
    metadata,
    sa.Column("training", Name, primary_key=True),
    sa.Column("model", sa.LargeBinary, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False),  # bytes
    sa.Column("created", sa.BigInteger, nullable=False),
)

model_parts = sa.Table(
    "model_parts",
    metadata,
    sa.Column("training", Name, primary_key=True),
    sa.Column("model", sa.LargeBinary, primary_key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

# The private halves of the keys in plans whose records are sealed; each is deleted once its periods
# are over and closed.
sealing_keys = sa.Table(
    "sealing_keys",
    metadata,
    sa.Column("survey", Name, primary_key=True),
    sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("private", sa.LargeBinary, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),  # its last period's end, since 1970
)

# Sums of records that are split between two servers. A set is first claimed, with our own sum and
# its ids, and its records are dropped; the helper's sum then completes it, asked once or again.
sums = sa.Table(
    "sums",
    metadata,
    sa.Column("survey", Name, primary_key=True),
    sa.Column("period", Name, primary_key=True),
    sa.Column("ids_hash", sa.LargeBinary, primary_key=True),  # SHA-256 of the ids
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("ids", sa.LargeBinary),  # rising, as the helper is asked; null once it is complete
    sa.Column("own", sa.LargeBinary),  # the sum of our shares; null once it is complete
    sa.Column("total", sa.LargeBinary),  # the sum of the records, as 64-bit integers; null before
    sqlite_with_rowid=False,
)

# How many records left the shuffler in one mix, were stored, and tell the same in the clear.
mixes = sa.Table(
    "mixes",
    metadata,
    sa.Column("survey", Name, primary_key=True),
    sa.Column("period", Name, primary_key=True),
    sa.Column("mix", sa.LargeBinary, primary_key=True),
    sa.Column("answers_hash", sa.LargeBinary, primary_key=True),  # SHA-256 of the answers
    sa.Column("answers", sa.LargeBinary, nullable=False),  # a serialised Mixed, of answers alone
    sa.Column("records", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# When contents were last dropped and periods closed by the clock: one row, in seconds since 1970.
sweeps = sa.Table("sweeps", metadata, sa.Column("at", sa.BigInteger, nullable=False))

# Rows that servers write to test whether the database can be written.
probes = sa.Table(
    "probes",
    metadata,
    sa.Column("server", sa.Text, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),  # seconds since 1970
    sa.Column("filler", sa.LargeBinary, nullable=False),
)

PASSING = (sweeps, probes, seeds, round_keys, update_parts, sessions)
"""Tables that backups leave out: of passing state, and what must not outlive a round or training.

A copy of a seed takes the noise out of every model that was published.
"""
