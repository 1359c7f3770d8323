"""Models as safetensors files: what is read, what is refused, and that writing repeats itself."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from hearsay import InvalidInput
from hearsay.federated import models


def _file(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _tensor(start: int, stop: int, *shape: object, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


TWO = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array([7.0], np.float32),
    "scalar": np.array(-1.5, np.float32),
}


def test_the_safetensors_library_reads_the_same_tensors() -> None:
    data = models.write(TWO)
    assert data == models.write(dict(reversed(TWO.items())))
    for found in (load(data), models.read(data, 8), models.read(save(TWO), 8)):
        assert found.keys() == TWO.keys()
        for name, tensor in TWO.items():
            assert found[name].shape == tensor.shape
            assert found[name].tobytes() == tensor.tobytes()


def test_a_vector_has_the_tensors_in_order_of_their_names() -> None:
    vector = models.to_vector(TWO)
    assert vector.tolist() == [7.0, 0, 1, 2, 3, 4, 5, -1.5]
    assert models.write(models.from_vector(vector, TWO)) == models.write(TWO)
    with pytest.raises(InvalidInput, match="the model has 8 parameters"):
        models.from_vector(vector[1:], TWO)


def test_names_are_ordered_by_their_bytes() -> None:
    one = np.ones(1, np.float32)
    # By code units of UTF-16, as some languages sort, the second would come first.
    tensors = {"\uff5e": one, "\U0001f600": 2 * one}
    assert models.to_vector(tensors).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\0\0\0\0\0\0\0{",
        (1 << 63).to_bytes(8, "little") + b"{}",
        _file({}),
        _file(b"[]"),
        _file(b"[" * 100_000),
        _file(b'{"a":' + b"9" * 5000 + b"}"),
        _file(b'{"a": {}, "a": {}}'),
        _file(b'{"\\ud800": 1}'),
        _file(b"\xff\xfe"),
        _file({"a": _tensor(0, 4, 1)}),
        _file({"a": _tensor(0, 4, 1)}, bytes(5)),
        _file({"a": _tensor(0, 4, 1)}, bytes(3)),
        _file({"a": _tensor(0, 4, 1, dtype="F64")}, bytes(4)),
        _file({"a": _tensor(0, 8, 1, dtype="I64")}, bytes(8)),
        _file({"a": _tensor(0, 4, 2)}, bytes(4)),
        _file({"a": _tensor(0, 4, True)}, bytes(4)),
        _file({"a": _tensor(0, 4, 1.0)}, bytes(4)),
        _file({"a": _tensor(0, 4, -1, -1)}, bytes(4)),
        _file({"a": _tensor(0, 0, 0)}),
        _file({"a": _tensor(0, 4, *[1] * 40)}, bytes(4)),
        _file({"a": _tensor(0, 4, 1), "b": _tensor(0, 4, 1)}, bytes(4)),
        _file({"a": _tensor(0, 4, 1), "b": _tensor(8, 12, 1)}, bytes(12)),
        _file({"a": _tensor(4, 8, 1)}, bytes(8)),
        _file({"a": {**_tensor(0, 4, 1), "more": 1}}, bytes(4)),
        _file({"a": [0, 4]}, bytes(4)),
        _file({"a": _tensor(0, 1 << 50, 1 << 48)}, bytes(4)),
        _file({"a": _tensor(0, 4, 1)}, np.float32(np.nan).tobytes()),
        _file({"a": _tensor(0, 4, 1)}, np.float32(np.inf).tobytes()),
    ],
)
def test_a_file_that_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        models.read(data)


def test_a_model_of_another_size_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a model of 8 parameters; the training has 9"):
        models.read(models.write(TWO), 9)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 200), st.integers(0, 255), st.integers(0, 40))
def test_a_damaged_file_is_refused_or_is_still_a_model(at: int, byte: int, cut: int) -> None:
    data = bytearray(models.write(TWO))
    data[at % len(data)] = byte
    try:
        found = models.read(bytes(data[: len(data) - cut]))
    except InvalidInput:
        return
    assert models.to_vector(found).size == 8


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"a": np.ones(1)},
        {"a": np.ones(0, np.float32)},
        {"a": np.array([np.nan], np.float32)},
    ],
)
def test_a_model_that_could_not_be_read_is_not_written(tensors: models.Model) -> None:
    with pytest.raises(InvalidInput):
        models.write(tensors)
