"""Each question of an analyst is answered in a process of its own."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import analysed
import pytest

from hearsay_server.limits import TooMany
from hearsay_server.serving.analyses import _LOADED, Analyses, Bounds, TooLarge
from hearsay_server.serving.metrics import Metrics
from ldp import InvalidInput
from ldp.errors import StorageFailed

BOUNDS = Bounds(seconds=20, memory=1 << 30)


def analyses(
    at_once: int = 1, waiting: int = 1, bounds: Bounds = BOUNDS, metrics: Metrics | None = None
) -> Analyses:
    return Analyses("analysis", at_once, waiting, bounds, metrics or Metrics())


async def asked(these: Analyses, work: Callable[..., Any], *args: object) -> Any:
    async with these.process() as run:
        return await run(work, *args)


def done(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def is_gone(pid: int) -> None:
    """Wait until a process is gone; a zombie is."""
    async with asyncio.timeout(10):
        while Path(f"/proc/{pid}").exists():
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
            await asyncio.sleep(0.01)


def test_each_question_has_a_process_of_lower_priority() -> None:
    async def ask() -> None:
        these = analyses()
        first, second = await asked(these, analysed.pid), await asked(these, analysed.pid)
        assert len({first, second, os.getpid()}) == 3
        here = os.getpriority(os.PRIO_PROCESS, 0)
        assert await asked(these, analysed.priority) > here
        async with these.process() as run:
            assert await run(analysed.pid) == await run(analysed.pid)

    done(ask())


def test_what_few_questions_need_is_loaded_by_them_alone() -> None:
    """The first question after a start waits until the rest is loaded."""
    loaded = ", ".join(_LOADED)
    dear = "{'scipy.stats', 'scipy.optimize', 'pandas', 'matplotlib', 'torch'}"
    program = f"import sys, {loaded}\nprint(sorted({dear} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr


def test_bad_input_is_raised_as_it_is_and_faults_with_their_traceback() -> None:
    async def ask() -> None:
        these = analyses()
        with pytest.raises(InvalidInput, match="must be even, got 3"):
            await asked(these, analysed.refuse)
        with pytest.raises(RuntimeError, match=r"in fail\n.*\nKeyError: 'a fault inside'"):
            await asked(these, analysed.fail)

    done(ask())


def test_more_processor_time_or_memory_than_allowed_ends_the_question_alone() -> None:
    async def ask() -> None:
        metrics = Metrics()
        these = analyses(bounds=Bounds(seconds=1, memory=400 << 20), metrics=metrics)
        with pytest.raises(TooLarge, match="more than 1 s of processor time"):
            await asked(these, analysed.spin)
        with pytest.raises(TooLarge, match="more than 400 MiB of memory"):
            await asked(these, analysed.take, 10**8)
        assert await asked(these, analysed.take, 10**6) == 10**6
        killed = {
            limit: metrics.registry.get_sample_value(
                "hearsay_questions_killed_total", {"limit": limit}
            )
            for limit in ("processor", "memory")
        }
        assert killed == {"processor": 1, "memory": 1}

    done(ask())


def test_the_process_of_a_caller_who_left_is_killed(tmp_path: Path) -> None:
    async def ask() -> None:
        these = analyses()
        question = asyncio.create_task(asked(these, analysed.sleep, tmp_path / "pid"))
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
        pid = int((tmp_path / "pid").read_text())
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question
        await is_gone(pid)
        assert await asked(these, analysed.take, 10) == 10

    done(ask())


def test_a_process_that_is_killed_by_others_ends_one_question_alone(tmp_path: Path) -> None:
    async def ask() -> None:
        these = analyses()
        question = asyncio.create_task(asked(these, analysed.sleep, tmp_path / "pid"))
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        with pytest.raises(TooLarge, match="too much memory"):
            await question
        assert await asked(these, analysed.take, 10) == 10

    done(ask())


def test_a_process_that_cannot_be_started_is_an_error_and_no_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> object:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ForkServerContext, "Pipe", fails)
    with pytest.raises(StorageFailed, match=r"can be started: .* Too many open files"):
        done(asked(analyses(), analysed.pid))


def test_only_new_questions_are_refused_where_too_many_wait(tmp_path: Path) -> None:
    async def ask() -> None:
        metrics = Metrics()
        these = analyses(at_once=1, waiting=1, metrics=metrics)
        under_way = asyncio.create_task(asked(these, analysed.sleep, tmp_path / "pid"))
        waiting = asyncio.create_task(asked(these, analysed.take, 10))
        await asyncio.sleep(0)
        with pytest.raises(TooMany, match="2 questions of analysis"):
            await asked(these, analysed.take, 10)

        async def goes_on() -> float:
            async with these.process(begun=True) as run:
                return await run(analysed.take, 20)

        begun = asyncio.create_task(goes_on())
        await asyncio.sleep(0)

        def metered(name: str) -> float | None:
            return metrics.registry.get_sample_value(f"hearsay_{name}", {"kind": "analysis"})

        assert (metered("questions_running"), metered("questions_waiting")) == (1, 2)
        under_way.cancel()
        await asyncio.sleep(0)
        another = asyncio.create_task(asked(these, analysed.take, 30))  # begun work keeps no place
        await asyncio.sleep(0)
        assert [await waiting, await begun, await another] == [10, 20, 30]
        assert (metered("questions_running"), metered("questions_waiting")) == (0, 0)
        assert metered("question_seconds_count") == 4

    done(ask())


def test_what_holds_the_interpreter_in_a_process_does_not_hold_it_here() -> None:
    async def latest() -> float:
        worst, last = 0.0, time.perf_counter()
        while True:
            try:
                await asyncio.sleep(0.002)
            except asyncio.CancelledError:
                return worst
            now = time.perf_counter()
            worst, last = max(worst, now - last), now

    async def ask() -> None:
        these = analyses()
        await asked(these, analysed.factor, 10)
        watching = asyncio.create_task(latest())
        begin = time.perf_counter()
        await asked(these, analysed.factor, 2_500)
        took = time.perf_counter() - begin
        watching.cancel()
        assert await watching < took / 2

    done(ask())
