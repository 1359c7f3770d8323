"""A main file without its log, or with an older one, is a lost ledger; a killed process is none."""

import mmap
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from disks import SmallDisk

from hearsay.storage.new_ledger import create_ledger
from hearsay.storage.store import Store
from support import wait_until

EARLIER, NOW = datetime(2026, 7, 4, 12, tzinfo=UTC), datetime(2026, 7, 5, 12, tzinfo=UTC)

KILLER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
static long left = -1;
void kill_at(long calls) { left = calls; }
static void count(void) { if (left > 0 && --left == 0) kill(getpid(), SIGKILL); }
#define COUNTED(type, name, parameters, ...) \\
    type name parameters { \\
        static type (*real) parameters; \\
        if (!real) real = dlsym(RTLD_NEXT, #name); \\
        count(); \\
        return real(__VA_ARGS__); \\
    }
COUNTED(ssize_t, write, (int f, const void *b, size_t n), f, b, n)
COUNTED(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), f, b, n, o)
COUNTED(ssize_t, pwrite64, (int f, const void *b, size_t n, off_t o), f, b, n, o)
COUNTED(int, fsync, (int f), f)
COUNTED(int, fdatasync, (int f), f)
COUNTED(int, ftruncate, (int f, off_t n), f, n)
COUNTED(int, ftruncate64, (int f, off_t n), f, n)
COUNTED(int, unlink, (const char *p), p)
COUNTED(int, unlinkat, (int d, const char *p, int g), d, p, g)
COUNTED(int, rename, (const char *a, const char *b), a, b)
COUNTED(int, link, (const char *a, const char *b), a, b)
COUNTED(int, linkat, (int c, const char *a, int d, const char *b, int g), c, a, d, b, g)
COUNTED(int, flock, (int f, int o), f, o)
"""
"""A library for `LD_PRELOAD` that kills the process before a call that changes a file."""

VICTIM = """
import ctypes, mmap, os, signal, sys
from datetime import datetime
from pathlib import Path
from hearsay.storage.store import Store

file, tight = Path(sys.argv[1]), sys.argv[2] == "tight"
kept = mmap.mmap(os.open(f"{file}.kept", os.O_RDWR), 4096)  # outlives the process

def remember(connection):
    connection.execute(
        "INSERT INTO memos VALUES (?, '', '', '', '', ?)", (os.urandom(16), bytes(2000))
    )

def live(slot):
    for round in range(3 if tight else 1000):
        store = Store(file, datetime.now)
        for number in range(2 if tight else 20):
            store.write(remember)
            # Each process counts for itself, after the fact.
            at = slice(8 * slot, 8 * slot + 8)
            kept[at] = (int.from_bytes(kept[at], "big") + 1).to_bytes(8, "big")
            if number % 3 == 1:
                store.secure()
        assert not store.lost, store.lost
        if round % 2:
            del store  # nobody closes it
        else:
            store.release()
    os._exit(0)

