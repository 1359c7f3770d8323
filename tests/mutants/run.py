"""Put each deliberate privacy bug into a copy of the tree, and see that its tests fail.

    python tests/mutants/run.py [--tenth [SEED]] [NAME ...]

The files `*.toml` beside this one hold the bugs, one table each:

    [[bug]]
    name = "krr-keeps-too-often"    # its own, for the report and the command line
    file = "ldp/mechanisms/frequency/krr.py"
    before = "..."                  # text that stands in the file exactly once
    after = "..."                   # what stands in its place
    why = "..."                     # what it would tell of a person
    tests = ["tests/ldp/test_krr.py::test_..."]    # that must kill it, one of them at least

Tests of the TypeScript SDK are files below `client/web/test`, with `::` and a part of a test's
name, such as `client/web/test/coins.test.ts::every bit`.
A bug is killed by a test that fails, or by a mechanism that its own checks refuse as tests are
collected; not by a file that cannot be read: that is an error of the bug, as are a text that stands
in its file no more and tests that fail without the bug.
"""

import argparse
import contextlib
import importlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WEB = "client/web"
WORKERS = 2
SECONDS = 120.0
"""How long one run of tests may take that is to end at the first failure."""

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "node_modules", ".*_cache", "site", "*.part")
_PRELOADED = (
    "numpy",
    "scipy.stats",
    "pytest",
    "hypothesis",
    "hypothesis.extra.numpy",
    "google.protobuf.message",
    "grpc",
    "cryptography.hazmat.primitives.ciphers.aead",
    "pydantic_settings",
    "sqlalchemy",
    "alembic",
    "uvicorn",
    "typer",
    "rich",
    "torch",
)
"""Packages of others, loaded once: each run of tests is forked from a process that has them."""
_REFUSED = re.compile(r"^E +(ldp\.errors\.\w+|AssertionError)", re.MULTILINE)
"""An error of ours, of a mechanism that checks itself as a module of tests makes it."""
_BROKEN = re.compile(
    r"^E +((?:Syntax|Indentation|Name|Import|ModuleNotFound)Error.*)", re.MULTILINE
)
"""An error that a bug must not be killed by: it tells of a slip in the bug."""


@dataclass(frozen=True)
class Bug:
    """A deliberate privacy bug."""

    name: str
    file: str
    before: str
    after: str
    why: str
    tests: tuple[str, ...]

    def applied(self, root: Path) -> str:
        """Return the file's text with the bug; raise `ValueError` where it does not fit."""
        text = (root / self.file).read_text(encoding="utf-8")
        if (times := text.count(self.before)) != 1:
            raise ValueError(f"{self.name}: its text stands {times} times in {self.file}, not once")
        if self.before == self.after:
            raise ValueError(f"{self.name}: it changes nothing")
        changed = text.replace(self.before, self.after)
        if self.file.endswith(".py"):
            compile(changed, self.file, "exec")
        return changed


def bugs(folder: Path = HERE) -> list[Bug]:
    """Return all bugs, in order of their files."""
    found = []
    for file in sorted(folder.glob("*.toml")):
        for table in tomllib.loads(file.read_text(encoding="utf-8"))["bug"]:
            found.append(Bug(**{**table, "tests": tuple(table["tests"])}))
    return found


def tenth(of: Sequence[Bug], seed: str) -> list[Bug]:
    """Return a tenth of the bugs, drawn by a seed such as the day."""
    return random.Random(seed).sample(list(of), math.ceil(len(of) / 10))


@dataclass(frozen=True)
class Run:
    """What tests came to: whether one failed, or why that cannot be said, and what was printed."""

    failed: bool
    trouble: str
    output: str
    seconds: float


