"""What reads all batches holds few of them at once, however large they are."""

import tracemalloc
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from stored import NOW, PLANS, add, batch, register

from hearsay.plans.plan import parse
from hearsay.v1 import collector_pb2
from hearsay_server.answers.rows import chunks
from hearsay_server.ingest.intake import Limits
from hearsay_server.storage import store as stores
from hearsay_server.storage.backup import backup
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import verify
from hearsay_server.surveys import survey as surveys
from ldp.testing import SeededCoins

BATCHES, ROWS = 60, 100_000  # 6 MB of codes


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("data"))
    register(store)
    for number in range(BATCHES):
        large = batch(number)
        large.rows = ROWS
        del large.columns[1]
        large.columns[0].codes = bytes(ROWS)
        assert add(store, [large]) == [True]
    yield store
    store.close()


def exported(store: Store, _folder: Path) -> None:
    plan = PLANS["health"]
    for _ in chunks(plan, store.batches("health"), plan.levels, np.random.default_rng(1)):
        pass


def verified(store: Store, _folder: Path) -> None:
    for _ in verify(store.database):
        pass


def backed_up(store: Store, folder: Path) -> None:
    backup(store.database, folder / "copy.db")


@pytest.mark.parametrize(
    ("read", "most"),
    # Those that read one by one hold 16 batches; to be mixed, a row takes 40 bytes.
    [(exported, 40 * 5 * ROWS), (verified, 40 * ROWS), (backed_up, 45 * ROWS)],
    ids=["exported", "verified", "backed_up"],
)
def test_memory_is_that_of_some_batches(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Store, Path], None],
    most: int,
) -> None:
    monkeypatch.setattr(stores, "_PAGE_BYTES", 20 * ROWS)  # that is two batches, of two pages
    tracemalloc.start()
    try:
        read(store, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most


@pytest.mark.slow
def test_a_commit_for_many_periods_of_a_large_domain_unpacks_few_tallies(tmp_path: Path) -> None:
    toml = (
        'name = "visits"\nperiod = "PT1H"\n[levels]\nonly = 1.0\n[[attributes]]\nname = "page"\n'
        f"[attributes.categorical]\nvalues = {[str(value) for value in range(65_536)]}\n"
    )
    data = surveys.resolve(surveys.from_toml(toml, "visits.toml"))
    plan = parse(data)
    mechanism = plan.levels["only"].mechanisms["page"]
    sent = []
    for hours in range(512):
        hour = f"{NOW - timedelta(hours=hours):%Y-%m-%dT%H}"
        message = collector_pb2.Batch(
            id=hours.to_bytes(16, "big"), survey="visits", revision=plan.revision, period=hour
        )
        message.rows = 1
        codes = mechanism.encode(mechanism.randomize_many(np.array([hours]), SeededCoins(hours)))
        message.columns.add(attribute="page", level="only", codes=codes)
        sent.append(("", message))
    store = Store(tmp_path)
    store.create_survey("visits", plan.revision, data)
    tracemalloc.start()
    try:
        outcomes = store.add(sent, NOW, Limits())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        store.close()
    assert outcomes == [True] * 512
    assert mechanism.tally_size * 8 * 512 > 300 << 20
    assert most < 100 << 20
