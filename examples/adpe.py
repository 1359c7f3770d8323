"""Compare ADPE as published with what keeps its promise, on MNIST and Fashion-MNIST.

    python examples/adpe.py --mnist FOLDER --fashion FOLDER

FOLDER has the idx files. The table and docs/adpe.png show for each method the epsilon that it
claims, the honest one, and its accuracy; docs/adpe.md says what they mean. It takes
half an hour of two cores at most, and uses a GPU where there is one. `--images` and `--epochs` make
it quick, to see whether it runs; then nothing is written.
"""

import argparse
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import idx
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from private_mnist import BATCH, RATES, accuracy, tanh_cnn, train_privately
from scattering import Scattering, linear_on_scattering
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, normalize, one_hot

from dpsgd.accounting import GDPAccountant
from dpsgd.adpe import ADPE, FunctionalMechanism, shap_importance
from dpsgd.clipping.schedules import Exponential
from dpsgd.whitening import PublicWhitening, unit

DOCS = Path(__file__).resolve().parents[1] / "docs"
CLASSES, EPSILONS, DELTA = 10, (0.5, 1.0, 3.0), 1e-5
SETS = {"mnist": "MNIST", "fashion": "Fashion-MNIST"}
CLAIMED, PUBLISHED_IMAGES, EXPLAINED, BASELINES = 8.0, 20_000, 500, 20
STEPS, RATE = 40, 50.0
DP_SGD_EPOCHS = 12
DP_SGD = {"scattering": "DP-SGD, linear on scattering", "cnn": "DP-SGD, the CNN on pixels"}

UNIT = {"input_sensitivity": 1.0, "coefficient_sensitivity": 1.0}
READINGS = {
    "as printed": {},
    "noise on inputs alone": {"noisy_coefficients": False},
    "one draw for a batch": {"shared": True},
    "Laplace (ADDP)": {"mechanism": "laplace"},
    "Laplace, less noise in each epoch": {"mechanism": "laplace", "schedule": Exponential(1, 0.8)},
    "sensitivities taken as 1": UNIT,
    "the same, importance of at least 0.1": UNIT | {"least_importance": 0.1},
}
"""Ways to read the paper, as options of `ADPE`; "as printed" is the first."""


@dataclass(frozen=True)
class Result:
    """A method on one set: what it claims and is worth, at DELTA, and its test accuracy."""

    kind: str
    method: str
    claimed: float
    honest: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Images:
    """Pixels in [0, 1], shape (n, 1, 28, 28), scattering coefficients of them, and labels."""

    train: Tensor
    test: Tensor
    features: Tensor
    test_features: Tensor
    labels: Tensor
    truth: Tensor

    @classmethod
    def load(cls, folder: Path, images: int | None, device: torch.device) -> "Images":
        splits = [
            idx.Split(split.images[:images], split.labels[:images]) for split in idx.load(folder)
        ]
        scattering = Scattering().to(device)
        pixels = [torch.as_tensor(s.images[:, None]).to(device) / 255 for s in splits]
        with torch.no_grad():
            features = [
                torch.cat([scattering(2 * part - 1) for part in each.split(200)]) for each in pixels
            ]
        labels = [torch.as_tensor(s.labels).long().to(device) for s in splits]
        return cls(*pixels, *features, *labels)

    def pooled(self) -> tuple[Tensor, Tensor]:
        """Return 729 features of each image: coefficients averaged in 3 x 3 places."""
        train, test = (
            torch.cat([adaptive_avg_pool2d(part, 3).flatten(1) for part in each.split(2000)])
            for each in (self.features, self.test_features)
        )
        return train, test


