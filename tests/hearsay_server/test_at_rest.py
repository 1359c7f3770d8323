"""Key material at rest: with a key that lies elsewhere, the folder of a server opens nothing."""

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sa
import trained
from command import hearsay
from sealing import SEALED, Sealed
from serving import create, serving, tokens_of
from stored import NOW

from hearsay.plans.plan import Plan, parse
from hearsay.v1 import collector_pb2
from hearsay_server import at_rest
from hearsay_server.at_rest import NOT_ENCRYPTED, AtRest, KeyLost
from hearsay_server.config import Config
from hearsay_server.helper.held import Shares, look
from hearsay_server.serving.serve import running
from hearsay_server.shuffler.pools import Pools
from hearsay_server.storage import key_material, rounds, schema, sealing, sealing_keys, verify
from hearsay_server.storage.backup import backup, restore, restore_into
from hearsay_server.storage.database import Database, open_folder
from hearsay_server.storage.store import Store
from hearsay_server.surveys import sealing as sealed_surveys
from hearsay_server.surveys import survey as surveys
from ldp.errors import InvalidInput, StorageFailed
from support import Calendar

KEYS, OTHERS = (AtRest((secrets.token_bytes(32),)) for _ in range(2))

SECRETS = {"sealing_keys": "private", "seeds": "seed", "round_keys": "key"}
"""The columns of key material, by table."""


def fill(store: Store) -> tuple[Plan, list[bytes]]:
    """Register a survey that is sealed and a training with a seed; return the survey's plan and
    each secret."""
    made = sealed_surveys.with_keys(
        surveys.resolve(surveys.from_toml(SEALED, "test.toml")), int(NOW.timestamp())
    )
    plan = parse(made.plan)
    store.create_survey(plan.survey, plan.revision, made.plan, privates=made.privates)
    trained.register(store.database, trained.declared("central"))
    return plan, [*made.privates, trained.SEED, round_key(store.database)]


def round_key(database: Database) -> bytes:
    with database.reading() as connection:
        return sealing.key(connection, "digits")


def opened(store: Store, plan: Plan) -> list[bytes]:
    """Return each secret, as the server reads it."""
    privates = sealing_keys.Keys(store.database).of(plan)
    found = [privates[place].private_bytes_raw() for place in sorted(privates)]
    training = trained.parse(trained.declared("central"))
    trained.send(store.database, training, 1, 2, 3)  # which closes the round
    work = rounds.work(store.database, training, 1)
    assert work is not None
    assert len(list(rounds.payloads(store.database, training, 1))) == 3
    return [*found, work.seed or b"", round_key(store.database)]


def stored(database: Database) -> list[bytes]:
    """Return key material as it is stored."""
    with database.reading() as connection:
        return [
            bytes(value)
            for table, column in SECRETS.items()
            for value in connection.scalars(sa.select(schema.metadata.tables[table].c[column]))
        ]


def lying_open(folder: Path, some: list[bytes]) -> list[bytes]:
    """Return those of some secrets that an attacker finds in the files of a folder."""
    content = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    return [each for each in some if each in content or each.hex().encode() in content]


@pytest.fixture
def store(where: Path | str) -> Iterator[Store]:
    """A store whose key material is encrypted, on SQLite and on PostgreSQL."""
    made = Store(where, KEYS)
    yield made
    made.close()


def test_every_column_of_secrets_is_encrypted() -> None:
    """A new table of keys must not be forgotten: name it here, and in `key_material`."""
    named = {
        f"{table.name}.{column.name}"
        for table in schema.metadata.sorted_tables
        for column in table.columns
        if any(
            word in f"{table.name}.{column.name}" for word in ("private", "seed", ".key", "secr")
        )
        and isinstance(column.type, sa.LargeBinary)
    }
    assert named == {str(column) for column in key_material._COLUMNS}
    assert named == {f"{table}.{column}" for table, column in SECRETS.items()}


def test_secrets_are_stored_encrypted_and_read_as_they_were(store: Store) -> None:
    plan, some = fill(store)
    assert not {*some} & {*stored(store.database)}
    assert all(KEYS.is_current(each) for each in stored(store.database))
    assert key_material.encrypt(store.database) == []
    assert opened(store, plan) == some


def test_an_attacker_finds_no_secret_in_the_folder_and_finds_them_without_a_key(
    tmp_path: Path,
) -> None:
    for name, keys in (("open", NOT_ENCRYPTED), ("encrypted", KEYS)):
        store = Store(tmp_path / name, keys)
        _, some = fill(store)
        found = lying_open(tmp_path / name, some)
        store.close()
        assert found == lying_open(tmp_path / name, some)
        assert found == ([] if keys.keys else some)


