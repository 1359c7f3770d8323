"""The guide's code runs as it stands, and names what there is."""

from pathlib import Path

import numpy as np
import pytest

from pages import blocks

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "pate.md").read_text(encoding="utf-8")


def test_the_guide_asks_teachers(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(GUIDE, "python")
    names: dict[str, object] = {}
    exec(compile(code, "pate.md", "exec"), names)
    epsilon = float(capsys.readouterr().out)
    assert f"{epsilon:.2f}" in GUIDE  # that of the table's last row: it depends on no vote
    labels = np.asarray(names["labels"])
    assert labels.shape == (300,)
    assert (labels >= 0).sum() <= 150
