"""The benchmark on real images, made small."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MNIST = ROOT.parent / "shared" / "data" / "mnist"


@pytest.mark.slow
@pytest.mark.parametrize(("model", "right"), [("cnn", 0.2), ("scattering", 0.6)])
def test_both_models_learn_from_few_images_within_the_target(model: str, right: float) -> None:
    if not MNIST.is_dir():
        pytest.skip(f"needs {MNIST}")
    script = runpy.run_path(str(ROOT / "examples" / "private_mnist.py"))
    options = ["--data", str(MNIST), "--model", model, "--images", "600", "--epochs", "4"]
    accuracy, spent = script["run"](script["parsed"]([*options, "--epsilon", "8"]))
    assert accuracy > right
    assert 7.9 < spent <= 8
