"""Rounds: a step is taken once, no update counts twice, and none outlives its round."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from trained import (
    NOW,
    PERIOD,
    SEED,
    aggregate,
    declared,
    made,
    part,
    register,
    send,
    states,
    vector,
)

from hearsay.federated import models
from hearsay.v1 import trainer_pb2, training_pb2
from hearsay.v1.collector_pb2 import Result
from hearsay_server.limits import TooMany
from hearsay_server.storage import rounds, schema, trainings, updates
from hearsay_server.storage.database import Database, open_database
from hearsay_server.storage.updates import Outcome
from ldp.errors import StorageFailed
from support import at_once


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = open_database(tmp_path)
    yield found
    found.close()


def _refusal(outcome: Outcome) -> str:
    assert outcome.status == Result.REFUSED
    assert outcome.detail
    return trainer_pb2.Refusal.Name(outcome.refusal)


def test_a_full_round_makes_a_model_and_opens_the_next(where: Path | str) -> None:
    database = open_database(where)
    training = register(database)
    assert [outcome.status for outcome in send(database, training, 1, 2, 3)] == [Result.STORED] * 3
    assert states(database, training) == [(1, "closed", 3)]
    assert aggregate(database, training)
    assert states(database, training) == [(1, "aggregated", 3), (2, "open", 0)]
    first, second = trainings.rounds(database, "digits")
    assert second.model == first.result != first.model == training.initial
    data, size = trainings.model_part(database, "digits", second.model, 0)
    assert size == len(data)
    model = models.to_vector(models.read(data))
    expected = np.median([vector(number) for number in (1, 2, 3)], axis=0)
    assert np.allclose(model, expected, atol=1e-6)
    stored = trainings.training(database, "digits")
    assert stored is not None
    assert (stored.updates, stored.size, stored.aggregated) == (3, 72, 1)
    database.close()


def test_an_update_counts_once_also_after_its_round(database: Database) -> None:
    training = register(database)
    send(database, training, 1, 2)
    first = part(database, training, 1)
    assert send(database, training, 1)[0].status == Result.DUPLICATE
    send(database, training, 3)
    assert updates.look(database, first, NOW).status == Result.DUPLICATE  # type: ignore[union-attr]
    aggregate(database, training)
    assert updates.count(database, first, NOW).status == Result.DUPLICATE
    assert states(database, training)[0] == (1, "aggregated", 3)


def test_a_round_with_too_few_updates_is_dropped_with_them(database: Database) -> None:
    training = register(database)
    send(database, training, 1)
    assert rounds.due(database, NOW).to_close == []
    late = NOW + PERIOD
    assert rounds.due(database, late).to_close == [(training, 1)]
    assert rounds.close(database, training, 1, late) == "dropped"
    assert rounds.close(database, training, 1, late) == ""
    assert states(database, training) == [(1, "dropped", 1), (2, "open", 0)]
    assert trainings.rounds(database, "digits")[1].model == training.initial
    with pytest.raises(StorageFailed, match="is damaged"):  # the key is another one by now
        rounds.payload(database, "digits", 1, (1).to_bytes(16, "little"))
    while trainings.delete_some_updates(database):
        pass
    with database.reading() as connection:
        assert connection.execute(sa.select(schema.update_parts)).all() == []


def test_a_deadline_closes_a_round_that_has_enough(database: Database) -> None:
    training = register(database)
    send(database, training, 1, 2)
    assert rounds.close(database, training, 1, NOW + PERIOD) == "closed"
    assert rounds.due(database, NOW).to_aggregate == [(training, 1)]


def test_the_last_round_ends_the_training(database: Database) -> None:
    training = register(database, declared("central", rounds=2, separation=1))
    for number in (1, 2):
        rounds.close(database, training, number, NOW + PERIOD)
    stored = trainings.training(database, "digits")
    assert stored is not None
    assert (stored.state, stored.round, stored.dropped) == ("ended", 2, 2)
    with database.reading() as connection:
        assert connection.execute(sa.select(schema.seeds)).all() == []
    outcome = updates.look(database, part(database, training, 1, round=3), NOW)
    assert isinstance(outcome, Outcome)
    assert _refusal(outcome) == "ROUND_CLOSED"


@pytest.mark.parametrize(
    ("wrong", "refusal"),
    [
        ({"training": "other"}, "UNKNOWN_TRAINING"),
        ({"revision": bytes(32)}, "OTHER_REVISION"),
        ({"model": bytes(32)}, "OTHER_MODEL"),
        ({"round": 0}, "ROUND_CLOSED"),
    ],
)
def test_an_update_to_something_else_is_refused_and_the_round_unharmed(
    database: Database, wrong: dict[str, object], refusal: str
) -> None:
    training = register(database)
    send(database, training, 1)
    for answer in (updates.look, updates.count):
        outcome = answer(database, part(database, training, 2, **wrong), NOW)
        assert isinstance(outcome, Outcome)
        assert _refusal(outcome) == refusal
    assert states(database, training) == [(1, "open", 1)]


def test_an_update_of_a_later_round_is_to_come_again(database: Database) -> None:
    training = register(database)
    assert send(database, training, 1, round=2)[0].status == Result.RETRY


def test_an_update_after_the_deadline_or_in_a_full_round_is_refused(database: Database) -> None:
    training = register(database)
    late = updates.count(database, part(database, training, 1), NOW + PERIOD)
    assert _refusal(late) == "ROUND_CLOSED"
    send(database, training, 1, 2, 3)
    assert _refusal(send(database, training, 4)[0]) == "ROUND_FULL"


def test_an_id_of_an_earlier_round_is_refused(database: Database) -> None:
    training = register(database)
    send(database, training, 1, 2, 3)
    aggregate(database, training)
    assert _refusal(send(database, training, 1)[0]) == "BAD_UPDATE_ID"


def _parts(database: Database, training: object, number: int, size: int) -> list[updates.Part]:
    whole = part(database, training, number)  # type: ignore[arg-type]
    found = []
    for offset in range(0, whole.size, size):
        each = updates.Part()
        each.CopyFrom(whole)
        each.offset, each.data = offset, whole.data[offset : offset + size]
        found.append(each)
    return found


def test_parts_are_taken_in_order_and_count_when_they_are_whole(database: Database) -> None:
    training = register(database)
    first, second, third = _parts(database, training, 1, 8)
    add = updates.add_part
    assert add(database, second, "", NOW).next == 0
    assert add(database, first, "", NOW).next == 8
    assert add(database, first, "", NOW).next == 8
    assert add(database, second, "", NOW).next == 16
    assert rounds.payload(database, "digits", 1, first.id) == vector(1).tobytes()[:16]
    assert states(database, training) == [(1, "open", 0)]
    assert add(database, third, "", NOW).next == 24
    assert updates.count(database, third, NOW).status == Result.STORED
    assert updates.count(database, third, NOW).status == Result.DUPLICATE
    assert states(database, training) == [(1, "open", 1)]
    assert rounds.payload(database, "digits", 1, first.id) == vector(1).tobytes()


def test_an_update_begun_in_parts_may_come_again_as_one(database: Database) -> None:
    training = register(database)
    updates.add_part(database, _parts(database, training, 1, 8)[0], "", NOW)
    assert send(database, training, 1)[0].status == Result.STORED
    assert rounds.payload(database, "digits", 1, (1).to_bytes(16, "little")) == vector(1).tobytes()


def test_unfinished_updates_go_when_their_round_closes(database: Database) -> None:
    training = register(database)
    updates.add_part(database, _parts(database, training, 9, 8)[0], "", NOW)
    send(database, training, 1, 2, 3)
    with database.reading() as connection:
        assert len(connection.execute(sa.select(schema.updates)).all()) == 3
    expected = [vector(number) for number in (1, 2, 3)]
    found = [np.frombuffer(each, "<f4") for each in rounds.payloads(database, training, 1)]
    assert np.array_equal(found, expected)


def test_unfinished_updates_take_so_much_room_and_no_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "_UNFINISHED_OF_ONE", 30)
    monkeypatch.setattr(updates, "_UNFINISHED", 79)
    monkeypatch.setattr(updates, "_LEAST", 1)
    training = register(database)
    add, begun = updates.add_part, [_parts(database, training, n, 16)[0] for n in range(5)]
    for number, caller in enumerate(["a", "a", "a"]):
        add(database, begun[number], caller, NOW)
    with pytest.raises(TooMany, match="this token have 48 bytes of 48"):
        add(database, begun[3], "a", NOW)
    add(database, begun[3], "b", NOW)
    with pytest.raises(TooMany, match="of the round have 64 bytes of 79"):
        add(database, begun[4], "c", NOW)
    assert send(database, training, 7)[0].status == Result.STORED  # whole at once, it needs none
    updates.forget(database, begun[0])
    assert add(database, begun[4], "c", NOW).next == 16


def test_of_many_at_once_a_round_counts_no_more_than_it_takes(where: Path | str) -> None:
    stores = [open_database(where) for _ in range(3)]
    training = register(stores[0])
    sent = [part(stores[0], training, number) for number in range(12)]
    outcomes: list[Outcome] = []

    def count(database: Database, mine: list[updates.Part]) -> None:
        for each in mine:
            outcomes.append(updates.count(database, each, NOW))

    # Some of them come twice, through two processes.
    at_once(
        lambda: count(stores[0], sent[:8]),
        lambda: count(stores[1], sent[4:]),
        lambda: count(stores[2], sent[2:10]),
    )
    assert states(stores[0], training) == [(1, "closed", 3)]
    assert sum(outcome.status == Result.STORED for outcome in outcomes) == 3
    assert len(list(rounds.payloads(stores[0], training, 1))) == 3
    for database in stores:
        database.close()


def test_of_many_servers_one_aggregates_a_round(where: Path | str) -> None:
    stores = [open_database(where) for _ in range(3)]
    training = register(stores[0])
    send(stores[0], training, 1, 2, 3)
    work = [rounds.work(database, training, 1) for database in stores]
    results = [made(stores[0], each) for each in work if each is not None]
    assert len({model for model, _ in results}) == 1
    took: list[bool] = []
    barrier = threading.Barrier(3)

    def store(number: int) -> None:
        barrier.wait()
        each = work[number]
        assert each is not None
        took.append(rounds.store(stores[number], each, *results[number], NOW))

    at_once(*(lambda number=number: store(number) for number in range(3)))  # type: ignore[misc]
    assert sorted(took) == [False, False, True]
    assert states(stores[0], training) == [(1, "aggregated", 3), (2, "open", 0)]
    for database in stores:
        database.close()


def _content(folder: Path) -> bytes:
    return b"".join((folder / name).read_bytes() for name in ("hearsay.db", "hearsay.db-wal"))


def _pieces(whole: bytes) -> list[bytes]:
    return [whole[at : at + 64] for at in range(0, len(whole) - 64, 1000)]


@pytest.mark.parametrize("dropped", [False, True])
def test_neither_the_file_nor_its_log_has_the_updates_of_a_round_that_is_over(
    tmp_path: Path, dropped: bool
) -> None:
    """Pieces of each update are looked for at every place in the files, and of the round's key."""
    database = open_database(tmp_path)
    dimension = 3000  # of 12,000 bytes: three pages of the file
    training = register(database, declared(dimension=dimension, min_updates=3 if dropped else 2))
    send(database, training, 1, 2)
    first, second, *_ = _parts(database, training, 3, 6000)
    updates.add_part(database, first, "", NOW)
    updates.add_part(database, second, "", NOW)
    with database.reading() as connection:
        (key,) = connection.scalars(sa.select(schema.round_keys.c.key))
        sealed = connection.scalars(sa.select(schema.update_parts.c.data)).all()
    hidden = [piece for part in sealed for piece in _pieces(part)]
    plain = [piece for n in (1, 2, 3) for piece in _pieces(vector(n, dimension).tobytes())]
    before = _content(tmp_path)
    assert key in before
    assert all(piece in before for piece in hidden)
    assert not any(piece in before for piece in plain)
    rounds.close(database, training, 1, NOW + PERIOD)
    if not dropped:
        aggregate(database, training)
    assert states(database, training)[0][1] == ("dropped" if dropped else "aggregated")
    assert database.wipe()
    assert key not in _content(tmp_path)  # so nobody can read what follows it
    while trainings.delete_some_updates(database):
        pass
    assert database.wipe()
    after = _content(tmp_path)
    assert not any(piece in after for piece in [*hidden, *plain])
    database.close()


