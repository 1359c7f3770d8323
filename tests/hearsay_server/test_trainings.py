"""Trainings as they are stored: created once, kept out of backups where that is due, verified."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa
from trained import (
    NOW,
    PERIOD,
    SEED,
    aggregate,
    declared,
    first_model,
    part,
    register,
    send,
    states,
    vector,
)

from hearsay.federated.parsing import parse
from hearsay.v1 import admin_pb2, trainer_pb2, training_pb2
from hearsay_server.ingest.intake import Limits
from hearsay_server.serving.admin_trainings import TrainingsAdmin
from hearsay_server.serving.aggregating import Rounds
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.trainer import Trainer
from hearsay_server.storage import audit, models, retention, rounds, schema, trainings, updates
from hearsay_server.storage.backup import backup, restore
from hearsay_server.storage.database import Database, open_database
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify
from hearsay_server.storage.writer import Writer
from hearsay_server.trainings import aggregation, figures
from ldp.errors import InvalidInput
from ldp.planning import prefix_sums
from ldp.planning.prefix_sums import PrefixSums


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = open_database(tmp_path / "data")
    yield found
    found.close()


def _count(database: Database, table: sa.Table) -> int:
    with database.reading() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def test_a_seed_is_drawn_once_and_only_for_central_noise(database: Database) -> None:
    drawn: list[int] = []

    def draw(size: int) -> bytes:
        drawn.append(size)
        return SEED

    for protection in ("record_level", "central"):
        data = declared(protection, name=protection)
        model = first_model()
        models.put(database, sha256(model).digest(), len(model), 0, model, NOW)
        for _ in range(2):
            trainings.create(database, data, NOW, draw=draw)
    assert drawn == [32]
    assert _count(database, schema.seeds) == 1


def test_a_training_without_its_first_model_is_not_created(database: Database) -> None:
    with pytest.raises(InvalidInput, match="was not uploaded yet"):
        trainings.create(database, declared(), NOW)
    model = first_model(7)
    models.put(database, sha256(model).digest(), len(model), 0, model, NOW)
    with pytest.raises(InvalidInput, match="7 parameters; the training has 6"):
        trainings.create(database, declared(initial=sha256(model).digest()), NOW)
    assert trainings.trainings(database) == []


def test_an_upload_that_nobody_uses_is_purged_after_a_day(database: Database) -> None:
    model = first_model()
    models.put(database, sha256(model).digest(), len(model), 0, model[:8], NOW)
    models.purge_uploads(database, NOW + timedelta(hours=23))
    assert _count(database, schema.model_parts) == 1
    for step in retention.due(database, NOW + timedelta(hours=25)):
        step()
    assert _count(database, schema.models) + _count(database, schema.model_parts) == 0


def test_a_deleted_training_leaves_nothing(database: Database) -> None:
    training = register(database, declared("central"))
    send(database, training, 1, 2)
    trainings.mark_deleted(database, "digits")
    assert trainings.trainings(database) == []
    while any(step() for step in retention.left_over(database)):
        pass
    ours = ("trainings", "seeds", "rounds", "updates", "update_parts", "models", "model_parts")
    assert [_count(database, schema.metadata.tables[name]) for name in ours] == 7 * [0]


def test_acts_on_trainings_are_in_the_audit_log_and_no_seed_is(database: Database) -> None:
    training = register(database, declared("central"))
    register(database, declared("central"))
    trainings.close(database, "digits", NOW, "an admin")
    trainings.mark_deleted(database, "digits", "an admin")
    found = [(act.action, act.token, act.survey, act.detail) for act in audit.entries(database)]
    assert found == [
        ("create training", "", "digits", {"revision": training.revision.hex()}),
        ("close training", "an admin", "digits", {"round": 1}),
        ("delete training", "an admin", "digits", {"rounds": 1, "updates": 0}),
    ]


@pytest.mark.parametrize("protection", ["central", "record_level"])
def test_a_backup_has_neither_seeds_nor_updates(
    database: Database, tmp_path: Path, protection: str
) -> None:
    """What is restored from it goes on, or is closed, as its noise allows."""
    training = register(database, declared(protection, rounds=5, dimension=100))
    send(database, training, 1, 2, 3)
    if protection == "central":  # a round that was dropped is enough here
        rounds.close(database, training, 1, NOW)
    else:
        aggregate(database, training)
    send(database, training, 4)
    first, whole = part(database, training, 5), part(database, training, 5)
    first.data = whole.data[:200]
    updates.add_part(database, first, "", NOW)
    backup(database, tmp_path / "backup")
    content = (tmp_path / "backup").read_bytes()
    assert SEED not in content
    assert not any(vector(n, 100).tobytes()[:64] in content for n in range(1, 6))
    other = open_database(tmp_path / "other")
    restore(tmp_path / "backup", other)
    stored = trainings.training(other, "digits")
    assert stored is not None
    before = trainings.training(database, "digits")
    assert before is not None
    assert (stored.model, stored.updates) == (before.model, before.updates)
    if protection == "central":
        assert (stored.state, states(other, training)[-1][1]) == ("closed", "dropped")
        assert "no seed" in stored.trouble
    else:
        assert states(other, training)[-2:] == [(2, "dropped", 1), (3, "open", 0)]
        assert send(other, training, 6)[0].status
    assert {checked.verdict for checked in verify(other)} == {Verdict.EQUAL}
    other.close()


_ID = (1).to_bytes(16, "little")


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (lambda: sa.delete(schema.update_parts).where(schema.update_parts.c.id == _ID), "round 1"),
        (lambda: sa.update(schema.update_parts).values(data=b"damaged"), "round 1"),
        (lambda: sa.update(schema.rounds).values(updates=3), "round 1"),
        (lambda: sa.update(schema.updates).values(round=7), "round 7"),
        (lambda: sa.update(schema.model_parts).values(data=b"damaged"), "models"),
        (lambda: sa.delete(schema.seeds), "seed"),
    ],
)
def test_a_recount_finds_what_is_wrong_with_a_training(
    database: Database, harm: Callable[[], sa.UpdateBase], what: str
) -> None:
    training = register(database, declared("central"))
    send(database, training, 1, 2)
    assert {checked.verdict for checked in verify(database)} == {Verdict.EQUAL}
    with database.changing() as connection:
        connection.execute(harm())
    wrong = [one.period for one in verify(database) if one.verdict is Verdict.DIFFERS]
    assert what in wrong


def test_rounds_close_at_their_deadline(tmp_path: Path) -> None:
    store = Store(tmp_path)
    alone = {"participations": 1, "separation": 1}
    training = register(store.database, declared(rounds=3, **alone))
    send(store.database, training, 1, 2)
    now = NOW

    async def run() -> None:
        nonlocal now
        writer, metrics = Writer(store, Limits()), Metrics()
        moved = Rounds(store.database, writer, metrics, lambda: now)
        trainer = Trainer(store.database, writer, metrics, clock=lambda: now)
        asked = trainer_pb2.GetRoundRequest(training="digits")
        async with moved.moving(), asyncio.timeout(20):
            while (seen := await trainer.GetRound(asked, None)).state != seen.ENDED:
                if seen.state == seen.OPEN:
                    now = datetime.fromtimestamp(seen.deadline, UTC)
                    moved.changed()
                await asyncio.sleep(0.01)
        await writer.close()

    asyncio.run(run())
    assert states(store.database, training) == [
        (1, "aggregated", 2),
        (2, "dropped", 0),
        (3, "dropped", 0),
    ]
    store.close()


@pytest.mark.parametrize("how", ["close", "delete", "elsewhere"])
def test_a_training_that_ends_leaves_no_seed_in_any_file(tmp_path: Path, how: str) -> None:
    store = Store(tmp_path)

    def held() -> list[str]:
        files = (path for path in tmp_path.rglob("*") if path.is_file())
        return [path.name for path in files if SEED in path.read_bytes()]

    async def run() -> None:
        writer = Writer(store, Limits())
        moved = Rounds(store.database, writer, Metrics(), lambda: NOW)
        asked = {"changed": moved.changed, "ended": moved.ended}
        admin = TrainingsAdmin(store.database, writer, lambda: NOW, **asked)
        async with moved.moving():
            async with asyncio.timeout(20):
                register(store.database, declared("central"))
                while not moved._running or moved._to_wipe:
                    moved.changed()
                    await asyncio.sleep(0.01)
                assert held()
                if how == "close":
                    await admin.CloseTraining(
                        admin_pb2.CloseTrainingRequest(training="digits"), None
                    )
                elif how == "delete":
                    await admin.DeleteTraining(
                        admin_pb2.DeleteTrainingRequest(training="digits"), None
                    )
                else:
                    trainings.close(store.database, "digits", NOW)
                    moved.changed()
                while held():
                    await asyncio.sleep(0.01)
        await writer.close()

    asyncio.run(run())
    store.close()


@pytest.mark.parametrize("mechanism", ["toeplitz", "tree"])
def test_rho_so_far_covers_the_noise_that_is_in_the_first_model(mechanism: PrefixSums) -> None:
    wire = training_pb2.Training.FromString(declared("central", rounds=16, separation=8))
    wire.central.mechanism, wire.central.bands = mechanism, 8 * (mechanism == "toeplitz")
    training = parse(wire.SerializeToString(deterministic=True))
    first = prefix_sums.errors(mechanism, 16, wire.central.bands)[0]
    spent = [figures.spent_rho(training, rounds) or 0 for rounds in range(1, 17)]
    assert spent == sorted(spent)
    assert float(spent[0]) >= 1 / (2 * first**2) * (1 - 1e-9)
    assert training.rho is not None and 0 <= training.rho - spent[-1] < 1e-9


def test_krum_s_distances_of_all_pairs_count_as_held() -> None:
    wire = training_pb2.Training.FromString(declared(updates_per_round=7_000))
    wire.aggregation.rule, wire.aggregation.hostile, wire.min_updates = "krum", 1, 5
    training = parse(wire.SerializeToString(deterministic=True))
    with pytest.raises(InvalidInput, match="1,176,168,000 bytes"):
        aggregation.check(training)


def test_a_backup_does_not_say_which_token_began_an_update(
    database: Database, tmp_path: Path
) -> None:
    begun = part(database, register(database), 7)
    begun.data = begun.data[:8]
    updates.add_part(database, begun, "token-of-ann", NOW)
    backup(database, tmp_path / "backup")
    assert b"token-of-ann" not in (tmp_path / "backup").read_bytes()


def test_a_round_that_cannot_be_aggregated_says_so_and_is_unharmed(tmp_path: Path) -> None:
    """The fault is mended by hand, and the next try makes the model."""
    store = Store(tmp_path)
    training = register(store.database)
    send(store.database, training, 1, 2, 3)
    parts = schema.update_parts
    mine = parts.c.id == _ID
    with store.database.changing() as connection:
        whole = connection.execute(sa.select(parts.c.data).where(mine)).scalar_one()
        connection.execute(sa.update(parts).where(mine).values(data=b"damaged"))

    async def turn(until: Callable[[trainings.StoredTraining], object]) -> Metrics:
        metrics = Metrics()
        writer = Writer(store, Limits())
        moved = Rounds(store.database, writer, metrics, lambda: NOW)
        async with moved.moving():
            async with asyncio.timeout(20):
                while not until(trainings.trainings(store.database)[0]):
                    await asyncio.sleep(0.01)
        await writer.close()
        return metrics

    metrics = asyncio.run(turn(lambda seen: seen.trouble))
    found = trainings.training(store.database, "digits")
    assert found is not None
    assert found.trouble == "round 1: a stored part of an update is damaged"
    assert states(store.database, training) == [(1, "closed", 3)]
    assert metrics.registry.get_sample_value("hearsay_aggregation_failures_total") == 1
    assert metrics.registry.get_sample_value("hearsay_trainings_failing") == 1
    with store.database.changing() as connection:
        connection.execute(sa.update(parts).where(mine).values(data=whole))
    metrics = asyncio.run(turn(lambda seen: seen.round > 1))
    found = trainings.training(store.database, "digits")
    assert found is not None
    assert (found.trouble, found.round) == ("", 2)
    assert metrics.registry.get_sample_value("hearsay_trainings_failing") == 0
    store.close()


def test_the_name_of_a_training_is_no_survey(database: Database, tmp_path: Path) -> None:
    register(database)
    store = Store(tmp_path / "data")
    with pytest.raises(InvalidInput, match="a training has the name 'digits'"):
        store.create_survey("digits", b"revision", b"")
    store.close()
    assert rounds.close(database, trainings.trainings(database)[0].training, 1, NOW + PERIOD)