def test_what_is_stored_open_is_encrypted_at_the_next_start(where: Path | str) -> None:
    """As of an earlier version."""
    store = Store(where)
    plan, some = fill(store)
    store.close()
    again = Store(where, KEYS)
    assert key_material.encrypt(again.database) == []
    assert all(KEYS.is_current(each) for each in stored(again.database))
    if isinstance(where, Path):
        assert lying_open(where, some) == []
    assert opened(again, plan) == some
    again.close()


def test_a_key_is_changed_by_a_new_first_line(where: Path | str) -> None:
    store = Store(where, KEYS)
    plan, some = fill(store)
    store.close()
    both = Store(where, AtRest((*OTHERS.keys, *KEYS.keys)))
    assert key_material.encrypt(both.database) == []
    both.close()
    changed = Store(where, OTHERS)
    assert opened(changed, plan) == some
    changed.close()


def test_a_key_that_is_lost_is_said_with_what_is_lost(where: Path | str) -> None:
    store = Store(where, KEYS)
    plan, _ = fill(store)
    store.close()
    none = Store(where)
    before = stored(none.database)
    with pytest.raises(InvalidInput) as refused:
        key_material.encrypt(none.database)
    lost = [
        "the sealing keys of 'daily': no record sealed to them can be opened",
        "the seed of 'digits': its rounds make no model",
        "the key of the newest round of 'digits': its updates cannot be read",
    ]
    for each in ("encryption_key is not set", *lost):
        assert each in str(refused.value)
    none.close()
    other = Store(where, OTHERS)
    assert key_material.encrypt(other.database) == lost
    assert stored(other.database) == before
    needed = at_rest.key_id(KEYS.keys[0]).hex()
    with pytest.raises(
        KeyLost, match=f"under the key {needed}, which encryption_key does not hold"
    ):
        sealing_keys.Keys(other.database).of(plan)
    with pytest.raises(KeyLost, match=r"round_keys\.key of 'digits'"):
        round_key(other.database)
    other.close()


def test_verify_tells_a_lost_key_from_damage(tmp_path: Path) -> None:
    store = Store(tmp_path, KEYS)
    training = trained.register(store.database)
    trained.send(store.database, training, 1)
    store.close()
    other = open_folder(tmp_path, OTHERS)
    with pytest.raises(KeyLost):
        list(verify.verify(other))
    other.close()


def test_no_secret_can_stand_in_anothers_place(store: Store) -> None:
    plan, _ = fill(store)
    table = schema.sealing_keys
    with store.database.changing() as connection:
        first, second = connection.scalars(
            sa.select(table.c.private).order_by(table.c.place)
        ).all()[:2]
        for place, private in ((0, second), (1, first)):
            this = sa.update(table).where(table.c.place == place)
            connection.execute(this.values(private=private))
    with pytest.raises(StorageFailed, match="private of 'daily' '0' is damaged, or not the one of"):
        sealing_keys.Keys(store.database).of(plan)


