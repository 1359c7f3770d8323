"""Train MNIST or Fashion-MNIST privately, and print the accuracy on the test set.

    python examples/private_mnist.py --data FOLDER --set mnist --model scattering

FOLDER has the idx files. Beside the result stands the accuracy that Tramèr and Boneh report at
(3, 1e-5) for the same kind of model ("Differentially private learning needs better features",
ICLR 2021). `--quick` is for two cores: fewer epochs, but all images.
"""

import argparse
from pathlib import Path

import idx
import torch
from scattering import Scattering, linear_on_scattering
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from dpsgd import PrivacyEngine
from dpsgd.accounting import Accountant, RDPAccountant
from dpsgd.estimators.fitting import Table

REPORTED = {
    ("mnist", "cnn"): 98.1,
    ("mnist", "scattering"): 98.7,
    ("fashion", "cnn"): 86.0,
    ("fashion", "scattering"): 89.7,
}
RATES = {"cnn": 2.0, "scattering": 4.0}
BATCH, MOMENTUM, CLIP = 2048, 0.9, 0.1
EPOCHS, QUICK = 40, 12


def tanh_cnn() -> nn.Sequential:
    """Return the network of Papernot et al., "Tempered sigmoid activations", AAAI 2021."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def inputs(split: idx.Split, model: str, device: torch.device) -> Tensor:
    """Return the model's inputs on the device: pixels in [-1, 1], or scattering coefficients."""
    images = torch.as_tensor(split.images[:, None]).to(device) / 127.5 - 1
    if model == "cnn":
        return images
    scattering = Scattering().to(device)
    return torch.cat([scattering(part) for part in images.split(200)])


def accuracy(model: nn.Module, tests: Tensor, labels: Tensor) -> float:
    """Return the share of test images that the model labels correctly."""
    with torch.no_grad():
        right = sum(
            int((model(part).argmax(1) == truth).sum())
            for part, truth in zip(tests.split(1000), labels.split(1000), strict=True)
        )
    return right / len(labels)


def train_privately(
    model: nn.Module,
    rows: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    delta: float,
    epochs: int,
    rate: float,
    batch: int,
    clip: float = CLIP,
    accountant: type[Accountant] = RDPAccountant,
) -> PrivacyEngine:
    """Train the model within (epsilon, delta) by SGD; return the engine, which has the account."""
    engine = PrivacyEngine(accountant=accountant)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM),
        data_loader=DataLoader(Table(rows, labels), batch, collate_fn=lambda drawn: drawn),
        target_epsilon=epsilon,
        target_delta=delta,
        epochs=epochs,
        max_grad_norm=clip,
    )
    for _ in range(epochs):
        for batch_rows, batch_labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(batch_rows), batch_labels).backward()
            optimizer.step()
    return engine


def run(arguments: argparse.Namespace) -> tuple[float, float]:
    """Train; return the test accuracy and the epsilon that was spent."""
    device = torch.device(arguments.device)
    train, test = (
        idx.Split(split.images[: arguments.images], split.labels[: arguments.images])
        for split in idx.load(arguments.data)
    )
    rows = inputs(train, arguments.model, device)
    labels, truth = (torch.as_tensor(s.labels).long().to(device) for s in (train, test))
    model = tanh_cnn() if arguments.model == "cnn" else linear_on_scattering(10)
    model = model.to(device)
    engine = train_privately(
        model,
        rows,
        labels,
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        epochs=arguments.epochs,
        rate=RATES[arguments.model],
        batch=min(BATCH, len(labels) // 8),
    )
    found = accuracy(model, inputs(test, arguments.model, device), truth)
    return found, engine.get_epsilon(arguments.delta)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of idx files")
    parser.add_argument("--set", choices=["mnist", "fashion"], default="mnist")
    parser.add_argument("--model", choices=["cnn", "scattering"], default="scattering")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--epochs", type=int, help=f"by default {EPOCHS}, if quick {QUICK}")
    parser.add_argument("--images", type=int, help="only the first so many of each split")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} epochs, not {EPOCHS}")
    found = parser.parse_args(arguments)
    found.epochs = found.epochs or (QUICK if found.quick else EPOCHS)
    return found


def main() -> None:
    """Train as the command line says."""
    arguments = parsed()
    found, spent = run(arguments)
    print(  # noqa: T201
        f"{arguments.set} {arguments.model}: {100 * found:.2f}% at ({spent:.3f}, "
        f"{arguments.delta:g}), {arguments.epochs} epochs; reported at (3, 1e-05): "
        f"{REPORTED[arguments.set, arguments.model]}%"
    )


if __name__ == "__main__":
    main()
