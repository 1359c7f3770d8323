"""Redraw docs/federated-mnist.png: federated training of MNIST, where clients differ, and attacked.

    python examples/federated_mnist.py FOLDER

FOLDER has the idx files. The curves are of McMahan et al., "Communication-efficient learning of
deep networks from decentralized data", AISTATS 2017: the network with two hidden layers of 200
units, 100 clients of which 10 take part in a round, one epoch, batches of 10. The attackers are
tried on a softmax regression of 14 x 14 pixels: 20 clients, all in each round, 10,000 images, 4
hostile. The tables are printed. It takes eight minutes of one processor, or uses a GPU.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import idx
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from dpsgd.federated import (
    SGD,
    Accuracy,
    Adam,
    ALittleIsEnough,
    FedAdam,
    FedAvg,
    Federation,
    FedMedian,
    FedTrimmedAvg,
    FedYogi,
    GeometricMedian,
    History,
    Krum,
    LabelFlip,
    LocalSGD,
    MedianNorm,
    MultiKrum,
    SignFlip,
    Yogi,
    dirichlet,
    iid,
    shards,
)
from dpsgd.federated.architectures import build
from dpsgd.federated.attackers import Attack
from dpsgd.federated.splits import Split
from dpsgd.federated.strategies import Strategy

DOCS = Path(__file__).resolve().parents[1] / "docs"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Four of Okabe and Ito's, which people with any colour vision tell apart."""

SPLITS: Mapping[str, Callable[[Tensor, int], Split]] = {
    "IID": lambda labels, k: iid(labels, k, rng=np.random.default_rng(0)),
    "Dirichlet 0.5": lambda labels, k: dirichlet(
        labels, k, alpha=0.5, rng=np.random.default_rng(0)
    ),
    "two shards each": lambda labels, k: shards(labels, k, rng=np.random.default_rng(0)),
}

RUNS: Mapping[str, tuple[str, LocalSGD, Strategy]] = {
    "IID": ("IID", LocalSGD(lr=0.1), FedAvg(fraction_fit=0.1)),
    "Dirichlet 0.5": ("Dirichlet 0.5", LocalSGD(lr=0.1), FedAvg(fraction_fit=0.1)),
    "shards": ("two shards each", LocalSGD(lr=0.05), FedAvg(fraction_fit=0.1)),
    "shards, FedProx, mu 0.1": (
        "two shards each",
        LocalSGD(lr=0.05, proximal=0.1),
        FedAvg(fraction_fit=0.1),
    ),
    "shards, momentum 0.9": (
        "two shards each",
        LocalSGD(lr=0.05),
        FedAvg(fraction_fit=0.1, optimizer=SGD(0.1, momentum=0.9)),
    ),
    "shards, FedAdam": (
        "two shards each",
        LocalSGD(lr=0.05),
        FedAdam(fraction_fit=0.1, optimizer=Adam(0.01)),
    ),
    "shards, FedYogi": (
        "two shards each",
        LocalSGD(lr=0.05),
        FedYogi(fraction_fit=0.1, optimizer=Yogi(0.01)),
    ),
}
"""By name: how records are dealt out, what clients do, and what the server does."""

STRATEGIES: Mapping[str, Strategy] = {
    "FedAvg": FedAvg(),
    "FedMedian": FedMedian(),
    "trimmed mean": FedTrimmedAvg(hostile=4),
    "Krum": Krum(hostile=4),
    "Multi-Krum": MultiKrum(hostile=4),
    "geometric median": GeometricMedian(),
    "median norm": MedianNorm(),
}
HOSTILE = (0, 5, 10, 15)
ATTACKS: Mapping[str, Attack | None] = {
    "none": None,
    "labels 9 - y": LabelFlip(HOSTILE),
    "-5 x mean": SignFlip(HOSTILE, 5.0),
    "mean - 1 sd": ALittleIsEnough(HOSTILE, 1.0),
}


def small(split: idx.Split, count: int) -> tuple[Tensor, Tensor]:
    """Return images of 14 x 14 pixels, flat, and labels of the first so many."""
    images = torch.as_tensor(split.images[:count]).float()[:, None] / 255
    return avg_pool2d(images, 2).flatten(1), torch.as_tensor(split.labels[:count]).long()


def full(split: idx.Split) -> tuple[Tensor, Tensor]:
    """Return all images, flat, and labels."""
    return torch.as_tensor(split.images).flatten(1) / 255, torch.as_tensor(split.labels).long()


def curve(train: idx.Split, test: idx.Split, run: str, rounds: int) -> History:
    """Train the 2NN in a run of RUNS."""
    features, labels = full(train)
    split, local, strategy = RUNS[run]
    federation = Federation(
        build("2nn", 784, 10).to(DEVICE),
        features,
        labels,
        clients=SPLITS[split](labels, 100),
        train=local,
        strategy=strategy,
    )
    return federation.fit(rounds, evaluate=Accuracy(*full(test)))


