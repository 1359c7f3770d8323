"""Redraw docs/mnist-study.png: what lot, clip, noise, rate, width and private PCA do on MNIST.

    python examples/mnist_study.py FOLDER

FOLDER has the idx files. One parameter at a time moves away from `Setting`'s defaults, at epsilon
0.5, 2 and 8, as in Abadi et al., "Deep learning with differential privacy", CCS 2016, section 5.2.
It takes eight minutes of one processor.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import idx
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

from dpsgd import PrivacyEngine
from dpsgd.accounting import (
    NoSampling,
    PoissonSampling,
    RDPAccountant,
    Relation,
    analytic_noise,
    calibrate_noise_multiplier,
    calibrate_steps,
)
from dpsgd.noise.grid import Grid
from dpsgd.noise.sources import KeystreamNoise
from ldp import Coins

DOCS = Path(__file__).resolve().parents[1] / "docs"
EPSILONS, DELTA, EPOCHS, REPEATS = (0.5, 2.0, 8.0), 1e-5, 10, 2
PCA_SHARE = 0.3
"""The epsilon of the private PCA by itself, over that of all."""
SCALE = 8.0
"""The norm of an image as the network gets it."""


@dataclass(frozen=True)
class Setting:
    """A run: `noise` is over that which EPOCHS epochs need, with as many steps as the budget has,
    `rate` the learning rate times the clip norm, and `components` 0 for raw pixels."""

    lot: int = 1200
    clip: float = 1.0
    noise: float = 1.0
    rate: float = 5.0
    width: int = 200
    components: int = 60


AXES: dict[str, tuple[float, ...]] = {
    "lot": (300, 600, 1200, 2400, 4800),
    "clip": (0.1, 0.3, 1.0, 3.0, 10.0),
    "noise": (0.6, 0.8, 1.0, 1.25, 1.5),
    "rate": (0.5, 1.5, 5.0, 15.0, 50.0),
    "width": (25, 50, 100, 200, 400, 800),
    "components": (15, 30, 60, 120, 0),
}
NAMES = {
    "lot": "lot size",
    "clip": "clip norm",
    "noise": "noise over that of 10 epochs",
    "rate": "learning rate times clip norm",
    "width": "hidden units",
    "components": "components of the private PCA",
}


@dataclass(frozen=True, eq=False)
class Images:
    """Images of norm 1, flat, and their labels."""

    train: Tensor
    labels: Tensor
    test: Tensor
    truth: Tensor
    moments: Tensor

    @classmethod
    def load(cls, folder: Path) -> "Images":
        """Read the idx files. Each image is scaled by itself, which costs no privacy."""
        splits = idx.load(folder)
        train, test = (normalize(torch.as_tensor(s.images).flatten(1).float()) for s in splits)
        labels, truth = (torch.as_tensor(s.labels).long() for s in splits)
        return cls(train, labels, test, truth, train.double().T @ train.double())


class Rows(TensorDataset):
    """Rows of tensors, taken out for a whole batch at once."""

    def __getitems__(self, places: list[int]) -> tuple[Tensor, ...]:
        return self[torch.as_tensor(places, dtype=torch.int64)]


def run(images: Images, setting: Setting, epsilon: float) -> float:
    """Train within (epsilon, DELTA), the PCA included; return the test accuracy."""
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    train, test = images.train, images.test
    if setting.components:
        basis = private_basis(images.moments, setting.components, epsilon, accountant)
        train, test = train @ basis, test @ basis
    sampling = PoissonSampling(setting.lot / len(train))
    steps = EPOCHS * len(train) // setting.lot
    noise = setting.noise * calibrate_noise_multiplier(
        accountant, epsilon, DELTA, sampling=sampling, steps=steps
    )
    if setting.noise != 1:
        steps = calibrate_steps(
            accountant, epsilon, DELTA, noise_multiplier=noise, sampling=sampling
        )
    model = nn.Sequential(
        nn.Linear(train.shape[1], setting.width), nn.ReLU(), nn.Linear(setting.width, 10)
    )
    engine = PrivacyEngine(accountant=lambda _: accountant)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=setting.rate / setting.clip),
        data_loader=DataLoader(
            Rows(SCALE * train, images.labels), setting.lot, collate_fn=lambda batch: batch
        ),
        noise_multiplier=noise,
        max_grad_norm=setting.clip,
    )
    left = steps
    while left:
        for rows, labels in loader:
            if not left:
                break
            optimizer.zero_grad()
            cross_entropy(model(rows), labels).backward()
            optimizer.step()
            left -= 1
    assert engine.get_epsilon(DELTA) <= epsilon
    with torch.no_grad():
        return float((model(SCALE * test).argmax(1) == images.truth).float().mean())


def private_basis(
    moments: Tensor, components: int, epsilon: float, accountant: RDPAccountant
) -> Tensor:
    """Return the first eigenvectors of the rows' noisy second moments, shape (d, components).

    A row of norm 1 moves the matrix by 1 in the Frobenius norm, and its upper triangle by less.
    Source: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014, algorithm 1.
    """
    noise_multiplier = analytic_noise(PCA_SHARE * epsilon, DELTA)
    accountant.step(noise_multiplier=noise_multiplier, sampling=NoSampling())
    noisy = moments.clone()
    grid = Grid.for_sums(1.0, noisy.numel(), noise_multiplier)
    KeystreamNoise(Coins()).add_to([noisy], grid, noise_multiplier)
    noisy = noisy.triu() + noisy.triu(1).T
    return torch.linalg.eigh(noisy).eigenvectors[:, -components:].float()


def study(images: Images) -> dict[float, dict[str, list[list[float]]]]:
    """Return the accuracies of the repeats for every epsilon, parameter and value."""
    found: dict[float, dict[str, list[list[float]]]] = {}
    for epsilon in EPSILONS:
        default = [run(images, Setting(), epsilon) for _ in range(REPEATS)]
        found[epsilon] = {}
        for name, values in AXES.items():
            found[epsilon][name] = [
                default
                if value == getattr(Setting(), name)
                else [run(images, replace(Setting(), **{name: value}), epsilon) for _ in default]
                for value in values
            ]
    return found


def draw(found: dict[float, dict[str, list[list[float]]]], file: Path) -> None:
    """Draw the mean accuracies, and each repeat as a dot."""
    figure, axes = plt.subplots(2, 3, figsize=(10, 6.4), sharey=True, layout="constrained")
    for axis, (name, values) in zip(axes.flat, AXES.items(), strict=True):
        places = range(len(values))
        for epsilon, by_name in found.items():
            means = [100 * sum(repeats) / len(repeats) for repeats in by_name[name]]
            (line,) = axis.plot(places, means, lw=1.5, label=f"epsilon {epsilon:g}")
            for place, repeats in zip(places, by_name[name], strict=True):
                dots = [100 * accuracy for accuracy in repeats]
                axis.plot([place] * len(dots), dots, "o", ms=3, color=line.get_color())
        labels = [f"{value:g}" if value else "raw pixels" for value in values]
        axis.set_xticks(places, labels)
        axis.axvline(values.index(getattr(Setting(), name)), color="black", lw=8, alpha=0.07)
        axis.set_xlabel(NAMES[name])
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("test accuracy, %")
    axes[0, 0].set_ylim(70, 98)
    axes[0, 0].legend(loc="lower left")
    figure.suptitle(
        f"MNIST at delta {DELTA:g}: one hidden layer, {EPOCHS} epochs of 60,000 images, "
        f"{REPEATS} runs each (dots); grey: where the others stand"
    )
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(study(Images.load(Path(sys.argv[1]))), DOCS / "mnist-study.png")
