"""The device's file: transactions, what stands in their way, and what becomes of the file."""

import ast
import functools
import multiprocessing
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from disks import SmallDisk

import hearsay
from forked import exit_code_of_a_child
from hearsay.storage import store as store_module
from hearsay.storage.new_ledger import create_ledger
from hearsay.storage.schema import VERSION
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Trouble
from ldp import InvalidInput
from support import at_once

R = TypeVar("R")
NOW = datetime(2026, 7, 4, 12, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The name of a ledger."""
    return tmp_path / "ledger.db"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    """A store that made its file by itself."""
    opened = a_store(file)
    yield opened
    opened.release()


def a_store(file: Path | None, wait: float = 2.0) -> Store:
    """Open a store; it closes its file when it is dropped, at the end of a test."""
    return Store(file, lambda: NOW, wait=wait)


def count(connection: sqlite3.Connection, name: str = "answers") -> str:
    connection.execute(
        "INSERT INTO counters VALUES ('s', ?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
        (name,),
    )
    return name


def counted(store: Store, name: str = "answers") -> int:
    rows = store.read(
        lambda connection: connection.execute(
            "SELECT count FROM counters WHERE name = ?", (name,)
        ).fetchall()
    )
    return sum(number for (number,) in rows)


def reason(found: pytest.ExceptionInfo[Trouble]) -> Reason:
    return found.value.status.reason


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_transaction_is_there_as_a_whole_or_not_at_all(file: Path, in_memory: bool) -> None:
    store = a_store(None if in_memory else file)
    assert store.write(lambda connection: count(connection)) == "answers"

    def fail(connection: sqlite3.Connection) -> None:
        count(connection)
        raise KeyError("in the middle")

    for run in (store.write, store.read):
        with pytest.raises(KeyError):
            run(fail)
    store.write(count)
    assert counted(store) == 2


def test_what_is_committed_is_there_after_a_release_and_for_others(
    store: Store, file: Path
) -> None:
    store.write(count)
    other = a_store(file)
    assert counted(other) == 1
    assert other.salt == store.salt
    store.release()
    other.write(count)
    other.release()
    assert counted(store) == 2


def test_stores_in_memory_share_nothing() -> None:
    first, second = a_store(None), a_store(None)
    first.write(count)
    assert counted(second) == 0
    assert first.salt != second.salt
    assert len(first.salt) == 16
    first.release()  # which does not forget
    assert counted(first) == 1


def test_a_wrong_statement_is_trouble_and_leaves_nothing_open(store: Store, file: Path) -> None:
    with pytest.raises(Trouble, match="no such table"):
        store.write(lambda connection: connection.execute("DELETE FROM no_table"))
    with sqlite3.connect(file, timeout=0, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("COMMIT")
    other.close()


def test_a_transaction_waits_for_another_process_for_as_long_as_was_asked(
    store: Store, file: Path
) -> None:
    store.write(count)
    impatient = a_store(file, wait=0.05)
    assert counted(impatient) == 1
    holder = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    threading.Timer(0.3, lambda: holder.execute("COMMIT")).start()
    began = time.monotonic()
    store.write(count)
    assert 0.2 < time.monotonic() - began < 1.5
    holder.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(Trouble, match="locked") as found:
        impatient.write(count)
    assert reason(found) is Reason.LOCKED
    assert time.monotonic() - began < 0.5
    holder.execute("COMMIT")
    holder.close()
    impatient.release()
    assert counted(store) == 2


def test_a_use_within_a_transaction_of_the_same_thread_is_refused_not_nested(
    store: Store, file: Path
) -> None:
    found = []

    def handle(*_: object) -> None:
        for run in (store.write, store.read):
            with pytest.raises(Trouble, match="signal handler") as trouble:
                run(count)
            found.append(reason(trouble))
        for call in (store.secure, store.release, store.probe):
            with pytest.raises(Trouble, match="signal handler"):
                call()

    def work(connection: sqlite3.Connection) -> None:
        count(connection)
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        store.write(work)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == [Reason.LOCKED] * 2
    assert counted(store) == 1


def test_threads_take_turns(store: Store) -> None:
    def many() -> None:
        for _ in range(50):
            store.write(count)
            store.write(count)

    at_once(*[many] * 4)
    assert counted(store) == 400


def test_a_ledger_that_is_made_by_itself_says_since_when_it_counts(file: Path) -> None:
    store = a_store(file)
    store.write(count)
    assert store.created == NOW
    assert store.lost == ""
    store.release()
    again = Store(file, lambda: datetime(2027, 1, 1, tzinfo=UTC))
    assert counted(again) == 1
    assert again.created == NOW


def test_the_moment_that_a_ledger_was_made_is_corrected_once(store: Store, file: Path) -> None:
    store.probe()
    assert not store.is_confirmed
    right, later = datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 8, 1, tzinfo=UTC)
    other = a_store(file)
    other.probe()
    store.confirm_created(right)
    for one in (store, other):
        one.confirm_created(later)
        assert one.created == right
        assert one.is_confirmed
    other.release()
    again = a_store(file)
    again.probe()
    assert again.created == right
    assert again.is_confirmed


def test_a_ledger_that_was_made_on_purpose_has_no_moment_to_confirm(file: Path) -> None:
    create_ledger(file)
    store = a_store(file)
    store.confirm_created(NOW)
    assert store.created is None
    assert store.is_confirmed


def test_a_ledger_that_was_made_on_purpose_counts_from_the_beginning(file: Path) -> None:
    create_ledger(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    store = a_store(file)
    store.write(count)
    assert store.created is None
    store.release()
    with pytest.raises(InvalidInput, match=r"exists: a ledger .* remove it with its -wal"):
        create_ledger(file)
    assert counted(store) == 1


def test_a_ledger_is_not_made_beside_the_log_of_another_or_in_no_folder(file: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere does not exist: make it first"):
        create_ledger(file / "nowhere" / "ledger.db")
    Path(f"{file}-wal").write_bytes(b"a log")
    with pytest.raises(InvalidInput, match="it is the log of a ledger that was used"):
        create_ledger(file)
    assert not file.exists()


def test_only_the_owner_may_read_a_ledger(store: Store, file: Path) -> None:
    store.write(count)
    store.secure()
    for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        assert stat.S_IMODE(name.stat().st_mode) == 0o600
    store.release()
    assert [name.name for name in file.parent.iterdir()] == ["ledger.db"]


def test_a_relative_name_is_made_absolute_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = a_store(Path("ledger %41?#.db"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.write(count)
    store.release()
    assert [name.name for name in tmp_path.iterdir() if name.is_file()] == ["ledger %41?#.db"]


def test_a_file_that_is_removed_while_open_is_made_anew(store: Store, file: Path) -> None:
    store.write(count)
    store.secure()
    file.unlink()
    assert counted(store) == 0
    assert store.created == NOW
    store.write(count)
    store.secure()
    store.release()
    assert counted(store) == 1
    assert store.lost == ""


def test_an_empty_file_is_one_that_is_missing(file: Path) -> None:
    file.touch()
    store = a_store(file)
    store.write(count)
    assert store.created == NOW


@pytest.mark.parametrize("damage", ["garbage", "a page"])
def test_a_damaged_file_is_set_aside(file: Path, damage: str) -> None:
    create_ledger(file)
    store = a_store(file)
    store.write(lambda c: [count(c, f"a long name of a counter {i}") for i in range(2000)])
    store.release()
    content = bytearray(file.read_bytes())
    if damage == "garbage":
        content[4096:] = b"no database" * 1000
    else:
        content[-4096:] = os.urandom(4096)
    file.write_bytes(content)
    again = a_store(file)
    assert counted(again) == 0
    assert again.created == NOW
    again.release()
    (aside,) = file.parent.glob("ledger.db.corrupt-*")
    assert aside.read_bytes() == content


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_file_of_another_version_is_left_alone(file: Path, version: int) -> None:
    create_ledger(file)
    connection = sqlite3.connect(file)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    content = file.read_bytes()
    with pytest.raises(Trouble, match=f"has schema {version}; this version knows") as found:
        a_store(file).probe()
    assert reason(found) is Reason.OTHER_SCHEMA
    assert file.read_bytes() == content
    assert [name.name for name in file.parent.iterdir()] == ["ledger.db"]


@pytest.mark.parametrize("content", [b"x = 1\n", b"print('a program of the host')\n" * 1000])
def test_a_file_that_is_no_database_is_left_alone(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(Trouble, match="is no ledger; give another path") as found:
        a_store(file).probe()
    assert reason(found) is Reason.NOT_A_LEDGER
    assert file.read_bytes() == content
    assert [name.name for name in file.parent.iterdir()] == ["ledger.db"]


def test_a_database_of_something_else_is_left_alone(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE settings (name, value)")
    connection.close()
    content = file.read_bytes()
    with pytest.raises(Trouble, match="something else") as found:
        a_store(file).probe()
    assert reason(found) is Reason.NOT_A_LEDGER
    assert file.read_bytes() == content


def test_a_file_that_cannot_be_opened_is_tried_again_after_a_second(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    store = a_store(folder / "ledger.db")
    for _ in range(2):
        with pytest.raises(Trouble) as found:
            store.write(count)
        assert reason(found) is Reason.DISK
        folder.mkdir(exist_ok=True)
    time.sleep(1.05)
    store.write(count)


def test_a_read_only_folder_is_trouble_with_the_disk(small_disk: SmallDisk) -> None:
    file = small_disk.ledger()
    small_disk.make_read_only()
    for name in (file, small_disk.folder / "other.db"):
        with pytest.raises(Trouble) as found:
            a_store(name).write(count)
        assert reason(found) is Reason.DISK


def remember(connection: sqlite3.Connection, size: int = 3000) -> None:
    connection.execute(
        "INSERT INTO memos VALUES (?, '', '', '', '', ?)", (os.urandom(16), os.urandom(size))
    )


def memos(store: Store) -> int:
    (number,) = store.read(lambda c: c.execute("SELECT count(*) FROM memos").fetchone())
    return int(number)


def test_a_full_disk_takes_no_answer_but_lets_leave_what_was_taken(small_disk: SmallDisk) -> None:
    file = small_disk.ledger()
    store = a_store(file)
    store.write(lambda c: c.execute("INSERT INTO counters VALUES ('s', 'leased', 0)"))
    small_disk.fill(but=40_000)
    taken = 0
    with pytest.raises(Trouble) as found:
        while taken < 1000:
            store.write(remember)
            taken += 1
    assert reason(found) is Reason.DISK
    assert 0 < taken < 100
    store.secure()
    small_disk.empty()
    store.write(count)
    store.secure()
    store.release()
    again = a_store(file)
    assert memos(again) == taken
    assert again.lost == ""


def test_a_small_disk_holds_many_answers_however_much_the_log_takes_for_each(
    small_disk: SmallDisk,
) -> None:
    file = small_disk.ledger()
    store = a_store(file)
    for _ in range(300):
        store.write(functools.partial(remember, size=100))
    assert memos(store) == 300


def test_a_full_disk_lets_the_log_be_moved_and_used_again(small_disk: SmallDisk) -> None:
    file = small_disk.ledger()
    store = a_store(file)
    store.write(count)
    small_disk.fill_log(file)
    with pytest.raises(Trouble) as found:
        store.write(count)
    assert reason(found) is Reason.DISK
    store.secure()
    assert counted(store) == 1
    store.write(count)
    store.secure()
    alone = sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)
    assert alone.execute("SELECT count FROM counters").fetchall() == [(2,)]
    alone.close()


def test_a_full_disk_on_closing_loses_nothing(small_disk: SmallDisk) -> None:
    file = small_disk.ledger()
    store = a_store(file)
    store.write(count)
    small_disk.fill(but=50_000)
    store.write(functools.partial(remember, size=40_000))
    store.release()
    assert Path(f"{file}-wal").exists()  # it did not fit into the main file
    small_disk.empty()
    assert memos(store) == 1
    assert store.lost == ""


def test_a_long_log_is_moved_into_the_main_file(store: Store, file: Path) -> None:
    log, before = Path(f"{file}-wal"), 0
    assert not store.log_is_long
    store.write(count)
    before = log.stat().st_size
    store.tidy()
    assert store._log is not None
    short = store._log.size()
    for number in range(400):
        store.write(functools.partial(count, name=str(number)))
        if store.log_is_long:
            store.tidy()
    assert short <= before
    assert store._log.size() < 400_000
    assert log.stat().st_size < 1 << 20
    assert file.stat().st_size > 4096


def test_a_child_of_a_fork_is_kept_from_a_file_that_was_in_use(store: Store, file: Path) -> None:
    store.write(count)

    def child(usable: bool) -> int:
        store.after_fork(usable=usable)
        try:
            store.write(count)
        except Trouble as trouble:
            return 1 if trouble.status.reason is Reason.FORKED else 2
        store.release()
        return 0

    assert exit_code_of_a_child(lambda: child(usable=False)) == 1
    assert store.hold(1.0)
    store.release()
    assert exit_code_of_a_child(lambda: child(usable=True)) == 0
    store.let_go()
    assert counted(store) == 2
    assert not in_thread(lambda: store.write(lambda _: in_thread(lambda: store.hold(0.05))))


def in_thread(work: Callable[[], R]) -> R:
    results: list[R] = []
    at_once(lambda: results.append(work()))
    return results[0]


def test_a_store_that_nobody_closed_is_closed_when_it_is_dropped(file: Path) -> None:
    create_ledger(file)
    store = a_store(file)
    store.write(count)
    del store
    assert [name.name for name in file.parent.iterdir()] == ["ledger.db"]
    again = a_store(file)
    assert counted(again) == 1
    assert again.lost == ""


def test_a_process_that_exits_without_closing_leaves_a_ledger_that_is_whole(file: Path) -> None:
    create_ledger(file)
    script = (
        "import sys; from pathlib import Path; from datetime import datetime\n"
        "from hearsay.storage.store import Store\n"
        "store = Store(Path(sys.argv[1]), datetime.now)\n"
        "store.write(lambda c: c.execute(\"INSERT INTO counters VALUES ('s', 'answers', 1)\"))\n"
        "store.secure()\n"
        "sys.never_dropped = store, [store]\n"
    )
    subprocess.run([sys.executable, "-c", script, str(file)], check=True)
    store = a_store(file)
    assert counted(store) == 1
    assert store.lost == ""


def open_at_once(file: Path, everybody: threading.Barrier) -> None:
    everybody.wait(30)
    store = Store(file, lambda: NOW)
    store.write(count)
    store.secure()
    store.release()


@pytest.mark.slow
def test_processes_that_open_a_missing_file_at_once_share_one(file: Path) -> None:
    context = multiprocessing.get_context("spawn")
    everybody = context.Barrier(4)
    processes = [context.Process(target=open_at_once, args=(file, everybody)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    store = a_store(file)
    assert counted(store) == 4
    assert store.lost == ""


@pytest.mark.parametrize(
    ("state", "looks_by"),
    [("missing", "size_of"), ("lost", "mismatch_of"), ("damaged", "mismatch_of")],
)
def test_a_ledger_mended_after_a_look_at_it_is_not_set_aside(
    state: str, looks_by: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state != "missing":
        create_ledger(file)
    if state == "lost":
        used = a_store(file)
        used.write(count)
        used.secure()
        older = file.read_bytes()  # needs its log
        used.release()
        file.write_bytes(older)
    if state == "damaged":
        file.write_bytes(b"SQLite format 3\0" + bytes(5_000))
    first = a_store(file)
    look = getattr(store_module, looks_by)

    def overtaken(path: Path) -> object:
        monkeypatch.setattr(store_module, looks_by, look)
        try:
            return look(path)
        finally:
            first.write(count)  # between the second one's look and what it does about it

    monkeypatch.setattr(store_module, looks_by, overtaken)
    second = a_store(file)
    second.write(count)
    first.secure()
    second.secure()
    assert counted(first) == counted(second) >= 2


def test_no_statement_has_numbered_placeholders() -> None:
    """Python 3.12.0 to 3.12.3 take "?1" for a name, and warn where values come by position."""
    folder = Path(hearsay.__file__).parent
    strings = [
        node.value
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert any("SELECT" in string for string in strings)
    assert not [string for string in strings if re.search(r"\?\d", string)]