def attacked(
    train: idx.Split, test: idx.Split, split: str, strategy: Strategy, attack: Attack | None
) -> float:
    """Return the accuracy of the softmax regression after 15 rounds."""
    features, labels = small(train, 10_000)
    torch.manual_seed(0)
    federation = Federation(
        nn.Linear(196, 10).to(DEVICE),
        features,
        labels,
        clients=SPLITS[split](labels, 20),
        train=LocalSGD(lr=0.1),
        strategy=strategy,
        attack=attack,
    )
    return federation.fit(15, evaluate=Accuracy(*small(test, 10_000))).scores[-1]


def table_of_curves(curves: Mapping[str, History]) -> str:
    """Return the table of the curves: rounds to three accuracies, the end, and what was sent."""
    lines = [
        "| | 90% | 95% | 97% | last ten rounds | MB sent | MB to 90% |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, history in curves.items():
        to = [history.rounds_to(target) for target in (0.9, 0.95, 0.97)]
        mean, spread = history.last()
        sent = history.bytes_up / 1e6
        cells = ["-" if reached is None else str(reached) for reached in to]
        cells += [f"{100 * mean:.1f} ± {100 * spread:.1f}", f"{sent:.0f}"]
        cells.append("-" if to[0] is None else f"{sent * to[0] / len(history.rounds):.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_attacks(split: str, rows: Mapping[str, list[float]]) -> str:
    """Return the table of one split: a row for each strategy, a column for each attack."""
    lines = [f"| {split} | {' | '.join(ATTACKS)} |", "|---|" + "--:|" * len(ATTACKS)]
    for name, scores in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{100 * score:.1f}' for score in scores)} |")
    return "\n".join(lines)


def draw(
    curves: Mapping[str, History], found: Mapping[str, Mapping[str, list[float]]], file: Path
) -> None:
    """Draw the curves, labelled at their ends, and the accuracies under attack as tables."""
    figure, axes = plt.subplots(
        1, 3, figsize=(14, 4.8), layout="constrained", width_ratios=[1.7, 1, 1]
    )
    left = axes[0]
    shown = {  # the name of each curve, and how far above its end that is
        "IID": 1.0,
        "Dirichlet 0.5": -0.6,
        "shards, FedYogi": -0.4,
        "shards": 0.0,
    }
    for (name, above), colour in zip(shown.items(), COLOURS, strict=True):
        scores = 100 * np.array(curves[name].scores)
        left.plot(range(1, len(scores) + 1), scores, color=colour, lw=1.3)
        end = 100 * curves[name].last()[0] + above
        left.annotate(
            name, (len(scores) + 2, end), color=colour, va="center", annotation_clip=False
        )
    left.set(ylim=(50, 100), xlabel="round", ylabel="test accuracy, %")
    left.set_xlim(0, 1.32 * (rounds := len(curves["IID"].rounds)))
    left.set_xticks(range(0, rounds + 1, 25))
    left.set_title("Two hidden layers, 10 of 100 clients in a round")
    left.grid(alpha=0.3)
    for axis, (split, rows) in zip(axes[1:], found.items(), strict=True):
        scores = 100 * np.array(list(rows.values()))
        axis.imshow(scores, cmap="cividis", vmin=0, vmax=100, aspect="auto")
        for (i, j), score in np.ndenumerate(scores):
            colour = "black" if score > 55 else "white"
            axis.text(j, i, f"{score:.1f}", ha="center", va="center", color=colour)
        axis.set_xticks(range(len(ATTACKS)), [name.replace(" ", "\n", 1) for name in ATTACKS])
        axis.set_yticks(range(len(rows)), list(rows) if axis is axes[1] else [])
        axis.set_title(f"Softmax, {split}")
        axis.set_xlabel("what 4 of 20 clients send")
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)


def main(folder: Path, rounds: int = 150) -> None:
    """Train, print the tables and draw the picture."""
    train, test = idx.load(folder)
    curves = {name: curve(train, test, name, rounds) for name in RUNS}
    print(table_of_curves(curves))  # noqa: T201
    found = {
        split: {
            name: [attacked(train, test, split, strategy, attack) for attack in ATTACKS.values()]
            for name, strategy in STRATEGIES.items()
        }
        for split in ("IID", "Dirichlet 0.5")
    }
    for split, rows in found.items():
        print("", table_of_attacks(split, rows), sep="\n")  # noqa: T201
    draw(curves, found, DOCS / "federated-mnist.png")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the steps are small
    main(Path(sys.argv[1]))
