"""Learn to read digits from people's private answers: `python examples/digits.py`.

The images are public: scikit-learn's digits, which whoever trains has too. What is private is
what a person reads in them. Each device draws one image (the survey's sampled budget), randomises
its person's answer by k-RR, and sends it over gRPC to a real server. A model is trained on
what the server stored. Writes training.png, and the table into training.md, in docs/.

What is promised: all of a person's answers, to any of the images, are epsilon-LDP. That a person
took part and which image was drawn are in the clear; the images are not protected at all. What
DP-SGD adds is against whoever sees the model only.
"""

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy

import hearsay.plan
from dpsgd.accounting import PoissonSampling, RDPAccountant, Relation
from dpsgd.channels import Reports
from dpsgd.guarantees import Account, account
from dpsgd.losses import backward_cross_entropy, forward_cross_entropy
from hearsay.transport import open_channel
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
    survey_pb2,
)
from hearsay_server.demo import server_process
from ldp import Coins, Mechanism

DOCS = Path(__file__).resolve().parent.parent / "docs"
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
PEOPLE = 10_000
TESTED = 360
DELTA = 1e-5
NOISE, RATE, STEPS, CLIP = 2.0, 0.05, 300, 1.0
BATCHES = 256  # of one request

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Digits:
    """The public images, shape (n, 64) in [0, 1], and what they show, shape (n,)."""

    images: NDArray[np.float64]
    digits: NDArray[np.int64]


@dataclass(frozen=True)
class Result:
    """What was learned at one epsilon, by way of training, and what was promised.

    `accuracies` and `surprises`, the mean of -log Pr[truth], are of images nobody was asked about.
    """

    epsilon: float
    accuracies: dict[str, float]
    surprises: dict[str, float]
    guarantees: Account


def load(seed: int = 0) -> tuple[Digits, Digits]:
    """Return the images that people are asked about, and others to test with."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    images, digits = data.images.reshape(-1, 64)[order] / 16, data.target[order]
    return Digits(images[TESTED:], digits[TESTED:]), Digits(images[:TESTED], digits[:TESTED])


def survey(epsilon: float, images: int) -> survey_pb2.Survey:
    """Ask what each image shows; a person is asked about one, drawn by the device."""
    domain = survey_pb2.Categorical(values=[str(digit) for digit in range(10)])
    return survey_pb2.Survey(
        name=f"digits_{round(1000 * epsilon)}",
        title="What does this image show?",
        levels={"only": epsilon},
        budget="sample",
        attributes=[
            survey_pb2.Attribute(name=f"image_{i}", categorical=domain, mechanism="krr")
            for i in range(images)
        ],
    )


def collect(address: str, asked: Digits, epsilon: float, people: int, coins: Coins) -> str:
    """Let every person's device report; return the survey's name."""
    with open_channel(address) as channel:
        declared = survey(epsilon, len(asked.digits))
        admin_pb2_grpc.AdminStub(channel).CreateSurvey(
            admin_pb2.CreateSurveyRequest(survey=declared)
        )
        collector = collector_pb2_grpc.CollectorStub(channel)
        request = collector_pb2.GetPlanRequest(survey=declared.name)
        plan = hearsay.plan.parse(collector.GetPlan(request).plan)
        for start in range(0, people, BATCHES):
            batches = [
                report(plan, asked, coins) for _ in range(start, min(start + BATCHES, people))
            ]
            answer = collector.Submit(collector_pb2.SubmitRequest(batches=batches))
            assert {result.status for result in answer.results} == {collector_pb2.Result.STORED}
    return declared.name


def report(plan: hearsay.plan.Plan, asked: Digits, coins: Coins) -> collector_pb2.Batch:
    """Return all that one person's device sends: one image's number, and a randomised answer."""
    level = plan.levels["only"]
    (image,) = level.budget.draw(coins)
    name = f"image_{image}"
    mechanism = level.mechanisms[name]
    code = mechanism.randomize(int(asked.digits[image]), coins)
    return collector_pb2.Batch(
        id=coins.words(2).tobytes(),
        survey=plan.survey,
        revision=plan.revision,
        period="once",
        rows=1,
        columns=[
            collector_pb2.Column(attribute=name, level="only", codes=mechanism.encode([code]))
        ],
    )


def stored(folder: Path, name: str) -> tuple[NDArray[np.int64], Mechanism, NDArray[np.uint8]]:
    """Return the image and the code of every row that the server keeps, and their mechanism."""
    with contextlib.closing(sqlite3.connect(folder / "hearsay.db")) as database:
        (plan,) = database.execute("SELECT plan FROM surveys WHERE survey = ?", [name]).fetchone()
        rows = database.execute("SELECT batch FROM batches WHERE survey = ?", [name]).fetchall()
    columns = [collector_pb2.Batch.FromString(batch).columns[0] for (batch,) in rows]
    mechanism = hearsay.plan.parse(plan).levels["only"].mechanisms["image_0"]
    images = np.array([int(c.attribute.removeprefix("image_")) for c in columns])
    codes = mechanism.decode(b"".join(column.codes for column in columns), len(columns))
    return images, mechanism, codes


def trained(inputs: Tensor, rows: Tensor, loss: Loss) -> torch.nn.Linear:
    """Train without noise: full-batch Adam with a little weight decay."""
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(inputs), rows).mean().backward()
        optimizer.step()
    return model


def privately_trained(
    inputs: Tensor, rows: Tensor, loss: Loss, accountant: RDPAccountant
) -> torch.nn.Linear:
    """Train by DP-SGD: Poisson batches, each person's gradient clipped, the sum noised."""
    model = torch.nn.Linear(64, 10)
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}

    def alone(weights: dict[str, Tensor], image: Tensor, row: Tensor) -> Tensor:
        logits = torch.func.functional_call(model, weights, image[None])
        return loss(logits, row[None])[0]

    each = torch.func.vmap(torch.func.grad(alone), in_dims=(None, 0, 0))
    optimizer = torch.optim.Adam(weights.values(), lr=0.02)
    for _ in range(STEPS):
        batch = torch.rand(len(inputs)) < RATE
        gradients = each(weights, inputs[batch], rows[batch])
        norms = sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt()
        factors = CLIP / norms.clamp(min=CLIP)
        for name, value in weights.items():
            total = torch.einsum("n,n...->...", factors, gradients[name])
            noise = NOISE * CLIP * torch.randn_like(value)
            value.grad = (total + noise) / (RATE * len(inputs))
        optimizer.step()
        accountant.step(noise_multiplier=NOISE, sampling=PoissonSampling(RATE))
    model.load_state_dict(weights)
    return model


