"""Compiled loops: they run wherever their code can be kept, and where it cannot."""

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
