"""Compiled loops: they run wherever their code can be kept, and where it cannot."""

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
    # Two processes that write at once leave it, where both count the names of their files up.
    loops = imported("loops", times("3"))
    assert (loops.times(2), loops.times(2.5)) == (6, 7.5)
    one, two = (tmp_path / "__pycache__").glob("*.nbc")
    code, other = one.read_bytes(), two.read_bytes()
    for damaged in ((other, code), (b"", b""), (code[:-1], other[:-1])):
        one.write_bytes(damaged[0])
        two.write_bytes(damaged[1])
        loops = imported("loops", times("3"))
        assert (loops.times(2), loops.times(2.5)) == (6, 7.5)


@pytest.mark.parametrize(
    ("other", "used"),
    [
        ("factor = {}", "factor"),
        ("import numpy\nfactor = numpy.array([{}])", "factor[0]"),
        ("@compiled\ndef factor(): return {}", "factor()"),
    ],
    ids=["constant", "array", "loop"],
)
def test_code_goes_with_what_a_loop_names_in_another_file(
    other: str, used: str, imported: Imported
) -> None:
    for factor in (3, 5):
        imported("other", other.format(factor))
        loops = imported("loops", f"from other import factor\n{times(used)}")
        assert loops.times(2) == 2 * factor


def test_code_goes_with_its_options(imported: Imported) -> None:
    over = "from other import loop\n@loop\ndef over(x): return 1 / x"
    imported("other", "loop = compiled")
    with pytest.raises(ZeroDivisionError):
        imported("loops", over).over(0)
    other = "from functools import partial\nloop = partial(compiled, error_model='numpy')"
    imported("other", other)
    assert imported("loops", over).over(0) == float("inf")


def test_a_disk_that_takes_no_code_ends_no_call(imported: Imported, tmp_path: Path) -> None:
    loops = imported("loops", times("3"))
    (tmp_path / "__pycache__").rmdir()
    (tmp_path / "__pycache__").write_text("in the way")
    assert loops.times(2) == 6