def learned(
    asked: Digits,
    tested: Digits,
    epsilon: float,
    collected: tuple[NDArray[np.int64], Mechanism, NDArray[np.uint8]],
) -> Result:
    """Train in every way on what one survey collected, and test on images nobody was asked."""
    images, mechanism, codes = collected
    reports = Reports.of(mechanism, codes)
    inputs = torch.as_tensor(asked.images[images], dtype=torch.float32)
    likelihoods = torch.as_tensor(reports.likelihoods(), dtype=torch.float32)
    indicators = torch.as_tensor(reports.indicators(), dtype=torch.float32)
    as_they_are = torch.eye(10)[torch.as_tensor(codes.astype(np.int64))]
    accountant = RDPAccountant(Relation.ADD_REMOVE)
    models = {
        "the truth": trained(
            inputs,
            torch.eye(10)[torch.as_tensor(asked.digits[images])],
            forward_cross_entropy,
        ),
        "reports as they are": trained(inputs, as_they_are, forward_cross_entropy),
        "forward": trained(inputs, likelihoods, forward_cross_entropy),
        "backward": trained(inputs, indicators, backward_cross_entropy),
        "forward, DP-SGD": privately_trained(
            inputs, likelihoods, forward_cross_entropy, accountant
        ),
    }
    test = torch.as_tensor(tested.images, dtype=torch.float32)
    truth = torch.as_tensor(tested.digits)
    with torch.no_grad():
        logits = {name: model(test) for name, model in models.items()}
    return Result(
        epsilon,
        {name: float((found.argmax(1) == truth).float().mean()) for name, found in logits.items()},
        {name: float(cross_entropy(found, truth)) for name, found in logits.items()},
        account({"only": [mechanism]}, delta=DELTA, accountant=accountant),
    )


def run(
    epsilons: tuple[float, ...] = EPSILONS, people: int = PEOPLE, coins: Coins | None = None
) -> list[Result]:
    """Play all of it, and return what was learned at each epsilon."""
    asked, tested = load()
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        folder = Path(name)
        with server_process(folder) as address:
            names = [collect(address, asked, e, people, coins or Coins()) for e in epsilons]
        return [
            learned(asked, tested, epsilon, stored(folder, name))
            for epsilon, name in zip(epsilons, names, strict=True)
        ]


def table(results: list[Result]) -> str:
    """Return the accuracies, in percent, and surprises in nats as Markdown."""
    ways = list(results[0].accuracies)
    heads = ["epsilon", *ways, "epsilon, model only"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for result in results:
        (level,) = result.guarantees.levels
        cells = [f"{result.epsilon:g}"]
        cells += [
            f"{100 * result.accuracies[way]:.1f} ({result.surprises[way]:.2f})" for way in ways
        ]
        lines.append(f"| {' | '.join([*cells, f'{level.model:.2f}'])} |")
    return "\n".join(lines)


def draw(results: list[Result], file: Path) -> None:
    """Draw the accuracies over epsilon."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for way in results[0].accuracies:
        heights = [100 * result.accuracies[way] for result in results]
        plain = way == "the truth"
        axes.plot(
            [result.epsilon for result in results],
            heights,
            marker=None if plain else "o",
            linestyle=":" if plain else "-",
            color="#666666" if plain else None,
            label=way,
        )
    axes.set(xlabel="epsilon of a report", ylabel="accuracy on new images, %", ylim=(0, 100))
    axes.set_title(f"Digits learned from {PEOPLE:,} people's randomised answers")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main() -> None:
    """Redraw the curve, and what docs/training.md shows of it."""
    results = run()
    draw(results, DOCS / "training.png")
    page = DOCS / "training.md"
    text = page.read_text(encoding="utf-8")
    for name, content in (
        ("digits", table(results)),
        ("account", f"```\n{results[1].guarantees}\n```"),
    ):
        start = f"<!-- {name} -->\n"
        before, _, rest = text.partition(start)
        _, end, after = rest.partition("\n<!-- end -->")
        text = before + start + content + end + after
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
