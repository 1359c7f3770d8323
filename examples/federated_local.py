"""Measure what a model learns from updates under local privacy: `python federated_local.py FOLDER`.

FOLDER has the idx files of MNIST. The model is a softmax on 49 pooled pixels, 490 parameters. Each
person has one image and sends one update, in one of the rounds: as a code of `ldp.SphereCodebook`
(local), or in the clear to a server that adds Gaussian noise to each round's sum (central). The
table has the test accuracy by people and epsilon, of the best of a few numbers of rounds and
rates; they are chosen by the same test set, which flatters all columns a little.

No code is made for 60,000 people, which would take minutes for each figure: an estimate is drawn
from its exact distribution given the update, with the inner products of random directions. It
takes about a minute of one core.
"""

import sys
from pathlib import Path

import numpy as np
from idx import Split, load
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpsgd.accounting import gaussian_epsilon
from ldp import SphereCodebook
from ldp.core.exact import ONE

Array = NDArray[np.float64]

PEOPLE = (1_000, 10_000, 60_000)
EPSILONS = (1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
RATES = (10.0, 30.0)
ROUNDS = {"local": (3, 10), "central": (20, 100), "none": (20, 100)}
PARAMETERS = 490
_BLOCK = 2_000


def pooled(split: Split) -> tuple[Array, NDArray[np.int64]]:
    """Return the images as unit vectors of 49 pixels, shape (n, 49), and the labels."""
    pixels = split.images.reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
    return pixels / np.linalg.norm(pixels, axis=1, keepdims=True), split.labels.astype(np.int64)


def updates(weights: Array, features: Array, labels: NDArray[np.int64]) -> Array:
    """Return each person's gradient with its sign changed, of a norm of at most 1: (n, 490)."""
    scores = np.exp(features @ weights)
    error = -scores / scores.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] += 1
    error /= np.maximum(1, np.linalg.norm(error, axis=1, keepdims=True))
    return (features[:, :, np.newaxis] * error[:, np.newaxis, :]).reshape(len(labels), -1)


def estimates(mechanism: SphereCodebook, vectors: Array, rng: np.random.Generator) -> Array:
    """Return a draw of each vector's estimate, from the distribution that its code has.

    The inner products of a unit vector with uniform directions are drawn, and the report's rank
    among them; the rest of the reported direction is uniform among those with its inner product.
    """
    n, dimensions = len(vectors), mechanism.dimension + 1
    last = np.sqrt(np.maximum(0, 1 - (vectors**2).sum(axis=1)))
    units = np.column_stack([vectors, last])
    along = rng.standard_normal((n, mechanism.codes), dtype=np.float32)
    across = 2 * rng.standard_gamma((dimensions - 1) / 2, along.shape, dtype=np.float32)
    products = -np.sort(-along / np.sqrt(along**2 + across), axis=1)
    good = rng.random(n) < mechanism.include / ONE
    ranks = np.where(
        good,
        rng.integers(0, mechanism.size, n),
        rng.integers(mechanism.size, mechanism.codes, n),
    )
    agreement = products[np.arange(n), ranks].astype(np.float64)[:, np.newaxis]
    rest = rng.standard_normal((n, dimensions))
    rest -= (rest * units).sum(axis=1, keepdims=True) * units
    rest /= np.linalg.norm(rest, axis=1, keepdims=True)
    direction = agreement * units + np.sqrt(1 - agreement**2) * rest
    return direction[:, :-1] / mechanism.gain


def accuracy(
    train: tuple[Array, NDArray[np.int64]],
    test: tuple[Array, NDArray[np.int64]],
    kind: str,
    epsilon: float,
    rounds: int,
    rate: float,
) -> float:
    """Return the test accuracy of one training in which each person sends one update."""
    rng = np.random.default_rng(1)
    if kind == "local":
        mechanism = SphereCodebook(PARAMETERS, epsilon)
    if kind == "central":
        noise = brentq(lambda z: gaussian_epsilon(z, DELTA) - epsilon, 0.1, 100)
    features, labels = train
    weights = np.zeros((49, 10))
    for members in np.array_split(rng.permutation(len(labels)), rounds):
        total = np.zeros(PARAMETERS)
        for start in range(0, len(members), _BLOCK):
            block = members[start : start + _BLOCK]
            sent = updates(weights, features[block], labels[block])
            if kind == "local":
                sent = estimates(mechanism, sent, rng)
            total += sent.sum(axis=0)
        if kind == "central":
            total += noise * rng.standard_normal(PARAMETERS)
        weights += rate * (total / len(members)).reshape(49, 10)
    return float(((test[0] @ weights).argmax(axis=1) == test[1]).mean())


def best(
    train: tuple[Array, NDArray[np.int64]],
    test: tuple[Array, NDArray[np.int64]],
    kind: str,
    epsilon: float,
) -> float:
    """Return the best accuracy over the numbers of rounds and the rates."""
    return max(
        accuracy(train, test, kind, epsilon, rounds, rate)
        for rounds in ROUNDS[kind]
        for rate in RATES
    )


def main(folder: Path) -> None:
    """Write the table, row by row."""
    images, tests = (pooled(split) for split in load(folder))
    sys.stdout.write("| people | | epsilon 1 | 2 | 4 | 8 | no privacy |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    order = np.random.default_rng(0).permutation(len(images[1]))
    for people in PEOPLE:
        train = images[0][order[:people]], images[1][order[:people]]
        nothing = best(train, tests, "none", 0)
        for kind in ("local", "central"):
            found = [best(train, tests, kind, epsilon) for epsilon in EPSILONS]
            cells = [f"{people:,}", kind, *(f"{100 * each:.1f}%" for each in (*found, nothing))]
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
