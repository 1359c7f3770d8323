"""Teach a student by the noisy votes of teachers: `python examples/pate_mnist.py --data FOLDER`.

Each of 250 teachers is a softmax regression on its own 240 of MNIST's 60,000 training images, as
if as many parties held them. The student has 300 of the test images without labels, asks about
them, and learns from the answers. FOLDER has the idx files. Prints a table of what was answered,
what epsilon may be published, and how well the student reads the other 9,700 test images.

`--reveal` prints the epsilon at the votes that there were, too. It is private: here it is shown
because MNIST is public.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import idx
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpsgd.pate import ConfidentGNMax, GNMax, count_votes, partition
from ldp import Coins

Labels = NDArray[np.int64]

TEACHERS, ASKED, CLASSES = 250, 300, 10
DELTA = 1e-5
TOGETHER = 25  # teachers that are trained at once
STEPS, RATE, MOMENTUM, DECAY = 150, 0.1, 0.9, 1e-3


@dataclass(frozen=True, eq=False)
class Votes:
    """The public images with the teachers' votes on them, and how often a teacher is right."""

    images: Tensor
    counts: Labels
    truth: Labels
    teacher: float


@dataclass(frozen=True)
class Row:
    """One line of the table; accuracies and shares in [0, 1], epsilons at DELTA."""

    name: str
    answered: str
    right: float
    epsilon: float | None
    at_these_votes: float | None
    student: float


def softmax_regressions(images: Tensor, labels: Tensor) -> Tensor:
    """Train a model on each set; images (sets, n, d), labels (sets, n); (sets, d + 1, classes)."""
    rows = with_one(images)
    target = torch.nn.functional.one_hot(labels, CLASSES).float()
    weights = torch.zeros(len(rows), rows.shape[2], CLASSES)
    velocity = torch.zeros_like(weights)
    for _ in range(STEPS):
        wrong = torch.softmax(rows @ weights, dim=2) - target
        gradient = rows.transpose(1, 2) @ wrong / rows.shape[1] + DECAY * weights
        velocity = MOMENTUM * velocity + gradient
        weights = weights - RATE * velocity
    return weights


def with_one(images: Tensor) -> Tensor:
    """Append a one to each image, for the bias."""
    return torch.cat([images, torch.ones(*images.shape[:-1], 1)], dim=-1)


def ask_teachers(
    train: idx.Split,
    test: idx.Split,
    rng: np.random.Generator,
    teachers: int = TEACHERS,
    asked: int = ASKED,
) -> Votes:
    """Train the teachers, and let them vote on the first test images."""
    images, labels = flat(train), torch.as_tensor(train.labels).long()
    shown = flat(test)[:asked]
    parts = partition(len(labels), teachers, rng)
    least = min(map(len, parts))  # equal sets are trained at once
    predictions = []
    for start in range(0, teachers, TOGETHER):
        rows = torch.as_tensor(np.stack([p[:least] for p in parts[start : start + TOGETHER]]))
        weights = softmax_regressions(images[rows], labels[rows])
        predictions.append((with_one(shown) @ weights).argmax(dim=2))
    found = torch.cat(predictions).numpy()
    truth = test.labels[:asked].astype(np.int64)
    return Votes(shown, count_votes(found, CLASSES), truth, float((found == truth).mean()))


def flat(split: idx.Split) -> Tensor:
    """Return the images, shape (n, pixels), in [0, 1]."""
    return torch.as_tensor(split.images).flatten(1) / 255


def study(votes: Votes, test: idx.Split, coins: Coins, reveal: bool) -> list[Row]:
    """Let students learn from the answers of each aggregator."""
    asked, teachers = len(votes.truth), int(votes.counts[0].sum())
    others, truth = with_one(flat(test)[asked:]), test.labels[asked:]
    threshold, noise, finer = 0.8 * teachers, 0.6 * teachers, 0.16 * teachers

    def row(name: str, answers: Labels, aggregator: GNMax | ConfidentGNMax | None = None) -> Row:
        given = answers >= 0
        labels = torch.as_tensor(answers[given])
        student = softmax_regressions(votes.images[given][None], labels[None])[0]
        right = ((others @ student).argmax(dim=1).numpy() == truth).mean()
        epsilon, private = None, None
        if aggregator:
            epsilon = aggregator.get_epsilon(DELTA)
        if aggregator and reveal:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it is private
                private = aggregator.get_epsilon_data_dependent(DELTA).reveal()
        correct = float((answers == votes.truth)[given].mean())
        return Row(name, f"{given.sum()} of {asked}", correct, epsilon, private, float(right))

    def confident() -> ConfidentGNMax:
        return ConfidentGNMax(threshold, noise, finer, teachers=teachers, coins=coins)

    rows = [
        row("the truth", votes.truth),
        row("most votes, no noise", votes.counts.argmax(axis=1)),
    ]
    plain, every, some = GNMax(finer, teachers=teachers, coins=coins), confident(), confident()
    answered: list[tuple[str, GNMax | ConfidentGNMax, Callable[[], Labels]]] = [
        (f"GNMax({finer:g})", plain, lambda: plain.answer(votes.counts)),
        (
            f"ConfidentGNMax({threshold:g}, {noise:g}, {finer:g})",
            every,
            lambda: every.answer(votes.counts),
        ),
        (
            f"the same, most={asked // 2}",
            some,
            lambda: some.answer(votes.counts, most=asked // 2),
        ),
    ]
    return rows + [row(name, answer(), aggregator) for name, aggregator, answer in answered]


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| answers | answered | right | epsilon | student |", "|---|--:|--:|--:|--:|"]
    for row in rows:
        epsilon = "none" if row.epsilon is None else f"{row.epsilon:.2f}"
        shares = f"{100 * row.right:.1f} | {epsilon} | {100 * row.student:.1f}"
        lines.append(f"| {row.name} | {row.answered} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of MNIST's idx files")
    parser.add_argument("--reveal", action="store_true", help="print private epsilons, too")
    arguments = parser.parse_args()
    train, test = idx.load(arguments.data)
    votes = ask_teachers(train, test, np.random.default_rng(0))
    rows = study(votes, test, Coins(), arguments.reveal)
    plurality = (votes.counts.argmax(axis=1) == votes.truth).mean()
    print(f"a teacher: {100 * votes.teacher:.1f}%, all by plurality: {100 * plurality:.1f}%")  # noqa: T201
    print(table(rows))  # noqa: T201
    for row in rows:
        if row.at_these_votes is not None:
            print(f"{row.name}, at these votes (private): {row.at_these_votes:.3f}")  # noqa: T201


if __name__ == "__main__":
    main()