def test_no_changed_bit_is_taken() -> None:
    sealed = KEYS.seal(b"s" * 32, "seeds.seed", "digits")
    for place in range(8, len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(StorageFailed):
            KEYS.opened(bytes(changed), "seeds.seed", "digits")
    for length in range(8, len(sealed)):
        with pytest.raises(StorageFailed):
            KEYS.opened(sealed[:length], "seeds.seed", "digits")
    assert KEYS.opened(sealed, "seeds.seed", "digits") == b"s" * 32
    assert sealed != KEYS.seal(b"s" * 32, "seeds.seed", "digits")


def test_a_backup_has_keys_as_they_are_stored_and_is_restored_with_their_key(
    store: Store, tmp_path: Path
) -> None:
    plan, some = fill(store)
    backup(store.database, tmp_path / "backup")
    content = (tmp_path / "backup").read_bytes()
    assert not [each for each in some if each in content]
    other = Store(tmp_path / "other", KEYS)
    restore(tmp_path / "backup", other.database)
    found = sealing_keys.Keys(other.database).of(plan)
    assert [found[place].private_bytes_raw() for place in range(3)] == some[:3]
    assert lying_open(tmp_path / "other", some) == []
    other.close()


def test_a_backup_without_encryption_is_restored_encrypted(tmp_path: Path) -> None:
    store = Store(tmp_path / "open")
    _, some = fill(store)
    backup(store.database, tmp_path / "backup")
    store.close()
    assert lying_open(tmp_path, some)
    restore_into(tmp_path / "data", tmp_path / "backup", keys=KEYS)
    assert lying_open(tmp_path / "data", some) == []


# --- the file of the key ------------------------------------------------------------------------


def key_file(file: Path, *keys: AtRest) -> Path:
    file.write_text("".join(f"{each.keys[0].hex()}\n" for each in keys))
    return file


def test_a_file_has_a_key_a_line(tmp_path: Path) -> None:
    file = key_file(tmp_path / "key", KEYS, OTHERS)
    assert at_rest.read(file, tmp_path / "data").keys == KEYS.keys + OTHERS.keys
    assert at_rest.read(None, tmp_path) == NOT_ENCRYPTED
    assert at_rest.read(file, "postgresql://db/hearsay").keys


@pytest.mark.parametrize("content", [b"", b"\n", b"00" * 31, b"00" * 33, b"zz" * 32, b"\xff" * 64])
def test_a_file_without_keys_is_refused_and_not_quoted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(InvalidInput, match="must hold keys of 64 hex digits") as refused:
        at_rest.read(tmp_path / "key", tmp_path / "data")
    assert "zz" not in str(refused.value)


def test_a_file_that_lies_in_the_folder_or_is_missing_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    key_file(data / "key", KEYS)
    (tmp_path / "link").symlink_to(data / "key")
    for file in (data / "key", tmp_path / "link"):
        with pytest.raises(InvalidInput, match="lies in the folder"):
            at_rest.read(file, data)
    with pytest.raises(InvalidInput, match=r"cannot read encryption_key .*none: No such file"):
        at_rest.read(tmp_path / "none", data)


# --- the processes ------------------------------------------------------------------------------


async def start(config: Config) -> None:
    async with running(config):
        pass


def test_a_server_encrypts_what_it_finds_and_refuses_to_start_without_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, file = tmp_path / "data", key_file(tmp_path / "key", KEYS)
    store = Store(data)
    _, some = fill(store)
    store.close()
    with serving(data, encryption_key=file):
        assert lying_open(data, some) == []
    with pytest.raises(InvalidInput, match="encryption_key is not set, and names the key of the"):
        asyncio.run(start(Config(data=data, listen="127.0.0.1:0")))
    with serving(data, encryption_key=key_file(tmp_path / "new", OTHERS)):
        pass
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(told) == 3
    assert told[0].startswith("encryption_key does not hold the key of the sealing keys of 'daily'")


def test_sealed_records_wait_until_the_key_is_found(tmp_path: Path) -> None:
    data, clock = tmp_path / "data", Calendar()
    right, wrong = key_file(tmp_path / "right", KEYS), key_file(tmp_path / "wrong", OTHERS)
    with serving(data, clock=clock, encryption_key=right) as address:
        survey = Sealed(data, address, clock, tokens_of(data), "", "daily")
        create(address, SEALED, survey.token("admin"))
        (record,) = survey.seal(survey.batch(1))
    with serving(data, clock=clock, encryption_key=wrong) as address:
        survey.address = address
        with pytest.raises(grpc.RpcError) as refused:
            survey.submit(record)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    with serving(data, clock=clock, encryption_key=right) as address:
        survey.address = address
        (result,) = survey.submit(record)
        assert result.status == collector_pb2.Result.STORED


def test_a_helper_encrypts_its_key_and_is_lost_without_it(tmp_path: Path) -> None:
    plain = Shares(tmp_path)
    private, public = plain.private, plain.public
    plain.close()
    assert lying_open(tmp_path, [private]) == [private]
    helper = Shares(tmp_path, KEYS)
    assert (helper.private, helper.public) == (private, public)
    helper.close()
    assert lying_open(tmp_path, [private]) == []
    for other in (NOT_ENCRYPTED, OTHERS):
        with pytest.raises(KeyLost, match="the helper's private key is encrypted under the key"):
            Shares(tmp_path, other)
    assert look(tmp_path)[0] == public.hex()
    again = Shares(tmp_path, AtRest((*OTHERS.keys, *KEYS.keys)))
    assert again.private == private
    again.close()


def test_a_shuffler_encrypts_the_keys_of_its_gateway(tmp_path: Path) -> None:
    plain = Pools(tmp_path)
    plain.new_key()
    before = plain.keys()
    plain.close()
    pools = Pools(tmp_path, KEYS)
    assert pools.keys() == before
    pools.new_key()
    found = pools.keys()
    pools.close()
    assert lying_open(tmp_path, [private for private, _ in found.values()]) == []
    other = Pools(tmp_path, OTHERS)
    with pytest.raises(KeyLost, match=r"relay.*is encrypted under the key"):
        other.keys()
    for _ in range(2):
        other.new_key()
    assert len(other.keys()) == 2
    other.close()


def test_the_commands_make_keys_that_are_encrypted(tmp_path: Path) -> None:
    file = key_file(tmp_path / "key", KEYS)
    helper, shuffler = tmp_path / "helper", tmp_path / "shuffler"
    asked = ("--encryption-key", file)
    assert hearsay("helper", "key", "--data", helper, *asked).returncode == 0
    done = hearsay("shuffler", "key", "--new", "--data", shuffler, HEARSAY_ENCRYPTION_KEY=str(file))
    assert done.returncode == 0
    for database, query in (
        (helper / "shares.db", "SELECT private FROM key"),
        (shuffler / "pools.db", "SELECT private FROM gateway_keys"),
    ):
        connection = sqlite3.connect(database)
        ((private,),) = connection.execute(query)
        connection.close()
        assert KEYS.is_current(private)
