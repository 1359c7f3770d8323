"""What is kept of tokens, and for how long they work."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Reason
from hearsay_server.storage.database import Database, open_folder
from hearsay_server.storage.schema import token_rows
from hearsay_server.storage.tokens import Tokens, charge, hashed
from ldp import InvalidInput


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_folder(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def tokens(database: Database, clock: Clock) -> Tokens:
    return Tokens(database, clock)


def state(tokens: Tokens, text: str) -> str:
    found = tokens.find(hashed(text))
    assert found is not None
    return found.state(tokens.clock())


def test_a_token_is_found_and_another_is_not(tokens: Tokens) -> None:
    made, text = tokens.create("analyst", "Ada")
    assert tokens.find(hashed(text)) == made
    assert (made.role, made.label) == ("analyst", "Ada")
    assert tokens.find(hashed(text + "x")) is None


def test_the_token_itself_is_nowhere_in_the_database(tokens: Tokens, tmp_path: Path) -> None:
    _, text = tokens.create("admin")
    with sqlite3.connect(tmp_path / "hearsay.db") as connection:
        dump = "\n".join(connection.iterdump())
    connection.close()
    assert hashed(text).hex().upper() in dump
    assert text.removeprefix("hearsay-") not in dump


def test_tokens_have_256_bits(tokens: Tokens) -> None:
    texts = {tokens.create("device")[1] for _ in range(20)}
    assert len(texts) == 20
    assert {len(text) for text in texts} == {len("hearsay-") + 43}  # base64 of 32 bytes


def test_no_two_tokens_have_one_id(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(tokens.create("device")[0].id) == 16  # 64 bits
    monkeypatch.setattr("hearsay_server.storage.tokens._ID_BYTES", 1)
    assert len({tokens.create("device")[0].id for _ in range(100)}) == 100


def test_a_rotated_token_works_for_the_grace_and_its_heir_goes_on(
    tokens: Tokens, clock: Clock
) -> None:
    made, old = tokens.create("device", "shop 7")
    heir, new = tokens.rotate(made.id, grace=60)
    assert (heir.id, heir.role, heir.label) == (made.id, "device", "shop 7")
    clock.now += 59
    assert state(tokens, old) == "works"
    clock.now += 1
    assert state(tokens, old) == "expired"
    assert tokens.find(hashed(new)) == heir


def test_rotating_twice_does_not_prolong_the_first(tokens: Tokens, clock: Clock) -> None:
    made, first = tokens.create("device")
    tokens.rotate(made.id, grace=10)
    tokens.rotate(made.id, grace=1000)
    clock.now += 11
    assert state(tokens, first) == "expired"


def test_revoking_ends_a_token_and_what_it_was_rotated_from(tokens: Tokens) -> None:
    made, old = tokens.create("admin")
    _, new = tokens.rotate(made.id, grace=1000)
    tokens.revoke(made.id)
    assert state(tokens, old) == state(tokens, new) == "revoked"
    assert tokens.any()  # so that the server does not open up to everybody


def test_tokens_are_listed_with_when_they_end(tokens: Tokens, clock: Clock) -> None:
    first, _ = tokens.create("device")
    clock.now += 1
    second, _ = tokens.create("admin", expires=2000.0)
    tokens.revoke(first.id)
    assert [(t.id, t.expires, t.revoked) for t in tokens.list()] == [
        (first.id, None, clock.now),
        (second.id, 2000.0, None),
    ]


def test_a_token_works_until_it_expires(tokens: Tokens, clock: Clock) -> None:
    made, text = tokens.create("analyst", expires=clock.now + 60)
    clock.now += 59
    assert state(tokens, text) == "works"
    clock.now += 1
    assert state(tokens, text) == "expired"
    with pytest.raises(InvalidInput, match="there is no working token"):
        tokens.rotate(made.id, grace=0)


def test_a_rotated_token_lasts_as_long_as_the_old_one_was_to_last(
    tokens: Tokens, clock: Clock
) -> None:
    made, _ = tokens.create("analyst", expires=clock.now + 60)
    clock.now += 30
    assert tokens.rotate(made.id, grace=5)[0].expires == clock.now + 60
    clock.now += 30
    assert tokens.rotate(made.id, grace=0, expires=clock.now + 7)[0].expires == clock.now + 7
    lasting, _ = tokens.create("analyst")
    assert tokens.rotate(lasting.id, grace=0)[0].expires is None


def test_a_token_that_would_never_work_is_not_made(tokens: Tokens, clock: Clock) -> None:
    for end in (clock.now, float("nan"), 1e12):
        with pytest.raises(InvalidInput, match="must end in the future and before the year 10000"):
            tokens.create("admin", expires=end)
        with pytest.raises(InvalidInput, match="must end in the future"):
            tokens.rotate("any", grace=0, expires=end)
    assert not tokens.any()


def test_the_day_of_a_use_is_recorded_once_and_a_devices_never(
    tokens: Tokens, clock: Clock
) -> None:
    clock.now = 10 * 86400.0
    _, text = tokens.create("admin")
    device, _ = tokens.create("device")
    assert not device.use_is_due(clock.now)
    for day in (10, 12):
        clock.now = day * 86400.0 + 5
        unused = tokens.find(hashed(text))
        assert unused is not None
        assert unused.use_is_due(clock.now)
        tokens.use(hashed(text))
        used = tokens.find(hashed(text))
        assert used is not None
        assert used.used == day
        assert not used.use_is_due(clock.now + 86300)
        assert used.use_is_due(clock.now + 86400)
    assert not replace(used, revoked=clock.now).use_is_due(clock.now + 86400)
    clock.now -= 3 * 86400  # another server's clock is behind
    tokens.use(hashed(text))
    assert {token.role: token.used for token in tokens.list()} == {"admin": 12, "device": None}


@pytest.mark.parametrize("command", ["rotate", "revoke"])
def test_a_token_that_does_not_work_can_be_neither_rotated_nor_revoked(
    tokens: Tokens, command: str
) -> None:
    made, _ = tokens.create("device")
    tokens.revoke(made.id)
    arguments = (made.id, 1.0) if command == "rotate" else (made.id,)
    with pytest.raises(InvalidInput, match=f"there is no working token '{made.id}'"):
        getattr(tokens, command)(*arguments)


def test_roles_and_graces_that_cannot_be_are_refused(tokens: Tokens) -> None:
    with pytest.raises(
        InvalidInput, match="a role is one of device, shuffler, leader, analyst, admin, got 'root'"
    ):
        tokens.create("root")
    made, _ = tokens.create("device")
    with pytest.raises(InvalidInput, match="the grace must be finite and >= 0 seconds, got -1"):
        tokens.rotate(made.id, grace=-1)


def batch(rows: int, period: str = "once") -> collector_pb2.Batch:
    return collector_pb2.Batch(survey="health", period=period, rows=rows)


def test_rows_are_counted_up_to_the_cap_and_no_further(database: Database, tokens: Tokens) -> None:
    with database.appending() as connection:
        assert charge(database, connection, [("a", batch(6)), ("a", batch(4))], cap=10) == {}
        refused = charge(database, connection, [("a", batch(1))], cap=10)[0]
    assert (refused.reason, refused.final) == (Reason.OVER_QUOTA, True)
    assert str(refused) == (
        "a device's token may send 10 rows of 'health' in 'once', and these 1 would exceed them"
    )


def test_only_those_of_a_group_that_exceed_the_cap_are_refused(
    database: Database, tokens: Tokens
) -> None:
    with database.appending() as connection:
        assert charge(database, connection, [("a", batch(3))], cap=10) == {}
    sent = [("b", batch(9)), *(("a", batch(rows)) for rows in (4, 5, 3, 1)), ("b", batch(1))]
    with database.appending() as connection:
        assert charge(database, connection, sent, cap=10).keys() == {2, 4}
        # The others are counted, and they alone: 10 of each token.
        kept = connection.execute(sa.select(token_rows.c.token, token_rows.c.rows))
        assert dict(kept.all()) == {"a": 10, "b": 10}


def test_a_first_batch_above_the_cap_is_refused(database: Database, tokens: Tokens) -> None:
    with database.appending() as connection:
        assert charge(database, connection, [("a", batch(11))], cap=10).keys() == {0}


def test_each_token_survey_and_period_has_its_own_cap(database: Database, tokens: Tokens) -> None:
    other = batch(10)
    other.survey = "weather"
    sent = [("a", batch(10)), ("b", batch(10)), ("a", batch(10, "2026-07-04")), ("a", other)]
    with database.appending() as connection:
        assert charge(database, connection, sent, cap=10) == {}


def test_what_is_not_committed_is_not_counted(database: Database, tokens: Tokens) -> None:
    with database.engine.connect() as connection, connection.begin() as transaction:
        assert charge(database, connection, [("a", batch(10))], cap=10) == {}
        transaction.rollback()
    with database.appending() as connection:
        assert charge(database, connection, [("a", batch(10))], cap=10) == {}