def published(images: Images, epochs: int | None) -> Iterator[Result]:
    """Train by every reading of the paper. Everything here is without privacy."""
    options = {} if epochs is None else {"epochs": epochs}
    x, y = images.train[:PUBLISHED_IMAGES], images.labels[:PUBLISHED_IMAGES]
    options["batch_size"] = min(256, len(x) // 4)

    def right(model: nn.Module) -> float:
        return accuracy(model, images.test, images.truth)

    def body() -> nn.Module:
        return tanh_cnn()[:-1].to(x.device)

    plain = ADPE(as_published=True, epsilon=None, **options).fit(body(), x, y)
    yield Result("none", "the same network without noise", math.inf, math.inf, right(plain.module))
    alpha = shap_importance(plain.module, x[:EXPLAINED], y[:EXPLAINED], x[-BASELINES:])
    for name, reading in READINGS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the table has what they say
            model = ADPE(as_published=True, epsilon=CLAIMED, **options | reading).fit(
                body(), x, y, alpha
            )
        claim = model.claim
        yield Result("published", name, claim.claimed, claim.honest, right(model.module))


def honest(images: Images, epochs: int | None) -> Iterator[Result]:
    """Train what keeps its promise on 729 features, with half of the test images as public ones.

    They are unlabelled, and the other half tests; then the halves are exchanged, and the mean is
    reported: the last 5,000 test images of MNIST are easier than the first.
    """
    x, tests = images.pooled()
    y, truth, half = images.labels, images.truth, len(tests) // 2

    def exchanged(score: Callable[[Tensor, Tensor, Tensor], float]) -> float:
        first, last = tests[:half], tests[half:]
        return (score(last, first, truth[:half]) + score(first, last, truth[half:])) / 2

    def descent(rows: Tensor, others: Tensor, right: Tensor, epsilon: float) -> float:
        model = nn.Linear(rows.shape[1], CLASSES, bias=False).to(rows.device)
        nn.init.zeros_(model.weight)
        engine = train_privately(
            model,
            rows,
            y,
            epsilon=epsilon,
            delta=DELTA,
            epochs=STEPS if epochs is None else epochs,
            rate=RATE,
            batch=len(rows),
            clip=1.0,
            accountant=GDPAccountant,
        )
        assert engine.get_epsilon(DELTA) <= epsilon
        return accuracy(model, others, right)

    def whitened(epsilon: float) -> Callable[[Tensor, Tensor, Tensor], float]:
        def score(public: Tensor, others: Tensor, right: Tensor) -> float:
            whitening = PublicWhitening.fit(public)
            return descent(whitening.transform(x), whitening.transform(others), right, epsilon)

        return score

    def centred(epsilon: float) -> Callable[[Tensor, Tensor, Tensor], float]:
        def score(public: Tensor, others: Tensor, right: Tensor) -> float:
            mean = normalize(public).mean(0)
            rows, tested = (normalize(normalize(each) - mean) for each in (x, others))
            return descent(rows, tested, right, epsilon)

        return score

    def once(epsilon: float) -> Callable[[Tensor, Tensor, Tensor], float]:
        def score(public: Tensor, others: Tensor, right: Tensor) -> float:
            mechanism = FunctionalMechanism(epsilon=epsilon, delta=DELTA, public=public)
            found = mechanism.fit(x, y, classes=CLASSES).predict(others)
            return float((found == right).double().mean())

        return score

    for epsilon in EPSILONS:
        model = FunctionalMechanism(epsilon=epsilon, delta=DELTA).fit(x, y, classes=CLASSES)
        assert model.get_epsilon(DELTA) <= epsilon
        right = float((model.predict(tests) == truth).double().mean())
        yield Result("honest", "loss released once", epsilon, epsilon, right)
        for name, method in (
            ("loss released once, second moments public", once),
            ("gradient descent, centred by public images", centred),
            ("gradient descent, whitened by public images", whitened),
        ):
            yield Result("honest", name, epsilon, epsilon, exchanged(method(epsilon)))
    yield Result("none", "least squares without privacy", math.inf, math.inf, squares(x, y, images))


def squares(x: Tensor, y: Tensor, images: Images) -> float:
    """Return the accuracy of least squares on the features of norm 1, without privacy."""
    units = unit(x)
    moments = units.T @ units + 1e-4 * torch.eye(x.shape[1], device=x.device)
    weights = torch.linalg.solve(moments, units.T @ (one_hot(y, CLASSES).double() - 0.1))
    found = (unit(images.pooled()[1]) @ weights).argmax(1)
    return float((found == images.truth).double().mean())


def dp_sgd(images: Images, epochs: int | None) -> Iterator[Result]:
    """Train by DP-SGD: a linear model on all coefficients, and the CNN on the pixels.

    The CNN takes three minutes of a processor each time, and so is trained at one epsilon alone.
    """

    def trained(name: str, model: nn.Module, rate: float, epsilon: float) -> Result:
        train, test = (
            (2 * images.train - 1, 2 * images.test - 1)
            if name == "cnn"
            else (images.features, images.test_features)
        )
        engine = train_privately(
            model.to(train.device),
            train,
            images.labels,
            epsilon=epsilon,
            delta=DELTA,
            epochs=DP_SGD_EPOCHS if epochs is None else epochs,
            rate=rate,
            batch=min(BATCH, len(train) // 8),
        )
        assert engine.get_epsilon(DELTA) <= epsilon
        right = accuracy(model, test, images.truth)
        return Result("dp-sgd", DP_SGD[name], epsilon, epsilon, right)

    for epsilon in EPSILONS:
        yield trained("scattering", linear_on_scattering(CLASSES), RATES["scattering"], epsilon)
    yield trained("cnn", tanh_cnn(), RATES["cnn"], EPSILONS[-1])


Results = dict[str, list[Result]]


def table(results: Results) -> str:
    """Return the results as rows of Markdown, each method's of all sets in one row."""
    lines = [
        "| method | claimed epsilon | honest epsilon | "
        + " | ".join(SETS[s] for s in results)
        + " |",
        "|---|--:|--:|" + "--:|" * len(results),
    ]
    rows = list(zip(*results.values(), strict=True))
    order = list(dict.fromkeys(row[0].method for row in rows))
    for row in sorted(rows, key=lambda row: order.index(row[0].method)):
        first = row[0]
        honest = dict.fromkeys(
            _number(each.honest, "no bound" if each.kind == "published" else "none") for each in row
        )
        cells = [first.method, _number(first.claimed), " / ".join(honest)]
        cells += [f"{100 * each.accuracy:.1f}%" for each in row]
        lines.append("| " + " | ".join(cells) + " |")
        assert {each.method for each in row} == {first.method}
    return "\n".join(lines)


def _number(epsilon: float, infinite: str = "none") -> str:
    if math.isinf(epsilon):
        return infinite
    if epsilon < 1e5:
        return f"{epsilon:.3g}"
    return f"{epsilon / 1e6:.3g} million"


STYLES = {
    "gradient descent, whitened by public images": ("whitened descent", "#0072B2", "o"),
    "gradient descent, centred by public images": ("centred descent", "#00527F", "^"),
    "loss released once, second moments public": ("released once, moments public", "#9A6A00", "v"),
    "loss released once": ("loss released once", "#D55E00", "s"),
    "DP-SGD, linear on scattering": ("DP-SGD, scattering", "#009E73", "D"),
    "DP-SGD, the CNN on pixels": ("DP-SGD, CNN", "#000000", "P"),
}
UNBOUNDED = 1e10


def draw(results: Results, path: Path) -> None:
    """Draw what holds beside what is claimed, a row of two pictures for each set."""
    figure, axes = plt.subplots(len(results), 2, figsize=(12, 4 * len(results)), squeeze=False)
    for (left, right), (name, found) in zip(axes, results.items(), strict=True):
        left.set_title(f"{SETS[name]}: accuracy within a proved epsilon", loc="left")
        _draw_proved(left, found)
        right.set_title(f"{SETS[name]}: ADPE, claimed and honest epsilon", loc="left")
        _draw_claims(right, [result for result in found if result.kind == "published"])
        for ax in (left, right):
            ax.grid(alpha=0.25)
            ax.spines[["top", "right"]].set_visible(False)
        left.set_xlabel(f"epsilon at delta {DELTA:g}")
        right.set_xlabel(
            "epsilon of one image's features; labels have no bound\n"
            f"(at delta {DELTA:g}, Laplace at 0)"
        )
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _draw_proved(ax: Axes, found: list[Result]) -> None:
    """Draw the accuracy of what keeps its promise, a labelled line for each method."""
    ends = []
    for method, (label, colour, marker) in STYLES.items():
        own = [r for r in found if r.method == method]
        heights = [100 * r.accuracy for r in own]
        ax.plot([r.honest for r in own], heights, marker=marker, ms=5, color=colour)
        ends.append((heights[-1], label, colour))
    ends.sort()
    bottom, top = ax.get_ylim()
    places = spread(ends, 0.06 * (top - bottom))
    for (height, label, colour), place in zip(ends, places, strict=True):
        line = {"arrowstyle": "-", "color": colour, "lw": 0.6}
        start, end = (EPSILONS[-1] * 1.2, place), (EPSILONS[-1], height)
        ax.annotate(label, end, start, color=colour, va="center", arrowprops=line)
    ax.set(xscale="log", xlim=(0.45, 14), ylabel="test accuracy in percent")
    ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    ax.set_xticks([], minor=True)


def _draw_claims(ax: Axes, found: list[Result]) -> None:
    """Draw an arrow for each reading of ADPE from its claim to what it is worth."""
    for place, result in enumerate(reversed(found)):
        worth = min(result.honest, UNBOUNDED)
        line = {"arrowstyle": "->", "color": "#777777"}
        ax.annotate("", (worth, place), (result.claimed, place), arrowprops=line)
        ax.plot(result.claimed, place, "o", mfc="white", color="#0072B2")
        ax.plot(worth, place, "o" if worth < UNBOUNDED else ">", color="#D55E00")
        text = f"{_number(result.honest, 'no bound')}; {100 * result.accuracy:.0f}% right"
        above = {"xytext": (0, 6), "textcoords": "offset points", "fontsize": 9}
        ax.annotate(text, (worth, place), ha="right" if worth > 1e6 else "left", **above)
    ax.set_yticks(range(len(found)), [r.method.replace(", ", ",\n") for r in reversed(found)])
    ax.annotate(
        "claimed: 8", (CLAIMED, len(found) - 1), (CLAIMED, len(found) - 0.45), color="#0072B2"
    )
    ax.set(xscale="log", xlim=(4, 3e10), ylim=(-0.5, len(found)))


def spread(ends: list[tuple[float, str, Any]], gap: float) -> list[float]:
    """Return heights for labels of ascending `ends`, at least `gap` apart and close to them."""
    places = [end[0] for end in ends]
    for _ in range(200):
        for i, (low, high) in enumerate(pairwise(places)):
            if high - low < gap:
                middle = (low + high) / 2
                places[i], places[i + 1] = middle - gap / 2, middle + gap / 2
    return places


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, title in SETS.items():
        parser.add_argument(f"--{name}", type=Path, help=f"the folder of {title}'s idx files")
    parser.add_argument("--images", type=int, help="only the first so many of each split")
    parser.add_argument("--epochs", type=int, help="of every training, in place of its own")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    found = parser.parse_args(arguments)
    if found.mnist is None and found.fashion is None:
        parser.error("give the folder of one set at least: --mnist or --fashion")
    return found


def run(arguments: argparse.Namespace) -> Results:
    """Return the results of all methods on the sets that are given, and print each."""
    results: Results = {}
    for name in SETS:
        if (folder := getattr(arguments, name)) is None:
            continue
        started = time.perf_counter()
        images = Images.load(folder, arguments.images, torch.device(arguments.device))
        results[name] = []
        for method in (published, honest, dp_sgd):
            for result in method(images, arguments.epochs):
                results[name].append(result)
                print(  # noqa: T201
                    f"{time.perf_counter() - started:6.0f} s {SETS[name]}: {result.method}, "
                    f"claimed {_number(result.claimed)}, honest {_number(result.honest)}: "
                    f"{100 * result.accuracy:.1f}%",
                    flush=True,
                )
    return results


def main() -> None:
    """Compare as the command line says."""
    arguments = parsed()
    results = run(arguments)
    print(table(results))  # noqa: T201
    if len(results) == len(SETS) and arguments.images is None and arguments.epochs is None:
        page = DOCS / "adpe.md"
        marked = re.compile(r"(<!-- table -->\n).*?(<!-- end -->)", re.DOTALL)
        text = page.read_text(encoding="utf-8")
        page.write_text(marked.sub(lambda m: m[1] + table(results) + "\n" + m[2], text), "utf-8")
        draw(results, DOCS / "adpe.png")


if __name__ == "__main__":
    main()
