"""The scattering transform: against a loop over pixels, and against what it is for."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dpsgd import idx
from dpsgd.scattering import Scattering, linear_on_scattering
from ldp import InvalidInput

MNIST = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist"


def convolved(image: np.ndarray, spectrum: torch.Tensor) -> np.ndarray:
    """Convolve on the torus, pixel by pixel."""
    kernel = np.fft.ifft2(spectrum.numpy())
    result = np.zeros(image.shape, dtype=complex)
    for i, j in np.ndindex(*image.shape):
        result += image[i, j] * np.roll(kernel, (i, j), axis=(0, 1))
    return result


def test_every_kind_of_coefficient_is_that_of_the_definition() -> None:
    scattering = Scattering(12, 16, angles=2)
    image = torch.rand(12, 16, generator=torch.Generator())
    found = scattering(image[None, None])[0]
    assert found.shape == (9, 3, 4)
    padded = np.pad(image.numpy(), 8, mode="reflect")
    fine = [np.abs(convolved(padded, scattering.wavelets[0, a])) for a in range(2)]
    coarse = [np.abs(convolved(padded, scattering.wavelets[1, a])) for a in range(2)]
    second = [np.abs(convolved(f, scattering.wavelets[1, b])) for f in fine for b in range(2)]
    for channel, expected in enumerate([padded, *fine, *coarse, *second]):
        smooth = convolved(expected, scattering.lowpass).real[8:-8:4, 8:-8:4]
        assert found[channel].numpy() == pytest.approx(smooth, abs=1e-5)


def test_a_flat_image_has_only_its_mean() -> None:
    found = Scattering()(torch.full((1, 1, 28, 28), 0.7))[0]
    assert found.shape == (81, 7, 7)
    assert found[0].numpy() == pytest.approx(0.7, abs=1e-5)
    assert found[1:].abs().max() < 1e-5


def test_a_wavelet_sees_its_own_direction() -> None:
    """Vertical stripes of the fine scale's frequency move the first angle, not the fifth."""
    stripes = torch.cos(0.75 * np.pi * torch.arange(28.0)).expand(1, 1, 28, 28)
    middle = Scattering()(stripes)[0, :, 3, 3]
    assert middle[1:9].argmax() == 0
    assert middle[1] > 5 * middle[5]


def test_samples_do_not_mix() -> None:
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator())
    model = torch.nn.Sequential(Scattering(), linear_on_scattering(10))
    with torch.no_grad():
        alone = torch.cat([model(image[None]) for image in images])
        assert torch.allclose(model(images), alone, atol=1e-4)


@pytest.mark.parametrize("arguments", [(27, 28, 8), (28, 8, 8), (28, 28, 0)])
def test_what_it_cannot_transform_is_refused(arguments) -> None:
    with pytest.raises(InvalidInput, match="multiples of 4 above 8"):
        Scattering(*arguments)


@pytest.mark.slow
def test_a_linear_model_on_it_beats_one_on_pixels() -> None:
    if not MNIST.is_dir():
        pytest.skip(f"needs {MNIST}")
    train, test = idx.load(MNIST)
    labels = torch.as_tensor(train.labels[:400].astype(np.int64))
    images = [
        torch.as_tensor(split.images[:400, None] / 255, dtype=torch.float32)
        for split in (train, test)
    ]
    torch.manual_seed(1)
    scattering = Scattering()
    features = [torch.cat([scattering(part) for part in both.split(100)]) for both in images]
    normalised, flat, linear = linear_on_scattering(10)
    accuracies = []
    for (inputs, tests), model in (
        ([flat(normalised(both)) for both in features], linear),
        ([flat(both) for both in images], torch.nn.Linear(784, 10)),
    ):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(60):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        accuracies.append((model(tests).argmax(1).numpy() == test.labels[:400]).mean())
    assert accuracies[0] > 0.88
    assert accuracies[0] > accuracies[1] + 0.05
