"""What other users of the machine can get at: nothing of a server's, shuffler's or helper's."""

import contextlib
import logging
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helping import helping
from serving import serving

from hearsay_server import private
from hearsay_server.commands.serve import warn_of_file
from hearsay_server.config import Config
from hearsay_server.elsewhere.own_file import OwnFile
from hearsay_server.helper.held import Shares
from hearsay_server.shuffler.pools import Pools
from hearsay_server.storage.backup import backup
from hearsay_server.storage.database import Database, open_folder
from hearsay_server.storage.tokens import Tokens
from ldp.errors import StorageFailed
from support import Calendar, free_port

_LOG = logging.getLogger("hearsay.server")


@pytest.fixture(params=[0, 0o022], ids=["umask 0", "umask 022"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Return the mode of a folder, as ".", and of each file in it."""
    paths = {".": folder, **{file.name: file for file in folder.iterdir()}}
    return {name: stat.S_IMODE(path.stat().st_mode) for name, path in paths.items()}


def widen(folder: Path) -> None:
    """Give a folder and its files the modes of an earlier version."""
    for file in folder.iterdir():
        file.chmod(0o644)
    folder.chmod(0o755)


@pytest.fixture
def database(umask: None, tmp_path: Path) -> Iterator[Database]:
    opened = open_folder(tmp_path / "parent" / "data")
    yield opened
    opened.close()


def test_a_new_database_and_its_logs_are_their_owners_alone(
    database: Database, tmp_path: Path
) -> None:
    Tokens(database).create("admin")
    found = modes(tmp_path / "parent" / "data")
    assert {"hearsay.db", "hearsay.db-wal", "hearsay.db-shm", "lock"} <= {*found}
    assert found.pop(".") == 0o700
    assert {*found.values()} == {0o600}
    assert modes(tmp_path / "parent")["."] == 0o700


def test_a_backup_is_its_owners_alone(database: Database, tmp_path: Path) -> None:
    backup(database, tmp_path / "backup")
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("kind", [Pools, Shares])
def test_what_a_shuffler_and_a_helper_keep_is_their_owners_alone(
    kind: Callable[[Path], OwnFile], tmp_path: Path
) -> None:
    own = kind(tmp_path / "data")
    with own.writing() as connection:
        connection.execute("INSERT INTO plans VALUES ('daily', x'00')")
        found = modes(tmp_path / "data")  # with the journal
    own.close()
    assert any(name.endswith("-journal") for name in found)
    assert found.pop(".") == 0o700
    assert {*found.values()} == {0o600}


@pytest.mark.usefixtures("umask")
def test_new_files_are_their_owners_alone_in_a_wide_folder(tmp_path: Path) -> None:
    wide = tmp_path / "wide"
    wide.mkdir(mode=0o755)
    wide.chmod(0o755)
    open_folder(wide).close()
    Pools(wide).close()
    found = modes(wide)
    assert found.pop(".") == 0o755
    assert {*found.values()} == {0o600}


def test_a_database_that_is_there_is_not_opened_and_closed_beside_sqlite(tmp_path: Path) -> None:
    """POSIX ends all of a process's locks on a file where the process closes it once."""
    with contextlib.closing(open_folder(tmp_path)) as first, first.beside():
        before = Path("/proc/locks").read_text().count(f":{inode(tmp_path)} ")
        private.make_file(tmp_path / "hearsay.db")
        assert Path("/proc/locks").read_text().count(f":{inode(tmp_path)} ") == before > 0


def inode(folder: Path) -> int:
    return (folder / "hearsay.db").stat().st_ino


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")
@pytest.mark.usefixtures("umask")
def test_another_user_reads_nothing_of_a_server_that_runs() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        Path(name, "theirs").write_text("open")
        Path(name, "theirs").chmod(0o644)
        with serving(Path(name, "data")):
            # It prints the names of the files that it could read.
            done = subprocess.run(
                ["grep", "-rls", "", name],
                capture_output=True,
                text=True,
                cwd="/",
                user=65534,
                group=65534,
                extra_groups=[],
            )
        assert done.stdout == f"{name}/theirs\n"


AS_NOBODY = """
import contextlib, importlib, os, sys
from hearsay_server import cli
from hearsay_server.__main__ import main
from hearsay_server.serving import serve
for name in ("tokens", "upkeep", "shuffler", "helper", "audit_log", "configuration"):
    importlib.import_module(f"hearsay_server.commands.{name}")
folder = sys.argv[1]
os.setgroups([]), os.setgid(65534), os.setuid(65534)
for command in sys.argv[2:]:
    sys.argv = ["hearsay", *command.format(folder).split()]
    try:
        main()
    except SystemExit as end:
        print(end.code)
    except BaseException as error:
        print("a traceback:", type(error))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")
def test_another_user_is_told_in_one_line_that_a_folder_is_not_theirs() -> None:
    commands = [
        *("token create --role admin --data {0}/data", "token list --data {0}/data"),
        *("token revoke a --data {0}/data", "verify --data {0}/data", "audit-log --data {0}/data"),
        *("retention --keep-days 1 --data {0}/data", "backup {0}/data/backup --data {0}/data"),
        *("restore {0}/data/hearsay.db --data {0}/other", "restore {0}/good --data {0}/data"),
        *("restore {0}/good --data {0}/data/new", "shuffler show --data {0}/data"),
        *(
            "shuffler key --data {0}/data",
            "helper show --data {0}/data",
            "helper key --data {0}/data",
        ),
        "serve --listen 127.0.0.1:0 --data {0}/data",
        "serve --listen 127.0.0.1:0 --data {0}/other --encryption-key {0}/data/hearsay.db",
    ]
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with contextlib.closing(open_folder(Path(name, "data"))) as database:
            backup(database, Path(name, "good"))
        Path(name, "good").chmod(0o644)
        Pools(Path(name, "data")).close()
        Shares(Path(name, "data")).close()
        run = [sys.executable, "-c", AS_NOBODY, name, *commands]
        done = subprocess.run(run, capture_output=True, text=True, cwd=name, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == len(commands), done.stderr
    for command, line in zip(commands, lines, strict=True):  # 2: an option's value is refused
        assert line == "2" or line.startswith("hearsay: "), (command, line)


@pytest.mark.parametrize("name", ["data", "with space"])
def test_a_wider_folder_and_its_files_are_named_once_with_what_to_run(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / name
    open_folder(folder).close()
    (folder / "of-the-operators").write_text("")
    private.warn(_LOG, folder)
    assert not caplog.records
    widen(folder)
    private.warn(_LOG, folder)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    _, _, command = record.getMessage().partition("run ")
    subprocess.run(["sh", "-c", command], check=True)
    found = modes(folder)
    assert (found.pop("."), found.pop("of-the-operators")) == (0o700, 0o644)
    assert {*found.values()} == {0o600}
    private.warn(_LOG, folder)
    assert len(caplog.records) == 1


def test_a_server_names_a_wider_folder_as_it_starts_and_leaves_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    with serving(folder):
        pass
    told = [r.getMessage() for r in caplog.records if "chmod" in r.getMessage()]
    assert [words.partition("run ")[2] for words in told] == [f"chmod go-rwx {folder}"]
    assert modes(folder)["."] == 0o755


def test_a_helper_names_a_wider_folder_as_it_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Shares(tmp_path / "data").close()
    (tmp_path / "data").chmod(0o750)
    port = free_port()
    with helping(tmp_path / "data", f"127.0.0.1:{free_port()}", port, Calendar()):
        pass
    assert f"run chmod go-rwx {tmp_path / 'data'}" in caplog.text


def test_a_private_key_that_everybody_reads_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = tmp_path / "key.pem"
    key.touch()
    for mode, told in ((0o600, 0), (0o640, 0), (0o644, 1)):
        key.chmod(mode)
        private.warn_of_secrets(_LOG, [None, tmp_path / "missing", key])
        assert len(caplog.records) == told
    assert f"run chmod o-rwx {key}" in caplog.text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('helper_token = "hearsay-1"', True),
        ('helper_token = ""\ndatabase = "postgresql://db/hearsay"', False),
        ('database = "postgresql://ada:secret@db/hearsay"', True),
        ('database = "postgresql://db/hearsay?password=secret"', True),
        ('helper = "helper.example:443"', False),
    ],
)
def test_a_configuration_with_secrets_that_everybody_reads_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, told: bool
) -> None:
    file = tmp_path / "hearsay.toml"
    file.write_text(text, encoding="utf-16")  # as some editors write
    file.chmod(0o600)
    warn_of_file(Config, file)
    warn_of_file(Config, None)
    assert not caplog.records
    file.chmod(0o644)
    warn_of_file(Config, file)
    assert (f"run chmod o-rwx {file}" in caplog.text) == told
    assert "secret@" not in caplog.text


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    for opens in (open_folder, Pools, Shares):
        with pytest.raises(StorageFailed, match="data"):
            opens(tmp_path / "data")


@pytest.mark.parametrize(
    ("opens", "name"),
    [
        (open_folder, "hearsay.db"),
        (open_folder, "lock"),
        (Pools, "pools.db"),
        (Shares, "shares.lock"),
    ],
)
def test_a_file_that_is_a_link_is_refused(
    tmp_path: Path, opens: Callable[[Path], object], name: str
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailed, match="symbolic link"):
        opens(tmp_path / "data")
    assert not (tmp_path / "elsewhere").exists()


def test_the_room_for_revocations_is_taken_of_no_linked_file(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reserve").symlink_to(theirs)
    database = open_folder(tmp_path / "data")
    with database.beside(on_a_full_disk=True):
        assert theirs.read_text() == "precious"
    database.close()
    assert theirs.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give a folder away")
def test_another_user_who_owns_the_folder_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    open_folder(folder).close()
    os.chown(folder, 65534, 65534)
    private.warn(_LOG, folder)
    assert f"user 65534 owns {folder}, and can read keys" in caplog.text
    assert f"run chown 0 {folder}" in caplog.text