def test_a_seed_is_gone_from_the_file_when_its_training_is_over(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    register(database, declared("central"))
    assert SEED in _content(tmp_path)
    trainings.close(database, "digits", NOW)
    assert database.wipe()
    assert SEED not in _content(tmp_path)
    database.close()


def test_the_log_is_not_emptied_while_somebody_reads(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    register(database)
    with database.reading() as connection:
        connection.execute(sa.select(schema.trainings)).all()
        register_ = part(database, trainings.training(database, "digits").training, 1)  # type: ignore[union-attr]
        updates.count(database, register_, NOW)
        assert not database.wipe()
    assert database.wipe()
    database.close()


def test_a_clock_that_goes_back_closes_nothing(database: Database) -> None:
    register(database)
    found = rounds.due(database, NOW - timedelta(days=1))
    assert (found.to_close, found.next_deadline) == ([], int((NOW + PERIOD).timestamp()))


@pytest.mark.parametrize(
    "optimizer", ["sgd", *(pytest.param(name, marks=pytest.mark.slow) for name in ("adam", "yogi"))]
)
def test_a_model_is_the_same_to_the_bit_in_whatever_order_updates_came(
    tmp_path: Path, optimizer: str
) -> None:
    """Also where another process makes it again, and the rounds between them were dropped."""
    wire = training_pb2.Training.FromString(declared("central"))
    wire.aggregation.optimizer, wire.aggregation.momentum = optimizer, 0.9
    data = wire.SerializeToString(deterministic=True)
    found = []
    for orders in (((1, 2, 3), (4, 5)), ((3, 1, 2), (5, 4))):
        database = open_database(tmp_path / str(orders[0][0]))
        training = register(database, data)
        send(database, training, *orders[0])
        aggregate(database, training)
        rounds.close(database, training, 2, NOW + PERIOD)
        send(database, training, *orders[1])
        rounds.close(database, training, 3, NOW + PERIOD)
        work = rounds.work(database, training, 3)
        assert work is not None
        assert work.since == 1
        assert made(database, work) == made(database, work)
        aggregate(database, training)
        found.append([each.result for each in trainings.rounds(database, "digits")])
        database.close()
    assert found[0] == found[1]
    first, second, third, fourth = found[0]
    assert None not in (first, third) and (second, fourth) == (None, None)
    assert first != third
