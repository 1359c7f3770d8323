"""The deliberate privacy bugs of tests/mutants fit the tree, and their runner tells what kills."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mutants import run

ROOT = Path(__file__).parents[1]
BUGS = run.bugs()


def test_each_bug_fits_its_file_once_and_can_be_run() -> None:
    for bug in BUGS:
        bug.applied(ROOT)
        assert bug.why.endswith("."), bug.name
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 80


def test_each_bug_names_tests_that_are_there() -> None:
    for bug in BUGS:
        assert bug.tests, bug.name
        for test in bug.tests:
            file, _, name = test.partition("::")
            assert name.partition("[")[0] in (ROOT / file).read_text(), f"{bug.name}: {test}"


def test_every_part_has_bugs() -> None:
    parts = ("ldp/", "client/python/", "client/web/", "server/", "dpsgd/")
    counts = Counter(part for bug in BUGS for part in parts if bug.file.startswith(part))
    assert all(counts[part] >= 10 for part in parts), counts
    for each in ("shuffler", "helper", "serving", "storage", "ingest", "answers"):
        assert any(f"hearsay_server/{each}/" in bug.file for bug in BUGS), each


def test_a_tenth_is_drawn_by_the_day() -> None:
    day = run.tenth(BUGS, "2026-11-28")
    assert len(day) == -(-len(BUGS) // 10)
    assert day == run.tenth(BUGS, "2026-11-28") != run.tenth(BUGS, "2026-11-29")


PROJECT = """
from half import half
def test_half(): assert half(4) == 2
def test_nothing(): half(4)
"""


@pytest.mark.slow
def test_a_bug_is_killed_survives_or_cannot_be_run(tmp_path: Path) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "mutants"
    for each in (tree, folder):
        each.mkdir()
    (tree / "half.py").write_text("def half(x):\n    return x // 2\n")
    (tree / "test_half.py").write_text(PROJECT)
    of = {
        "killed": ("x // 2", "x // 3", "test_half"),
        "survives": ("x // 2", "x // 3", "test_nothing"),
        "slip": ("x // 2", "y // 2", "test_half"),
    }
    (folder / "bugs.toml").write_text(
        "\n".join(
            f'[[bug]]\nname = "{name}"\nfile = "half.py"\nbefore = "{before}"\nafter = "{after}"\n'
            f'why = "It is no half."\ntests = ["test_half.py::{test}"]'
            for name, (before, after, test) in of.items()
        )
    )
    code = (
        "import pathlib, sys, run\n"
        f"sys.exit(run.check(run.bugs(pathlib.Path({str(folder)!r})), pathlib.Path({str(tree)!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=run.HERE, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stdout + done.stderr
    told = {line.rsplit(": ", 1)[-1]: line for line in done.stdout.splitlines() if ", " in line}
    assert told["killed"].startswith("killed")
    assert told["survives"].startswith("SURVIVES")
    assert "the bug cannot be run: NameError" in told["slip"]
    assert (tree / "half.py").read_text() == "def half(x):\n    return x // 2\n"


def test_a_text_that_stands_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("a = 1\na = 1\n")
    bug = run.Bug("b", "one.py", "a = 1", "a = 2", "No.", ("test",))
    for before, times in (("a = 1", 2), ("a = 3", 0)):
        with pytest.raises(ValueError, match=f"stands {times} times"):
            run.Bug(**{**vars(bug), "before": before}).applied(tmp_path)
    with pytest.raises(SyntaxError):
        run.Bug(**{**vars(bug), "before": "= 1\na", "after": "= ("}).applied(tmp_path)
