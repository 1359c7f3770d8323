"""Work that is shared with torch's threads."""

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from dpsgd import team


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    if team._load_parallel() is None:
        pytest.skip("torch has another OpenMP interface than GNU's")
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_each_of_torchs_threads_works_and_all_have_when_it_returns(threads: int) -> None:
    seen: list[int] = []

    def work() -> None:
        time.sleep(0.05)
        seen.append(threading.get_ident())

    for _ in range(3):
        seen.clear()
        team.in_all_threads(work)
        assert len(set(seen)) == len(seen) == threads
        assert threading.get_ident() in seen
        (torch.ones(500, 500) @ torch.ones(500, 500)).sum()  # it is used in turns with torch


def test_what_fails_in_a_thread_is_raised_when_all_have_ended(threads: int) -> None:
    ended = []

    def work() -> None:
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.05)
            raise KeyboardInterrupt
        ended.append(1)
        raise OSError

    with pytest.raises(KeyboardInterrupt):
        team.in_all_threads(work)
    assert len(ended) == threads - 1


def test_an_interrupt_that_ctypes_would_only_print_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(team, "_load_parallel", lambda: lambda *_: None)  # as if no call began
    with pytest.raises(KeyboardInterrupt):
        team.in_all_threads(lambda: None)


def test_without_gnus_interface_the_caller_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(team.ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(team, "_load_parallel", team._load_parallel.__wrapped__)
    assert team._load_parallel() is None
    seen = []
    team.in_all_threads(lambda: seen.append(threading.get_ident()))
    assert seen == [threading.get_ident()]
