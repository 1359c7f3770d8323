"""Learn to read digits from people's private answers: `python examples/digits.py`.

The images are public: scikit-learn's digits, which the trainer has too. A person's reading of
an image is private. Each device draws one image (the survey's sampled budget), randomises
its person's answer by k-RR, and sends it over gRPC to a real server. The server's rows are
exported as Parquet, and a model is trained on them. Writes training.png, and the table into
training.md, in docs/.

The guarantee: all of a person's answers, to any of the images, are epsilon-LDP. That a person
took part and which image was drawn are in the clear; the images are not protected at all. DP-SGD
adds a guarantee against an observer of the model only.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

import hearsay.plans.plan
from dpsgd import (
    Account,
    Cohort,
    PrivacyEngine,
    Reports,
    Rows,
    account,
    backward_cross_entropy,
    forward_cross_entropy,
)
from hearsay import Analyst
from hearsay.asking import palette
from hearsay.sending.over_grpc import open_channel
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
    survey_pb2,
)
from hearsay_server.answers.export import export
from hearsay_server.demo.play import server_process
from ldp import Coins

DOCS = Path(__file__).resolve().parent.parent / "docs"
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
PEOPLE = 10_000
ASKED, TESTED = 500, 360  # images
DELTA = 1e-5
EPOCHS, PARTS = 15, 20  # batches in an epoch
NOISE, CLIP = 2.0, 1.0
REPEATS = 5  # with other people, coins and test images
BATCHES = 256  # of one request

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Digits:
    """The public images, shape (n, 64) in [0, 1], and the digits they show, shape (n,)."""

    images: NDArray[np.float64]
    digits: NDArray[np.int64]


@dataclass(frozen=True)
class Result:
    """Test results at one epsilon, by way of training, and the guarantees.

    `accuracies` and `surprises`, the mean of -log Pr[truth], are of images nobody was asked about.
    """

    epsilon: float
    accuracies: dict[str, float]
    surprises: dict[str, float]
    guarantees: Account


def load(seed: int = 0, asked: int = ASKED) -> tuple[Digits, Digits]:
    """Return `asked` images that people are asked about, and others to test with."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    images, digits = data.images.reshape(-1, 64)[order] / 16, data.target[order]
    tested = slice(asked, asked + TESTED)
    return Digits(images[:asked], digits[:asked]), Digits(images[tested], digits[tested])


def survey(epsilon: float, images: int) -> survey_pb2.Survey:
    """Return a survey of each image's digit; a device draws the image its person is asked about."""
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
        plan = hearsay.plans.plan.parse(collector.GetPlan(request).plan)
        for start in range(0, people, BATCHES):
            batches = [
                report(plan, asked, coins) for _ in range(start, min(start + BATCHES, people))
            ]
            answer = collector.Submit(collector_pb2.SubmitRequest(batches=batches))
            assert {result.status for result in answer.results} == {collector_pb2.Result.STORED}
    return declared.name


def report(plan: hearsay.plans.plan.Plan, asked: Digits, coins: Coins) -> collector_pb2.Batch:
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


def answered(rows: Rows, images: int) -> tuple[NDArray[np.intp], Reports]:
    """Return the image of every row, and all reports as one attribute's."""
    image = np.zeros(rows.n, dtype=np.intp)
    cohorts: list[Cohort] = []
    for i in range(images):
        for cohort in rows.reports(f"image_{i}").cohorts:
            image[cohort.rows] = i
            cohorts.append(cohort)
    return image, Reports(rows.n, tuple(cohorts))


def trained(inputs: Tensor, rows: Tensor, loss: Loss, engine: PrivacyEngine | None) -> nn.Module:
    """Train a linear model; the loop is the same with an engine and without."""
    model: nn.Module = nn.Linear(64, 10)
    optimizer: Optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    data = TensorDataset(inputs, rows)
    batches = DataLoader(data, batch_size=len(data) // PARTS, shuffle=True)
    if engine is not None:
        model, optimizer, batches = engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=batches,
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
        )
    for _ in range(EPOCHS):
        for some_inputs, some_rows in batches:
            optimizer.zero_grad()
            losses = loss(model(some_inputs), some_rows)
            losses.mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model


