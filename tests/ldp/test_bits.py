"""Column sums of packed bits against unpacking them all."""

import numpy as np
import pytest

from ldp.mechanisms.tools import bits


@pytest.mark.parametrize("columns", [1, 7, 8, 129])
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000, 5003])
def test_column_sums_count_every_bit(n: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "_BLOCK", 20_000)  # so that there are several blocks
    generator = np.random.default_rng(n)
    table = generator.random((n, columns)) < generator.random(columns)
    packed = np.packbits(table, axis=1, bitorder="little")
    assert bits.column_sums(packed, columns).tolist() == table.sum(axis=0).tolist()


def test_column_sums_of_full_rows_do_not_overflow() -> None:
    assert bits.column_sums(np.full((100_000, 2), 255, np.uint8), 16).tolist() == [100_000] * 16
