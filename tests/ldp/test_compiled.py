"""Compiled loops: they run wherever their code can be kept, and where it cannot."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ldp.core.compiled import compiled

pytest.importorskip("numba")


def test_code_that_can_be_kept_nowhere_is_compiled_all_the_same() -> None:
    made: dict[str, Any] = {}
    exec("def double(x): return 2 * x", made)  # it has no file, beside which to keep it
    double = compiled(made["double"], error_model="numpy")
    assert double(21) == 42
    assert len(double.signatures) == 1


Imported = Callable[[str, str], ModuleType]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Imported:
    """Return a function that imports a module of this name and source, as a new process would."""

    def make(name: str, source: str) -> ModuleType:
        path, made = tmp_path / f"{name}.py", ModuleType(name)
        if not path.exists() or path.read_text() != source:  # older numba goes by the file's time
            path.write_text(source)
        made.__dict__["compiled"] = compiled
        exec(compile(source, str(path), "exec"), made.__dict__)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    return make


def times(factor: str) -> str:
    return f"@compiled\ndef times(x): return x * {factor}"


def test_code_is_taken_from_the_disk(imported: Imported) -> None:
    for hits in (0, 1):
        loops = imported("loops", times("3"))
        assert loops.times(2) == 6
        assert sum(loops.times.stats.cache_hits.values()) == hits


def test_code_of_another_signature_is_not_taken(imported: Imported, tmp_path: Path) -> None:
    """Two processes that write at once leave the files of both, and the index of one of them."""
    assert imported("loops", times("3")).times(2) == 6
    (index,) = (tmp_path / "__pycache__").glob("*.nbi")
    first = index.read_bytes()
    index.unlink()
    assert imported("loops", times("3")).times(2.5) == 7.5
    index.write_bytes(first)
    loops = imported("loops", times("3"))
    assert (loops.times(2), loops.times(2.5)) == (6, 7.5)
    assert sum(loops.times.stats.cache_hits.values()) == 1


def test_code_without_its_file_is_compiled_anew(imported: Imported, tmp_path: Path) -> None:
    """A process that died before it wrote a file has left it in the index."""
    assert imported("loops", times("3")).times(2) == 6
    (code,) = (tmp_path / "__pycache__").glob("*.nbc")
    code.unlink()
    assert imported("loops", times("3")).times(2) == 6


def test_loops_call_loops_of_their_own_file_alone() -> None:
    """Code on the disk would go stale where a loop of another file changed."""
    for path in [*Path("ldp").rglob("*.py"), *Path("dpsgd").rglob("*.py")]:
        if "compiled" not in path.read_text():
            continue
        if path.is_relative_to("dpsgd") and importlib.util.find_spec("torch") is None:
            continue
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        for loop in vars(module).values():
            if hasattr(loop, "py_func") and loop.py_func.__module__ == module.__name__:
                named = (vars(module).get(name) for name in loop.py_func.__code__.co_names)
                called = [other.py_func for other in named if hasattr(other, "py_func")]
                assert all(other.__module__ == module.__name__ for other in called), loop


def test_a_disk_that_takes_no_code_ends_no_call(imported: Imported, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    loops = imported("loops", times("3"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, limits[1]))  # writing more raises OSError
    try:
        assert loops.times(2) == 6
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list((tmp_path / "__pycache__").glob("*.nbc"))
