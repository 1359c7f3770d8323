"""Train CIFAR-10 privately, and print the accuracy on the test set.

    python examples/private_cifar.py --data FOLDER

FOLDER has the files of the binary version, data_batch_1.bin to data_batch_5.bin and
test_batch.bin; without them the script says "not run here". Beside the result stands the accuracy
that Papernot et al. report for the same network at (7.53, 1e-5) ("Tempered sigmoid activations for
deep learning with differential privacy", AAAI 2021). Nobody has run this on the real set here.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from idx import Split
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from dpsgd import PrivacyEngine
from ldp import InvalidInput

REPORTED = 66.2
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = ("test_batch.bin",)
BATCH, RATE, MOMENTUM, CLIP = 1024, 1.0, 0.9, 0.1
_ROW = 1 + 3 * 32 * 32


def load(folder: Path) -> tuple[Split, Split]:
    """Return the training and the test set: images, shape (n, 3, 32, 32), and labels, 0 to 9.

    Raises `InvalidInput` where a file is missing, empty, no whole number of rows of 3,073 bytes, or
    has a label above 9.
    Source: A. Krizhevsky's description of the binary version with the set.
    """
    train, test = (
        np.concatenate([_rows(folder / name) for name in names]) for names in (TRAIN, TEST)
    )
    return _split(train), _split(test)


def missing(folder: Path) -> list[str]:
    """Return the names of the files that the folder lacks."""
    return [name for name in (*TRAIN, *TEST) if not (folder / name).is_file()]


def _rows(file: Path) -> np.ndarray:
    try:
        data = np.fromfile(file, np.uint8)
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    if not data.size or data.size % _ROW:
        raise InvalidInput(f"{file} must have rows of {_ROW} bytes, got {data.size} bytes in all")
    rows = data.reshape(-1, _ROW)
    if rows[:, 0].max() > 9:
        raise InvalidInput(f"{file} has a label of {rows[:, 0].max()}, where 9 is the largest")
    return rows


def _split(rows: np.ndarray) -> Split:
    return Split(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


def tanh_cnn() -> nn.Sequential:
    """Return the network of Papernot et al., table 2: eight layers with tanh, means at the end."""
    layers: list[nn.Module] = []
    before = 3
    for width, pooled in ((32, False), (32, True), (64, False), (64, True), (128, False)):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.Tanh()]
        layers += [nn.AvgPool2d(2)] if pooled else []
        before = width
    layers += [nn.Conv2d(128, 128, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2)]
    layers += [nn.Conv2d(128, 256, 3, padding=1), nn.Tanh(), nn.Conv2d(256, 10, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def run(arguments: argparse.Namespace) -> tuple[float, float]:
    """Train; return the test accuracy and the epsilon that was spent."""
    device = torch.device(arguments.device)
    (rows, labels), (tests, truth) = (
        (
            torch.as_tensor(split.images).float().to(device) / 127.5 - 1,
            torch.as_tensor(split.labels).long().to(device),
        )
        for split in load(arguments.data)
    )
    engine, model = PrivacyEngine(), tanh_cnn().to(device)
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM),
        data_loader=DataLoader(TensorDataset(rows, labels), min(BATCH, len(labels))),
        target_epsilon=arguments.epsilon,
        target_delta=arguments.delta,
        epochs=arguments.epochs,
        max_grad_norm=CLIP,
        max_physical_batch_size=512,
    )
    for _ in range(arguments.epochs):
        for batch_rows, batch_labels in loader:
            optimizer.zero_grad()
            cross_entropy(model(batch_rows), batch_labels).backward()
            optimizer.step()
    with torch.no_grad():
        found = torch.cat([model(part).argmax(1) for part in tests.split(1000)])
    return float((found == truth).float().mean()), engine.get_epsilon(arguments.delta)


def main(given: list[str] | None = None) -> None:
    """Train as the command line says, or say what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of .bin files")
    parser.add_argument("--epsilon", type=float, default=7.53)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args(given)
    if lacking := missing(arguments.data):
        print(f"not run here: {arguments.data} lacks {', '.join(lacking)}")  # noqa: T201
        return
    found, spent = run(arguments)
    print(  # noqa: T201
        f"CIFAR-10: {100 * found:.2f}% at ({spent:.3f}, {arguments.delta:g}), "
        f"{arguments.epochs} epochs; reported at (7.53, 1e-05): {REPORTED}%"
    )


if __name__ == "__main__":
    main()
