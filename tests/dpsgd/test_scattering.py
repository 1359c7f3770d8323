"""The scattering transform: against a loop over pixels, and against what it is for."""

from pathlib import Path

import idx
import numpy as np
import pytest
import torch
from scattering import Scattering, linear_on_scattering

from ldp import InvalidInput

MNIST = Path(__file__).resolve().parents[3] / "shared" / "data" / "mnist"


def convolved(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Convolve on the torus, pixel by pixel."""
    result = np.zeros(image.shape, dtype=complex)
    for i, j in np.ndindex(*image.shape):
        result += image[i, j] * np.roll(kernel, (i, j), axis=(0, 1))
    return result


def distances(size: int) -> np.ndarray:
    """From the origin of a circle, with their sign."""
    return (np.arange(size) + size // 2) % size - size // 2


def wavelet(shape: tuple[int, int], scale: int, angle: float) -> np.ndarray:
    rows, columns = np.meshgrid(*map(distances, shape), indexing="ij")
    along = np.cos(angle) * columns + np.sin(angle) * rows
    across = np.cos(angle) * rows - np.sin(angle) * columns
    envelope = np.exp(-(along**2 + across**2 / 4) / (2 * (0.8 * 2**scale) ** 2))
    wave = np.exp(0.75j * np.pi / 2**scale * along) * envelope
    return (wave - wave.sum() / envelope.sum() * envelope) / envelope.sum()


def averaged(values: np.ndarray, step: int) -> np.ndarray:
    """Gaussian means around every fourth inner pixel, over every `step`-th one each way."""
    found = np.empty([(size - 16) // 4 for size in values.shape])
    for i, j in np.ndindex(*found.shape):
        weights = 1.0
        for axis, centre in enumerate((8 + 4 * i, 8 + 4 * j)):
            bump = np.roll(np.exp(-(distances(values.shape[axis]) ** 2) / (2 * 1.6**2)), centre)
            bump[np.arange(bump.size) % step > 0] = 0
            weights = np.multiply.outer(weights, bump / bump.sum())
        found[i, j] = (weights * values).sum()
    return found


def test_every_kind_of_coefficient_is_that_of_the_definition() -> None:
    image = torch.rand(12, 16, generator=torch.Generator())
    found = Scattering(12, 16, angles=2)(image[None, None])[0].numpy()
    assert found.shape == (9, 3, 4)
    padded = np.pad(image.numpy().astype(float), 8, mode="reflect")
    fine, coarse = (
        [wavelet(padded.shape, scale, angle) for angle in (0, np.pi / 2)] for scale in range(2)
    )
    first = [np.abs(convolved(padded, kernel)) for kernel in fine]
    rough = [np.abs(convolved(padded, kernel)) for kernel in coarse]
    second = [np.abs(convolved(moduli, kernel)) for moduli in first for kernel in coarse]
    expected = [averaged(values, 1) for values in [padded, *first]]
    expected += [averaged(values, 2) for values in [*rough, *second]]
    assert found == pytest.approx(np.array(expected), abs=1e-5)


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
