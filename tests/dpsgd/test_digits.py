"""The example from end to end: devices, a server process, a model."""

import pytest
import torch

from ldp.testing import SeededCoins


@pytest.mark.slow
def test_digits_are_learned_from_what_devices_reported(coins: SeededCoins) -> None:
    for needed in ("sklearn", "matplotlib", "pyarrow"):
        pytest.importorskip(needed)
    import digits  # of examples/

    torch.manual_seed(1)
    (result,) = digits.run((3.0,), 1500, 300, coins=coins)
    assert result.accuracies["the truth"] > 0.85
    for way in ("forward", "backward", "forward, DP-SGD"):
        assert result.accuracies[way] > 0.75
    # Randomised labels as they are teach a model to be unsure; the correction undoes that.
    assert result.surprises["forward"] < 0.8 * result.surprises["reports as they are"]
    (level,) = result.guarantees.levels
    assert level.local <= 3.0
    assert level.model < level.local
    assert level.model == min(level.local, level.central, level.contracted)
    assert level.why in str(result.guarantees)
    assert "| 3 |" in digits.table([[result], [result]])
