"""Two parties hold one row each of a person: `python examples/vertical_labels.py --data FOLDER`.

Party A has people's features, party B their labels, and each has people that the other has not. The
two match their ids. B reports the labels of matched people once, randomised, and A trains on its
features and the reports; nothing goes back and forth during training. FOLDER has the UCI Adult set
(adult.data.gz, adult.test.gz): A is a bank, B knows incomes. Without it the sets are scikit-learn's
digits: A has the images. Prints A's accuracy on people of its own that it has no reports of.

The guarantee: each label is epsilon-LDP against A. B learns which of its people A has, and the
other way round. By k-RR A tells B no more. By RRWithPrior in two stages A sends a prior for half of
the people, a prediction from their features, which nothing protects against B.
"""

import argparse
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dpsgd import forward_cross_entropy, two_stage
from ldp import KRR, Coins

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)
SHARE = 0.8  # of all people that each party has
STEPS, RATE, DECAY = 150, 0.05, 3.0  # the decay, over the number of reports
REPEATS = 5


@dataclass(frozen=True, eq=False)
class People:
    """Features, shape (n, d), and labels 0..k-1, shape (n,)."""

    features: Floats
    labels: Labels
    k: int


@dataclass(frozen=True, eq=False)
class Matched:
    """What the parties bring together: A's features of the people that B has too, B's labels of
    them, and A's other people, whose labels serve as the test."""

    features: Tensor
    labels: Labels
    others: Tensor
    truth: Labels
    k: int


def match(people: People, rng: np.random.Generator) -> Matched:
    """Give each party its people, and match their ids."""
    ids = np.arange(len(people.labels))
    has_a, has_b = (rng.random(len(ids)) < SHARE for _ in range(2))
    both = np.intersect1d(ids[has_a], ids[has_b])  # all that the two tell each other first
    only_a = ids[has_a & ~has_b]
    features = torch.as_tensor(people.features, dtype=torch.float32)
    return Matched(
        features[both], people.labels[both], features[only_a], people.labels[only_a], people.k
    )


def learn(features: Tensor, likelihoods: Floats) -> Callable[[Tensor], Floats]:
    """Train A's linear model on reports; return a function from features to probabilities."""
    rows = torch.as_tensor(likelihoods, dtype=torch.float32)
    model = nn.Linear(features.shape[1], rows.shape[1])
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    decay = DECAY / len(rows)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=decay)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = forward_cross_entropy(model(features), rows).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def predict(some: Tensor) -> Floats:
        with torch.no_grad():
            return np.asarray(torch.softmax(model(some), dim=1), dtype=np.float64)

    return predict


def by_krr(matched: Matched, epsilon: float, coins: Coins) -> Floats:
    """Return the likelihoods of B's reports: each label by k-RR."""
    mechanism = KRR(matched.k, epsilon)
    return mechanism.matrix()[:, mechanism.randomize_many(matched.labels, coins)].T


def by_prior(matched: Matched, epsilon: float, coins: Coins) -> Floats:
    """Return the likelihoods of B's reports: the second half's by priors that A learned."""

    def train(rows: NDArray[np.intp], _: Labels, likelihoods: Floats) -> Callable[..., Floats]:
        predict = learn(matched.features[rows], likelihoods)
        return lambda others: predict(matched.features[others])

    return two_stage(matched.labels, matched.k, epsilon, train, coins).likelihoods


def accuracy(matched: Matched, likelihoods: Floats) -> float:
    """Train on all reports; return the share of A's other people that the model labels rightly."""
    predicted = learn(matched.features, likelihoods)(matched.others).argmax(axis=1)
    return float((predicted == matched.truth).mean())


def study(
    people: People, epsilons: tuple[float, ...], coins: Coins, seed: int
) -> list[list[float]]:
    """Return k-RR's and RRWithPrior's accuracy for each epsilon, and last that of the truth."""
    matched = match(people, np.random.default_rng(seed))
    found = [
        [accuracy(matched, way(matched, epsilon, coins)) for way in (by_krr, by_prior)]
        for epsilon in epsilons
    ]
    plain = accuracy(matched, np.eye(people.k)[matched.labels] + 1e-9)
    return [*found, [plain, plain]]


def digits() -> People:
    """Return scikit-learn's digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return People(data.data / 16, data.target.astype(np.int64), 10)


def adult(folder: Path) -> People:
    """Return Adult's people with known answers: numbers by fixed ranges, the rest one-hot."""
    lines = []
    for name in ("adult.data.gz", "adult.test.gz"):
        with gzip.open(folder / name, "rt") as file:
            lines += [line.strip(" .\n").split(", ") for line in file if line.count(",") == 14]
    table = np.array([line for line in lines if "?" not in line])
    numbers = {0: 100, 4: 16, 10: 20_000, 11: 3_000, 12: 100}  # public ranges from 0
    columns = [np.minimum(table[:, i].astype(float) / most, 1) for i, most in numbers.items()]
    for i in (1, 5, 6, 7, 8, 9):
        columns += [table[:, i] == value for value in np.unique(table[:, i])]
    return People(np.stack(columns, axis=1).astype(float), (table[:, 14] == ">50K").astype(int), 2)


def table(results: list[list[list[float]]]) -> str:
    """Return the means of the repeats, and their standard errors, as Markdown."""
    array = 100 * np.array(results)
    means, errors = array.mean(axis=0), array.std(axis=0, ddof=1) / np.sqrt(len(array))
    lines = ["| epsilon | k-RR | RRWithPrior, two stages |", "|--:|--:|--:|"]
    for name, mean, error in zip([*EPSILONS, "no privacy"], means, errors, strict=True):
        cells = " | ".join(f"{m:.1f} ± {e:.1f}" for m, e in zip(mean, error, strict=True))
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="the folder of the UCI Adult set")
    arguments = parser.parse_args()
    people = adult(arguments.data) if arguments.data else digits()
    results = [study(people, EPSILONS, Coins(), seed) for seed in range(REPEATS)]
    print(table(results))  # noqa: T201


if __name__ == "__main__":
    main()
