"""The benchmark on real images, made small."""

import runpy
from pathlib import Path

import mnist_study
import pytest
import torch
from torch.nn.functional import normalize

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


@pytest.mark.parametrize("components", [0, 3])
def test_a_run_of_the_study_learns_within_its_epsilon(components: int) -> None:
    rows = normalize(torch.randn(600, 12, generator=torch.Generator().manual_seed(1)))
    rows[:, 0] *= 4
    rows = normalize(rows)
    labels = (rows[:, 0] > 0).long()
    images = mnist_study.Images(rows, labels, rows, labels, rows.double().T @ rows.double())
    setting = mnist_study.Setting(lot=100, width=8, components=components, noise=1.2)
    assert mnist_study.run(images, setting, 8.0) > 0.9  # and it asserts its epsilon
