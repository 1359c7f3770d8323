"""Noise that threads share: the same as one thread's, every value once, and nothing half done."""

import signal
from collections.abc import Iterator

import numba
import numpy as np
import pytest
import torch
from torch import Tensor

from dpsgd.noise import parallel
from dpsgd.noise.keystream import Cipher, compile_chacha, load_cipher
from dpsgd.noise.parallel import add_noise
from dpsgd.noise.ziggurat import PART, add_normal

OPTIONS = 2.5, 2.0**-10, False, 8.0
SIZES = [3 * PART + 1, 0, 7, PART, PART - 1, 2 * PART, 1]


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[load_cipher, compile_chacha], ids=["cipher", "chacha"])
def cipher(request: pytest.FixtureRequest) -> Cipher:
    return request.param()


def new_schedule(cipher: Cipher) -> np.ndarray:
    return cipher.expand(np.arange(4, dtype=np.uint64))


def alone(sums: list[Tensor], cipher: Cipher, options: tuple[float, float, bool, float]) -> None:
    """Do the same part by part."""
    parts = [part for summed in sums for part in summed.split(PART) if part.numel()]
    for number, part in enumerate(parts):
        add_normal(part.numpy(), new_schedule(cipher), cipher.keystream, number, *options)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_add_to_every_value_what_one_would(
    cipher: Cipher, threads: int, dtype: torch.dtype, apart: bool
) -> None:
    options = (2.5, 2.0**-10, apart, 8.0)
    sums = [torch.randn(size, dtype=dtype) for size in SIZES]
    expected = [summed.clone() for summed in sums]
    alone(expected, cipher, options)
    for _ in range(3):
        drawn = [summed.clone() for summed in sums]
        add_noise(drawn, cipher, new_schedule(cipher), options, threads)
        assert all(map(torch.equal, drawn, expected))
        (torch.ones(500, 500) @ torch.ones(500, 500)).sum()  # threads are used in turns with torch


def test_no_value_is_drawn_twice() -> None:
    cipher, sums = load_cipher(), [torch.zeros(size, dtype=torch.float64) for size in SIZES]
    add_noise(sums, cipher, new_schedule(cipher), (1.0, 2.0**-52, False, 1.0), 1)
    drawn = torch.cat(sums)
    assert drawn.unique().numel() > drawn.numel() - 3  # of 53 bits, two may be alike


def test_without_gnus_interface_the_caller_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel.ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(parallel, "_load_parallel", parallel._load_parallel.__wrapped__)
    assert parallel._load_parallel() is None
    cipher, drawn, expected = load_cipher(), torch.zeros(5 * PART), torch.zeros(5 * PART)
    add_noise([drawn], cipher, new_schedule(cipher), OPTIONS, 2)
    alone([expected], cipher, OPTIONS)
    assert torch.equal(drawn, expected)


@numba.njit(nogil=True)
def failing(words: np.ndarray, schedule: np.ndarray, first: int) -> None:
    """A keystream that fails at the second part."""
    if first == 1 << 32:
        raise MemoryError
    words[:] = 0


# Compiled code has no caller to raise its error to: numba prints it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_draw_that_was_broken_off_is_not_taken_for_one(threads: int) -> None:
    cipher = Cipher(np.copy, 4, failing)
    with pytest.raises(RuntimeError, match="broken off"):
        add_noise([torch.zeros(3 * PART)], cipher, new_schedule(cipher), OPTIONS, threads)


def test_an_interrupt_waits_for_all_threads(threads: int) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    cipher, drawn = load_cipher(), torch.zeros(20_000_000)
    add_noise([drawn[:1]], cipher, new_schedule(cipher), OPTIONS, 1)  # it is compiled
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            add_noise([drawn], cipher, new_schedule(cipher), OPTIONS, threads)
            signal.pause()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert torch.count_nonzero(drawn.view(-1, 1000), dim=1).min() > 900


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(10)[::2],
        torch.zeros(2, 3).t(),
        torch.zeros(2, dtype=torch.float64),
        torch.zeros(2, device="meta"),
    ],
    ids=["strided", "transposed", "another type", "another device"],
)
def test_sums_that_have_another_form_are_refused_before_any_is_changed(other: Tensor) -> None:
    cipher, good = load_cipher(), torch.zeros(4)
    with pytest.raises(ValueError, match="expected contiguous sums"):
        add_noise([good, other], cipher, new_schedule(cipher), OPTIONS, 1)
    assert not good.any()


def test_sums_of_integers_are_refused() -> None:
    cipher = load_cipher()
    with pytest.raises(ValueError, match="of one type of floating point"):
        add_noise([torch.zeros(2, dtype=torch.int64)], cipher, new_schedule(cipher), OPTIONS, 1)
