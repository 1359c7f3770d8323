"""Find records from single updates: `python examples/federated_reconstruction.py`.

Each of ten devices has one of scikit-learn's digits and trains on it alone. An attacker knows the
round's model and reads the device's update, as the server of a training does, or, where the server
adds noise, knows all the other updates of the round. Writes federated-reconstruction.png, and the
table into federated.md, in docs/.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn

from dpsgd.accounting import gaussian_epsilon
from dpsgd.auditing.reconstruction import (
    invert_dense,
    likely_label,
    match_gradient,
    mean_squared_error,
)
from dpsgd.federated import LocalSGD
from dpsgd.federated.flat import read
from dpsgd.federated.round_noise import RoundNoise
from ldp import SphereCodebook
from ldp.testing import SeededCoins

DOCS = Path(__file__).resolve().parent.parent / "docs"
NORM = 0.5
DELTA = 1e-5

Seen = Callable[[NDArray[np.float32], int], NDArray[np.floating]]
"""What an attacker sees of an update; the number gives the coins."""


def plain(update: NDArray[np.float32], number: int) -> NDArray[np.floating]:
    return update


def noisy(multiplier: float) -> Seen:
    def seen(update: NDArray[np.float32], number: int) -> NDArray[np.floating]:
        noise = RoundNoise(
            "toeplitz",
            rounds=1,
            bands=1,
            participations=1,
            separation=1,
            noise_multiplier=multiplier,
            max_update_norm=NORM,
            dimension=update.size,
            seed=number.to_bytes(32, "big"),
        )
        return noise.release(1, noise.sum().add_all([update]))

    return seen


def clipped(update: NDArray[np.float32], number: int) -> NDArray[np.floating]:
    return update * min(1.0, NORM / float(np.linalg.norm(update)))


def coded(epsilon: float) -> Seen:
    def seen(update: NDArray[np.float32], number: int) -> NDArray[np.floating]:
        mechanism = SphereCodebook(update.size, epsilon)
        code = mechanism.randomize(clipped(update, number) / NORM, SeededCoins(number))
        return mechanism.debias(code) * NORM

    return seen


UPDATES: Mapping[str, tuple[Seen, str]] = {
    "plain": (plain, "none"),
    f"clipped to {NORM}": (clipped, "none"),
    **{
        f"noise {z:g}": (noisy(z), f"{gaussian_epsilon(z, DELTA):,.1f}")
        for z in (0.001, 0.01, 0.1, 1.0)
    },
    "codebook, epsilon 8": (coded(8.0), "8 (pure)"),
}


def named(model: nn.Module, vector: NDArray[np.floating]) -> dict[str, Tensor]:
    """Return a vector of all parameters, in the order of their names, by name."""
    parameters = dict(sorted(model.named_parameters(), key=lambda item: item[0].encode()))
    sizes = [p.numel() for p in parameters.values()]
    parts = torch.split(torch.from_numpy(vector.astype(np.float32)), sizes)
    return {
        name: part.view_as(p) for (name, p), part in zip(parameters.items(), parts, strict=True)
    }


def attacks() -> tuple[Tensor, dict[str, tuple[Tensor, Tensor, int]]]:
    """Return the records, and by update what both attacks find and how many labels."""
    images, labels = load_digits(return_X_y=True)
    first = [int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]
    records = torch.tensor(images[first] / 16, dtype=torch.float32)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    start = read(model)
    devices = LocalSGD(lr=0.1, epochs=5, batch_size=1).start(model, records, torch.arange(10))
    updates = [devices.update(i, torch.tensor([i]), start, i).numpy() for i in range(10)]
    found = {}
    for name, (seen, _) in UPDATES.items():
        dense, matched, right = [], [], 0
        for i, update in enumerate(updates):
            gradient = {key: -part for key, part in named(model, seen(update, i)).items()}
            label = likely_label(gradient["2.bias"])
            right += label == i
            dense.append(invert_dense(gradient["0.weight"], gradient["0.bias"]).clamp(0, 1))
            matched.append(match_gradient(model, gradient, shape=(64,), label=label))
        found[name] = torch.stack(dense), torch.stack(matched), right
    return records, found


def table(records: Tensor, found: Mapping[str, tuple[Tensor, Tensor, int]]) -> str:
    rows = [
        "| the attacker reads | epsilon | error, first layer | error, matching | labels found |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, (dense, matched, right) in found.items():
        errors = [f"{mean_squared_error(of, records):.4f}" for of in (dense, matched)]
        rows.append(f"| {name} | {UPDATES[name][1]} | {' | '.join(errors)} | {right} of 10 |")
    guess = mean_squared_error(records.mean(dim=0).expand_as(records), records)
    rows.append(f"| nothing (the mean picture) | 0 | {guess:.4f} | {guess:.4f} | 1 of 10 |")
    return "\n".join(rows)


def draw(records: Tensor, found: Mapping[str, tuple[Tensor, Tensor, int]], to: Path) -> None:
    shown = (2, 3, 5, 8)
    figure, axes = plt.subplots(
        2 * len(shown), 1 + len(found), figsize=(11, 9.2), layout="constrained"
    )
    for axis in axes.flat:
        axis.set_axis_off()
    for row, digit in enumerate(shown):
        for kind in (0, 1):
            pictures = {"record": records}
            pictures |= {
                name: (dense, matched)[kind] for name, (dense, matched, _) in found.items()
            }
            for column, (name, pictured) in enumerate(pictures.items()):
                axis = axes[2 * row + kind, column]
                axis.imshow(pictured[digit].view(8, 8), cmap="gray_r", vmin=0, vmax=1)
                if row == kind == 0:
                    axis.set_title(name.replace(", ", ",\n"), fontsize=10)
            text = ("first layer", "matching")[kind]
            axes[2 * row + kind, 0].text(-0.8, 3.5, text, ha="right", va="center", fontsize=10)
    figure.savefig(to, dpi=110)


if __name__ == "__main__":
    records, found = attacks()
    page = DOCS / "federated.md"
    figures = f"<!-- reconstruction -->\n{table(records, found)}\n<!-- end -->"
    marked = re.compile(r"<!-- reconstruction -->.*?<!-- end -->", re.DOTALL)
    page.write_text(marked.sub(lambda _: figures, page.read_text()))
    draw(records, found, DOCS / "federated-reconstruction.png")