for line in sys.stdin:
    slot, calls = map(int, line.split())
    pid = os.fork()
    if pid == 0:
        if tight:
            ctypes.CDLL(None).kill_at(ctypes.c_long(calls))
        try:
            live(slot)
        except BaseException as error:
            sys.stderr.write(repr(error))
            os._exit(1)
    print(pid, flush=True)
    if tight:
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""A zygote: for each line of its input, a child that uses the ledger until it is killed."""


class Victims:
    """Processes that use a ledger, and how many rows they know that they committed."""

    def __init__(self, file: Path, kind: str, library: Path | None = None) -> None:
        kept = Path(f"{file}.kept")
        kept.write_bytes(bytes(4096))
        with kept.open("r+b") as content:
            self._kept = mmap.mmap(content.fileno(), 4096)
        self.process = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(file), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ({"LD_PRELOAD": str(library)} if library else {}),
        )

    def start(self, slot: int = 0, calls: int = 0) -> int:
        """Start a child, which counts in a slot, and return its pid."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{slot} {calls}\n")
        self.process.stdin.flush()
        return self.read()

    def read(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def committed(self) -> int:
        return sum(int.from_bytes(self._kept[8 * i : 8 * i + 8], "big") for i in range(8))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._kept.close()


def rows(store: Store) -> int:
    (number,) = store.read(lambda c: c.execute("SELECT count(*) FROM memos").fetchone())
    return int(number)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The name of a ledger."""
    return tmp_path / "ledger.db"


def a_store(file: Path, at: datetime = NOW) -> Store:
    """Open a store; it closes its file when it is dropped, at the end of a test."""
    return Store(file, lambda: at)


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that kills."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a C compiler and Linux are needed to kill at a call")
    folder = tmp_path_factory.mktemp("killer")
    (folder / "killer.c").write_text(KILLER)
    library = folder / "killer.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, folder / "killer.c", "-ldl"],
        check=True,
    )
    return library


@pytest.mark.parametrize(
    ("disk", "step"),
    [
        ("tmp_path", 97),
        pytest.param("tmp_path", 1, marks=pytest.mark.slow),
        pytest.param("small_disk", 1, marks=pytest.mark.slow),
    ],
)
def test_a_kill_before_any_write_sync_or_removal_loses_nothing(
    request: pytest.FixtureRequest, killer: Path, disk: str, step: int
) -> None:
    folder = request.getfixturevalue(disk)
    file = (folder.folder if isinstance(folder, SmallDisk) else folder) / "ledger.db"
    victims = Victims(file, "tight", killer)
    calls = 0
    ends: list[int] = []
    try:
        while not ends or ends[-1] != 0:
            calls += step
            for name in file.parent.glob("ledger.db*"):
                if name.suffix != ".kept":
                    name.unlink()
            create_ledger(file)
            before = victims.committed()
            victims.start(calls=calls)
            ends.append(victims.read())
            store = a_store(file)
            found = rows(store)
            assert store.lost == "", f"killed at call {calls}"
            assert found - (victims.committed() - before) in (0, 1), f"killed at call {calls}"
            assert store.created is None
            store.release()
    finally:
        victims.close()
    assert set(ends) == {-signal.SIGKILL, 0}
    assert calls > 100


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2])
def test_kills_at_any_moment_lose_nothing(file: Path, at_once: int) -> None:
    create_ledger(file)
    victims, chance = Victims(file, "loose"), random.Random(at_once)
    try:
        for kill in range(100):
            pids = [victims.start(slot) for slot in range(at_once)]
            time.sleep(chance.uniform(0.001, 0.05))
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            for pid in pids:
                while Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
                    time.sleep(0.001)
            store = a_store(file)
            found = rows(store)
            assert store.lost == "", f"kill {kill}"
            assert 0 <= found - victims.committed() <= at_once * (kill + 1)
            if kill % 2:
                store.secure()
            if kill % 3:
                store.release()
    finally:
        victims.close()
    assert victims.process.returncode == -signal.SIGKILL
    assert rows(store) > 20  # so many were recorded between the kills
    store.release()
    assert not list(file.parent.glob("*.lost-*"))


def killed(file: Path, work: str) -> None:
    """Run statements on a store of the file, and kill the process."""
    script = (
        "import os, signal, sys; from datetime import datetime; from pathlib import Path\n"
        "from hearsay.storage.store import Store\n"
        "store = Store(Path(sys.argv[1]), datetime.now)\n"
        "def add(name):\n"
        "    store.write(lambda c: c.execute('INSERT INTO counters VALUES (?, ?, 1)',\n"
        "                                    ('s', name)))\n"
        f"{work}\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(file)], check=False)
    assert ended.returncode == -signal.SIGKILL


def names(store: Store) -> set[str]:
    found = store.read(lambda c: c.execute("SELECT name FROM counters").fetchall())
    return {name for (name,) in found}


def log(file: Path) -> Path:
    return Path(f"{file}-wal")


@pytest.fixture
def used(file: Path) -> Iterator[Path]:
    """A ledger whose process was killed after it had spent and secured."""
    create_ledger(file)
    killed(file, "add('secured'); store.secure(); add('spent')")
    assert log(file).exists()
    yield file
    for name in ("ledger.db", "ledger.db-wal"):
        (file.parent / name).unlink(missing_ok=True)


def expect_lost(file: Path, why: str) -> None:
    store = a_store(file)
    store.probe()
    assert why in store.lost
    assert store.created == NOW
    store.release()
    again = a_store(file, datetime(2026, 7, 9, tzinfo=UTC))
    again.probe()
    assert again.created == NOW  # once is enough
    assert why in again.lost
    again.secure()
    again.release()


def test_a_killed_process_leaves_what_it_committed(used: Path) -> None:
    store = a_store(used)
    assert names(store) == {"secured", "spent"}
    assert store.lost == ""
    assert store.created is None
    store.release()
    assert not log(used).exists()
    assert names(store) == {"secured", "spent"}
    assert store.lost == ""


@pytest.mark.parametrize("cut", [None, 0, 20])
def test_a_missing_log_is_a_lost_ledger(used: Path, cut: int | None) -> None:
    if cut is None:
        log(used).unlink()
    else:
        os.truncate(log(used), cut)
    expect_lost(used, "is missing" if cut is None else "empty or damaged")


def test_the_main_file_alone_is_a_lost_ledger_also_before_anything_was_secured(
    file: Path,
) -> None:
    create_ledger(file)
    killed(file, "add('spent')")
    shutil.copy(file, file.with_name("copy.db"))
    expect_lost(file.with_name("copy.db"), "is missing")


def test_an_older_log_is_a_lost_ledger_and_is_not_replayed(used: Path) -> None:
    kept = log(used).read_bytes()
    killed(used, "store.secure(); add('later')")
    newer = log(used).read_bytes()
    log(used).write_bytes(kept)
    expect_lost(used, "not the one that the ledger was last used with")
    (aside,) = [name for name in used.parent.iterdir() if name.match("*.lost-*-wal")]
    assert aside.read_bytes() == kept != newer
    store = a_store(used)
    assert names(store) == {"secured", "spent"}


def test_an_older_main_file_is_a_lost_ledger(used: Path) -> None:
    kept = used.read_bytes()
    killed(used, "store.secure(); add('later'); store.secure(); add('last')")
    used.write_bytes(kept)
    expect_lost(used, "not the one that the ledger was last used with")


def test_the_copy_of_a_closed_ledger_does_not_go_with_a_later_log(file: Path) -> None:
    create_ledger(file)
    store = a_store(file)
    store.probe()
    store.release()
    kept = file.read_bytes()
    killed(file, "add('spent'); store.secure(); add('last')")
    file.write_bytes(kept)
    expect_lost(file, "not the one that the ledger was last used with")


def test_an_older_log_beside_a_closed_ledger_is_not_replayed(file: Path) -> None:
    create_ledger(file)
    store = a_store(file)
    store.write(lambda c: c.execute("INSERT INTO counters VALUES ('s', 'secured', 1)"))
    store.secure()
    kept = log(file).read_bytes()
    store.write(lambda c: c.execute("INSERT INTO counters VALUES ('s', 'spent', 1)"))
    store.release()
    assert not log(file).exists()
    log(file).write_bytes(kept)
    expect_lost(file, "not the one that the ledger was last used with")
    again = a_store(file)
    assert names(again) == {"secured", "spent"}


def test_an_older_log_is_not_replayed_after_a_close_on_a_full_disk(small_disk: SmallDisk) -> None:
    file = small_disk.ledger()
    store = a_store(file)
    store.secure()
    store.write(lambda c: c.execute("INSERT INTO counters VALUES ('s', 'spent', 1)"))
    kept = log(file).read_bytes()
    small_disk.fill_log(file)
    store.release()
    assert not log(file).exists()
    small_disk.empty()
    log(file).write_bytes(kept)
    expect_lost(file, "not the one that the ledger was last used with")


def test_a_log_of_another_ledger_is_not_replayed(used: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    create_ledger(other)
    killed(other, "add('other'); store.secure(); add('another')")
    shutil.copy(log(other), log(used))
    expect_lost(used, "not the one that the ledger was last used with")


def test_a_new_ledger_takes_nothing_from_a_log_that_an_earlier_one_left(used: Path) -> None:
    used.unlink()
    store = a_store(used)
    assert names(store) == set()
    assert store.created == NOW
    store.release()
    assert len(list(used.parent.glob("*.lost-*-wal"))) == 1


def test_a_ledger_of_which_a_kill_left_all_files_may_be_moved(used: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(f"{used}{ending}", folder)
    store = a_store(folder / used.name)
    assert names(store) == {"secured", "spent"}
    assert store.lost == ""


def test_another_program_may_look_into_a_ledger_and_close_it(used: Path) -> None:
    connection = sqlite3.connect(used)
    assert connection.execute("SELECT count(*) FROM counters").fetchone() == (2,)
    connection.close()
    assert not log(used).exists()
    store = a_store(used)
    assert names(store) == {"secured", "spent"}
    assert store.lost == ""


def test_what_waits_in_a_lost_ledger_is_dropped_and_counted(file: Path) -> None:
    create_ledger(file)
    store = a_store(file, EARLIER)

    def queue(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO totals VALUES ('one', 7, 70, 5, 50)")
        connection.executemany(
            "INSERT INTO reports VALUES (?, ?, ?, 0, '', ?)",
            [("one", 8, 80, bytes(10)), ("one", 9, 85, bytes(5)), ("two", 1, 3, bytes(3))],
        )
        connection.execute("INSERT INTO counters VALUES ('one', 'lost', 1)")

    store.write(queue)
    store.secure()
    shutil.copy(file, file.with_name("copy.db"))
    store.release()
    copy = a_store(file.with_name("copy.db"))
    totals = copy.read(lambda c: c.execute("SELECT * FROM totals ORDER BY survey").fetchall())
    # In survey one, 2 of 2 + 10 - 5 still wait: those of the batches.
    assert totals == [("one", 9, 85, 7, 65), ("two", 1, 3, 1, 3)]
    counts = copy.read(lambda c: c.execute("SELECT * FROM counters ORDER BY survey").fetchall())
    assert counts == [("one", "lost", 3), ("two", "lost", 1)]
    assert copy.read(lambda c: c.execute("SELECT count(*) FROM reports").fetchone()) == (0,)


def test_a_lost_ledger_forgets_every_consent(file: Path) -> None:
    create_ledger(file)
    store = a_store(file, EARLIER)
    store.write(
        lambda c: c.execute("INSERT INTO people VALUES ('one', '', 1, '{}'), ('two', 'p', 1, '{}')")
    )
    store.secure()
    shutil.copy(file, file.with_name("copy.db"))  # and then everybody revokes
    store.release()
    copy = a_store(file.with_name("copy.db"))
    assert copy.read(lambda c: c.execute("SELECT consent FROM people").fetchall()) == [(0,), (0,)]


def test_what_was_secured_is_in_the_main_file(file: Path) -> None:
    create_ledger(file)
    store = a_store(file)
    store.write(lambda c: c.execute("INSERT INTO counters VALUES ('s', 'secured', 1)"))
    store.secure()
    alone = sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)
    assert alone.execute("SELECT name FROM counters").fetchall() == [("secured",)]
    alone.close()


def test_two_stores_that_secure_at_once_lose_nothing(file: Path) -> None:
    create_ledger(file)
    victims = Victims(file, "loose")
    try:
        pids = [victims.start(slot) for slot in range(2)]
        wait_until(lambda: victims.committed() > 100, 60)
        for pid in pids:
            os.kill(pid, 0)
            assert Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"  # none has failed
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        victims.close()
    store = a_store(file)
    assert rows(store) > 100
    assert store.lost == ""
