"""The loader of CIFAR-10's binary files, and the script, on a small set in their format."""

from pathlib import Path

import numpy as np
import private_cifar
import pytest

from ldp import InvalidInput


def folder(path: Path, rows: int = 8) -> Path:
    source = np.random.default_rng(1)
    for name in (*private_cifar.TRAIN, *private_cifar.TEST):
        data = source.integers(256, size=(rows, 3073), dtype=np.uint8)
        data[:, 0] %= 10
        (path / name).write_bytes(data.tobytes())
    return path


def test_images_are_planes_of_red_green_and_blue_after_their_labels(tmp_path: Path) -> None:
    folder(tmp_path)
    planes = [np.full(1024, colour, dtype=np.uint8) for colour in (10, 20, 30)]
    planes[0][33] = 99  # second row, second column of the red
    last = tmp_path / "data_batch_5.bin"
    last.write_bytes(bytes([7]) + b"".join(plane.tobytes() for plane in planes))
    train, test = private_cifar.load(tmp_path)
    assert train.images.shape == (33, 3, 32, 32)
    assert test.images.shape == (8, 3, 32, 32)
    assert train.labels[-1] == 7
    assert train.images[-1, :, 0, 0].tolist() == [10, 20, 30]
    assert train.images[-1, 0, 1, 1] == 99


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "rows of 3073 bytes, got 0"),
        (bytes(3072), "rows of 3073 bytes, got 3072"),
        (bytes(3074), "rows of 3073 bytes, got 3074"),
        (bytes([10]) + bytes(3072), "has a label of 10"),
    ],
    ids=["empty", "short", "long", "label"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    (folder(tmp_path) / "data_batch_3.bin").write_bytes(data)
    with pytest.raises(InvalidInput, match=rf"data_batch_3\.bin .*{reason}"):
        private_cifar.load(tmp_path)


def test_without_the_data_the_script_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder(tmp_path) / "test_batch.bin").unlink()
    private_cifar.main(["--data", str(tmp_path)])
    assert capsys.readouterr().out == f"not run here: {tmp_path} lacks test_batch.bin\n"
    with pytest.raises(InvalidInput, match=r"cannot read .*test_batch\.bin"):
        private_cifar.load(tmp_path)


@pytest.mark.slow
def test_the_script_trains_within_its_epsilon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private_cifar.main(["--data", str(folder(tmp_path)), "--epochs", "1"])
    said = capsys.readouterr().out
    assert said.startswith("CIFAR-10: ")
    assert 7.4 < float(said.partition("(")[2].partition(",")[0]) <= 7.53