def learned(asked: Digits, tested: Digits, epsilon: float, rows: Rows, coins: Coins) -> Result:
    """Train in every way on one survey's reports, and test on images nobody was asked about."""
    images, reports = answered(rows, len(asked.digits))
    inputs = torch.as_tensor(asked.images[images], dtype=torch.float32)
    truth = torch.eye(10)[torch.as_tensor(asked.digits[images])]
    as_they_are = torch.zeros(rows.n, 10)
    for cohort in reports.cohorts:
        as_they_are[cohort.rows, cohort.codes.astype(np.intp)] = 1
    likelihoods = torch.as_tensor(reports.likelihoods(), dtype=torch.float32)
    indicators = torch.as_tensor(reports.indicators(), dtype=torch.float32)
    engine = PrivacyEngine(coins=coins)
    models = {
        "the truth": trained(inputs, truth, forward_cross_entropy, None),
        "reports as they are": trained(inputs, as_they_are, forward_cross_entropy, None),
        "forward": trained(inputs, likelihoods, forward_cross_entropy, None),
        "backward": trained(inputs, indicators, backward_cross_entropy, None),
        "forward, DP-SGD": trained(inputs, likelihoods, forward_cross_entropy, engine),
    }
    test, digits = torch.as_tensor(tested.images).float(), torch.as_tensor(tested.digits)
    with torch.no_grad():
        logits = {name: model(test) for name, model in models.items()}
    (mechanism,) = set(reports.mechanisms)
    return Result(
        epsilon,
        {name: float((found.argmax(1) == digits).float().mean()) for name, found in logits.items()},
        {name: float(cross_entropy(found, digits)) for name, found in logits.items()},
        account({"only": [mechanism]}, delta=DELTA, accountant=engine.accountant),
    )


def run(
    epsilons: Sequence[float] = EPSILONS,
    people: int = PEOPLE,
    asked: int = ASKED,
    *,
    coins: Coins | None = None,
    seed: int = 0,
) -> list[Result]:
    """Run the surveys and the trainings; return one result per epsilon."""
    coins = coins or Coins()
    shown, tested = load(seed, asked)
    results = []
    with tempfile.TemporaryDirectory(prefix="hearsay-") as name:
        folder = Path(name)
        with server_process(folder) as server, Analyst(server.address) as analyst:
            for epsilon in epsilons:
                survey_name = collect(server.address, shown, epsilon, people, coins)
                export(analyst, survey_name, folder / survey_name)
                rows = Rows.read(folder / survey_name)
                results.append(learned(shown, tested, epsilon, rows, coins))
    return results


def table(repeats: Sequence[Sequence[Result]]) -> str:
    """Return the mean accuracies, in percent, their standard errors, and surprises, as Markdown."""
    ways = list(repeats[0][0].accuracies)
    heads = ["epsilon", *ways, "epsilon, model only"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for results in zip(*repeats, strict=True):
        cells = [f"{results[0].epsilon:g}"]
        for way in ways:
            mean, error = accuracy(results, way)
            surprise = np.mean([result.surprises[way] for result in results])
            cells.append(f"{mean:.1f} ± {error:.1f} ({surprise:.2f})")
        (level,) = results[0].guarantees.levels
        lines.append(f"| {' | '.join([*cells, f'{level.model:.2f}'])} |")
    return "\n".join(lines)


def accuracy(results: Sequence[Result], way: str) -> tuple[float, float]:
    """Return the repeats' mean accuracy in percent, and its standard error."""
    found = 100 * np.array([result.accuracies[way] for result in results])
    return float(found.mean()), float(found.std(ddof=1) / len(found) ** 0.5)


def draw(repeats: Sequence[Sequence[Result]], file: Path) -> None:
    """Draw the accuracies over epsilon, with two standard errors each way."""
    found = {
        way: [accuracy(results, way) for results in zip(*repeats, strict=True)]
        for way in repeats[0][0].accuracies
    }
    plot([result.epsilon for result in repeats[0]], found, file)


def plot(
    epsilons: Sequence[float], found: Mapping[str, Sequence[tuple[float, float]]], file: Path
) -> None:
    """Draw means with two standard errors each way, by epsilon, of each way to train."""
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    places = np.arange(len(epsilons))
    ends = []
    for number, (way, points) in enumerate(found.items()):
        means = [mean for mean, _ in points]
        beside = places + 0.09 * (number - (len(found) - 1) / 2)  # so that none hides another
        axes.errorbar(
            beside,
            means,
            [2 * error for _, error in points],
            color=palette.colour(number),
            marker=palette.marker(number),
            markersize=5,
            linewidth=1,
            elinewidth=2,
        )
        ends.append(palette.End(beside[0], means[0], way, palette.colour(number)))
    axes.set(xlabel="epsilon of a report", ylabel="accuracy on new images, %", ylim=(30, 100))
    axes.set_xticks(places, [f"{epsilon:g}" for epsilon in epsilons])
    axes.yaxis.set_label_position("right")
    axes.yaxis.tick_right()
    axes.spines[["top", "left"]].set_visible(False)
    axes.set_title(f"Digits learned from {PEOPLE:,} people's randomised answers")
    axes.grid(axis="y", alpha=0.3)
    palette.label(axes, ends, left=True)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main() -> None:
    """Redraw docs/training.png, and rewrite the tables of docs/training.md."""
    repeats = [run(seed=seed) for seed in range(REPEATS)]
    draw(repeats, DOCS / "training.png")
    page = DOCS / "training.md"
    text = page.read_text(encoding="utf-8")
    for name, content in (
        ("digits", table(repeats)),
        ("account", f"```\n{repeats[0][1].guarantees}\n```"),
    ):
        start = f"<!-- {name} -->\n"
        before, _, rest = text.partition(start)
        _, end, after = rest.partition("\n<!-- end -->")
        text = before + start + content + end + after
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
