"""`hearsay.Analyst` within the server: the same calls, without a connection."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, TypeVar

from google.protobuf.message import Message

from hearsay import Analyst, NotReady, Unreachable, asking
from hearsay.asking import wire
from hearsay.asking.selection import quietly
from hearsay.sending.failures import OUR_FAULT
from hearsay.sending.transport import Answer
from hearsay.trouble import Reason
from hearsay.v1 import answer_pb2
from hearsay_server.limits import TooMany
from hearsay_server.serving.auth import Proof
from hearsay_server.serving.inside import Inside
from hearsay_server.serving.status import Ended
from ldp.errors import InvalidInput

_THREADS = 4
"""Threads that ask for pages: each has a question that is answered in a process of its own."""

_WAITING = 64
"""Questions of pages that may wait for a thread."""

_LONGEST = 120.0
"""Seconds that a page waits for an answer. What takes longer is for a program."""

_T = TypeVar("_T")


class Asking:
    """Threads in which `Analyst` asks this server for pages, so that the event loop never waits.

    They are not those of `asyncio.to_thread`: the calls that they wait for use these.
    """

    def __init__(self, inside: Inside) -> None:
        """Ask the server that `inside` is of. No thread is started yet."""
        self._inside = inside
        self._threads = ThreadPoolExecutor(_THREADS, "hearsay-pages")
        self._held = 0
        self._warmed: asyncio.Task[int] | None = None

    def warm(self) -> None:
        """Have the processes for questions loaded, once, by a question that does nothing.

        Each is forked from one that takes seconds to load numpy, scipy and the estimators: whoever
        chooses a survey has them ready when the first view is asked for.
        """
        if self._warmed is None:
            self._warmed = asyncio.ensure_future(self._inside.analyses.run(int))
            self._warmed.add_done_callback(_noted)

    async def ask(self, proof: Proof, work: Callable[[Analyst], _T]) -> _T:
        """Return what `work` makes of an `Analyst` whose calls are made with `proof`.

        Raises `TooMany` where too many questions of pages wait already, and what the calls raise.
        """
        if self._held >= _THREADS + _WAITING:
            detail = f"{self._held} questions of pages are being answered or wait"
            raise TooMany(detail, "pages", retry_after=1.0)

        def asked() -> _T:
            with quietly():
                return work(_Inside(self._inside, proof))

        self._held += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, asked)
        finally:
            self._held -= 1


def _noted(warmed: asyncio.Task[int]) -> None:
    """Take note of why nothing was loaded: the first question meets the same, and tells it."""
    if not warmed.cancelled():
        warmed.exception()


class _Inside(Analyst):
    """An `Analyst` of the server that it runs in; to be used in another thread than its loop's."""

    def __init__(self, inside: Inside, proof: Proof) -> None:
        self._calls = _Calls(inside, proof)
        self._timeout = _LONGEST


class _Calls:
    """The calls of a server to itself, as `hearsay.sending.transport.Calls`."""

    def __init__(self, inside: Inside, proof: Proof) -> None:
        self._inside = inside
        self._proof = proof

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        """Return the answer, as `Calls.call` does."""
        answer = self._wait(self._inside.call(method, request, self._proof), timeout)
        return _parsed(answer, kind)

    def ask(self, method: str, request: Message, timeout: float) -> asking.Answer:
        """Return the answer to a question, which is this server's own."""
        return wire.from_message(self.call(method, request, answer_pb2.Answer, timeout))

    def asked(self, method: str, request: Message) -> Iterator[asking.Answer]:
        """Yield the answers to a question that is asked again and again: pages ask none."""
        raise NotImplementedError(method)

    def stream(
        self, method: str, request: Message, kind: type[Answer], timeout: float | None = None
    ) -> Iterator[Answer]:
        """Yield the answers once all have come: those of a question, not of a watch."""
        answers: list[Any] = []

        async def take(answer: Any) -> None:
            answers.append(answer)

        self._wait(self._inside.stream(method, request, self._proof, take), timeout)
        return (_parsed(answer, kind) for answer in answers)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _wait(self, called: Coroutine[Any, Any, _T], timeout: float | None) -> _T:
        seconds = min(timeout or _LONGEST, _LONGEST)
        future = asyncio.run_coroutine_threadsafe(called, self._inside.loop)
        with _translated(seconds):
            try:
                return future.result(seconds)
            finally:
                future.cancel()


@contextlib.contextmanager
def _translated(seconds: float) -> Iterator[None]:
    """Raise what `Calls` raise."""
    try:
        yield
    except Ended as error:
        if error.code.name == "FAILED_PRECONDITION":
            raise NotReady(str(error)) from None
        if error.code.name in OUR_FAULT:
            raise InvalidInput(str(error)) from None
        wait = error.retry_after or 0.0
        raise Unreachable(str(error), wait, Reason.SERVER_REFUSED) from error
    except TimeoutError:
        words = f"this question takes longer than {seconds:g} s: ask it by a program"
        raise Unreachable(words) from None
    except CancelledError:
        raise Unreachable("the server is stopping") from None


def _parsed(answer: Any, kind: type[Answer]) -> Answer:
    if isinstance(answer, kind):
        return answer
    return kind.FromString(answer)