class Tree:
    """A copy of the tree, in which tests run."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / "tree"
        self._folder = folder
        # With the compiled files, which go by the time of their source.
        shutil.copytree(root, self.root, symlinks=True, ignore=_LEFT_OUT)
        for linked in (".venv", f"{WEB}/node_modules"):
            if (root / linked).exists():
                (self.root / linked).symlink_to(root / linked)

    @contextlib.contextmanager
    def having(self, bug: Bug) -> Iterator[None]:
        """Put a bug into the tree, and take it out again."""
        file, changed = self.root / bug.file, bug.applied(self.root)
        text, at = file.read_bytes(), file.stat()
        file.write_text(changed, encoding="utf-8")
        # A time of its own, or a compiled file of the same second could be taken for it.
        os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns + 7_000_000_000))
        try:
            yield
        finally:
            file.write_bytes(text)
            os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))

    def run(self, tests: Iterable[str], *, keep: bool) -> Run:
        """Run tests until one fails. `keep` says whether Python may keep what it compiles."""
        tests, began = list(dict.fromkeys(tests)), time.monotonic()
        in_web = [each for each in tests if each.startswith(WEB)]
        in_python = [each for each in tests if each not in in_web]
        parts = []
        if in_python:
            parts.append(self._pytest(in_python, keep))
        if in_web and not any(part.failed or part.trouble for part in parts):
            parts.append(self._vitest(in_web))
        last = parts[-1]
        return Run(last.failed, last.trouble, last.output, time.monotonic() - began)

    def _pytest(self, tests: list[str], keep: bool) -> Run:
        log = self._folder / "log"
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                for stream in (1, 2):
                    os.dup2(out, stream)
                os._exit(_run_pytest(self.root, tests, keep))
            except BaseException as error:
                os.write(2, repr(error).encode())
                os._exit(70)
        code = _ended(child, 10 * SECONDS if keep else SECONDS)
        output = log.read_text(encoding="utf-8", errors="replace")
        killed = code == 1 or (code in (2, 4) and bool(_REFUSED.search(output)))
        trouble = "" if code == 0 or killed else f"pytest ended with {code}"
        if broken := _BROKEN.search(output):
            trouble = f"the bug cannot be run: {broken[1]}"
        return Run(killed and not trouble, trouble, output, 0)

    def _vitest(self, tests: list[str]) -> Run:
        told = self._folder / "vitest.json"
        told.unlink(missing_ok=True)
        split = [each.partition("::") for each in tests]
        files = sorted({file.removeprefix(f"{WEB}/") for file, _, _ in split})
        names = "|".join(re.escape(name) for _, _, name in split)
        command = ["node_modules/.bin/vitest", "run", "--project", "quick", "--bail", "1"]
        command += ["--reporter", "json", "--outputFile", str(told), "-t", names, *files]
        try:
            done = subprocess.run(
                command, cwd=self.root / WEB, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return Run(False, "vitest took too long", "", 0)
        output = done.stdout + done.stderr
        if not told.exists():
            return Run(False, f"vitest ended with {done.returncode}", output, 0)
        counts = json.loads(told.read_text(encoding="utf-8"))
        failed, passed = counts["numFailedTests"], counts["numPassedTests"]
        trouble = "" if failed or (passed and counts["success"]) else "vitest ran no test"
        return Run(failed > 0, trouble, output, 0)


def _run_pytest(root: Path, tests: list[str], keep: bool) -> int:
    import pytest

    os.chdir(root)
    ours = [str(root / folder) for folder in ("", "client/python", "server")]
    sys.path[:0] = ours
    os.environ["PYTHONPATH"] = os.pathsep.join(ours)
    sys.dont_write_bytecode = not keep
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", f"--rootdir={root}"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-m", "not long"]
    return int(pytest.main([*options, *tests]))


def _ended(child: int, seconds: float) -> int:
    """Wait for a child and end its group; return its exit code, 124 where it took too long."""
    end = time.monotonic() + seconds
    code = None
    while code is None and time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if ended else None
        time.sleep(0 if ended else 0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return 124 if code is None else code


_TREE: Tree
"""The copy of this worker."""


def _begin(root: Path, folder: Path) -> None:
    global _TREE
    _TREE = Tree(root, Path(tempfile.mkdtemp(dir=folder)))


def _baseline(tests: Sequence[str]) -> Run:
    return _TREE.run(tests, keep=True)


def _with(bug: Bug) -> Run:
    with _TREE.having(bug):
        return _TREE.run(bug.tests, keep=False)


def check(chosen: Sequence[Bug], root: Path = ROOT) -> int:
    """Return how many of the bugs survive, or cannot be tried; say so of each."""
    for bug in chosen:
        bug.applied(root)  # before anything runs
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    began, faults = time.monotonic(), []
    fork = get_context("fork")
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        ProcessPoolExecutor(WORKERS, fork, _begin, (root, Path(folder))) as pool,
    ):
        tests = sorted({test for bug in chosen for test in bug.tests})
        in_python = [each for each in tests if not each.startswith(WEB)]
        parts = [in_python[first::WORKERS] for first in range(WORKERS)]
        parts.append([each for each in tests if each.startswith(WEB)])
        for run in pool.map(_baseline, filter(None, parts)):
            if run.failed or run.trouble:
                _say(f"tests fail without any bug: {run.trouble}\n{run.output[-4000:]}")
                return len(chosen)
        _say(f"{len(tests)} tests pass without a bug, {time.monotonic() - began:.0f} s")
        for bug, run in zip(chosen, pool.map(_with, chosen), strict=True):
            said = run.trouble or ("killed" if run.failed else "SURVIVES")
            _say(f"{said}, {run.seconds:.1f} s: {bug.name}")
            if not run.failed:
                faults.append(bug)
                _say(f"  {bug.file}: {bug.why}\n{run.output[-2000:] if run.trouble else ''}")
    _say(
        f"{len(chosen) - len(faults)} of {len(chosen)} deliberate bugs were killed, "
        f"in {time.monotonic() - began:.0f} s"
    )
    return len(faults)


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main() -> None:
    """Try the bugs that the command line names; all where it names none."""
    parser = argparse.ArgumentParser(description="Put deliberate privacy bugs before the tests.")
    parser.add_argument("names", nargs="*", help="the bugs to try, or parts of their names")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    parser.add_argument("--tenth", nargs="?", const=today, help="a tenth, drawn by this seed")
    given = parser.parse_args()
    chosen = [b for b in bugs() if not given.names or any(name in b.name for name in given.names)]
    if given.tenth:
        chosen = tenth(chosen, given.tenth)
        _say(f"a tenth of the bugs, drawn by {given.tenth}")
    sys.exit(1 if check(chosen) else 0)


if __name__ == "__main__":
    main()
