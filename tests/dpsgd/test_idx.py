"""The loader of idx files."""

import gzip
import struct
from pathlib import Path

import idx
import numpy as np
import pytest

from ldp import InvalidInput

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def packed(array: np.ndarray, code: int = 0x08) -> bytes:
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + shape + array.tobytes()


def folder(path: Path, *, zipped: bool = False, labels: int = 3) -> Path:
    source = np.random.default_rng(1)
    for name in ("train", "t10k"):
        images = source.integers(256, size=(3, 4, 5), dtype=np.uint8)
        for kind, array in (
            ("images-idx3", images),
            ("labels-idx1", np.arange(labels, dtype=np.uint8)),
        ):
            data = packed(array)
            file = path / f"{name}-{kind}-ubyte"
            if zipped:
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(data))
            else:
                file.write_bytes(data)
    return path


@pytest.mark.parametrize("zipped", [False, True])
def test_a_folder_is_read_plain_or_gzipped(tmp_path: Path, zipped: bool) -> None:
    train, test = idx.load(folder(tmp_path, zipped=zipped))
    source = np.random.default_rng(1)
    for split in (train, test):
        assert np.array_equal(split.images, source.integers(256, size=(3, 4, 5), dtype=np.uint8))
        assert split.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("code", "dtype"), [(0x09, ">i1"), (0x0B, ">i2"), (0x0E, ">f8")])
def test_every_type_is_read_in_its_byte_order(tmp_path: Path, code: int, dtype: str) -> None:
    array = np.array([[1, -2, 3], [4, 5, -6]])
    (tmp_path / "x").write_bytes(packed(array.astype(dtype), code))
    found = idx.read(tmp_path / "x")
    assert np.array_equal(found, array)
    assert found.dtype.isnative
    assert found.flags.writeable


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no idx file"),
        (b"\x89PNG", "begins with 89 50 4e 47"),
        (b"\0\0\x07\x01", "no idx file"),
        (b"\0\0\x08\0", "no idx file"),
        (b"\0\0\x08\x02\0\0\0\x01", "ends within its header"),
        (packed(np.zeros(4, dtype=np.uint8))[:-1], r"of shape \(4,\) has 12 bytes, got 11"),
        (packed(np.zeros(4, dtype=np.uint8)) + b"\0", "has 12 bytes, got 13"),
    ],
    ids=["empty", "png", "type", "scalar", "header", "short", "long"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(InvalidInput, match=reason):
        idx.read(tmp_path / "x")


@pytest.mark.parametrize(
    "data",
    [b"no gzip", gzip.compress(b"x" * 99)[:-9], b"\x1f\x8b\x08\0\0\0\0\0\0\0\xff\xff"],
    ids=["other", "short", "broken"],
)
def test_a_damaged_gzip_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.gz").write_bytes(data)
    with pytest.raises(InvalidInput, match="cannot read"):
        idx.read(tmp_path / "x.gz")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="neither train-images-idx3-ubyte nor"):
        idx.load(tmp_path)


def test_images_without_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"train images of shape \(3, 4, 5\) and labels of"):
        idx.load(folder(tmp_path, labels=2))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_sets_are_read_whole(name: str) -> None:
    if not (SHARED / name).is_dir():
        pytest.skip(f"needs {SHARED / name}")
    train, test = idx.load(SHARED / name)
    assert train.images.shape == (60_000, 28, 28)
    assert test.images.shape == (10_000, 28, 28)
    assert set(np.unique(train.labels)) == set(range(10))
