"""Calls of analysts and operators, whose answers are checked once, here."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from hearsay.asking import wire
from hearsay.asking.answer import Answer as Answered
from hearsay.checking import answers, registered, streams
from hearsay.checking.fields import check_fields
from hearsay.checking.tables import check_tables
from hearsay.plain import on_one_line
from hearsay.plans.plan import Plan, parse
from hearsay.sending.transport import Answer, Calls, Tls, Token, Unreachable, open_calls
from hearsay.v1 import admin_pb2, answer_pb2
from ldp.errors import AnswerRefused, InvalidInput

_TIMEOUT = 30.0
"""Seconds to wait for a survey's plan."""

_MOST_BYTES = 1 << 28
"""Bytes of one answer, in however many messages it comes."""

_MOST_GROUPS = 1 << 20
"""Answers to one question."""

_Any = TypeVar("_Any")


class AnalystCalls(Calls, Protocol):
    """The calls of an analyst to a server."""

    def ask(self, method: str, request: Message, timeout: float) -> Answered:
        """Return the answer to a question; raise as `Calls.call`."""


class CheckedCalls:
    """`Calls` that raise `AnswerRefused` for an answer that an honest server never gives.

    Rows and counts of an analyst's answer are checked against the survey's plan, which is fetched
    before the first answer about a survey is used, and kept.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._plans: dict[str, Plan] = {}

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        """Return the answer, as `Calls.call` does, once it is checked."""
        answer = self._calls.call(method, request, kind, timeout)
        with _refusing(method):
            self._check(request, answer)
        return answer

    def stream(
        self, method: str, request: Message, kind: type[Answer], timeout: float | None = None
    ) -> Iterator[Answer]:
        """Yield the answers, as `Calls.stream` does, each whole and once it is checked."""
        with contextlib.closing(  # type: ignore[type-var]
            self._calls.stream(method, request, kind, timeout)
        ) as messages:
            check_next = streams.checker(request)
            groups = answers.Groups(request)
            for answer in _whole(method, messages):
                with _refusing(method):
                    if check_next is not None:
                        check_fields(answer)
                        check_next(answer)
                    else:
                        self._check(request, answer)
                        groups.add(answer)
                yield answer

    def ask(self, method: str, request: Message, timeout: float) -> Answered:
        """Return the answer to an analyst's question, once it is checked."""
        message = self._calls.call(method, request, answer_pb2.Answer, timeout)
        with _refusing(method):
            found = wire.from_message(message)
            check_tables(found)
            self._by_plan(request, found, answers.check_answer)
        return found

    def close(self) -> None:
        """Disconnect."""
        self._calls.close()

    def _check(self, request: Message, answer: Message) -> None:
        """Raise `InvalidInput` for an answer that cannot be one to this request."""
        check_fields(answer)
        registered.check(request, answer)
        if isinstance(answer, admin_pb2.ShowSurveyResponse):
            self._plans[answer.status.survey] = parse(answer.plan)
        self._by_plan(request, answer, answers.check)

    def _by_plan(
        self, request: Message, answer: _Any, check: Callable[[Message, _Any, Plan], None]
    ) -> None:
        """Check an answer by the survey's plan; raise as `check`."""
        name = answers.survey_of(request)
        if name is None:
            return
        plan = self._plans.get(name)
        if plan is not None:
            try:
                check(request, answer, plan)
            except InvalidInput:
                # The survey may have been deleted, and created again with another plan.
                if self._fetched(name).revision == plan.revision:
                    raise
            else:
                return
        check(request, answer, self._plans.get(name) or self._fetched(name))

    def _fetched(self, survey: str) -> Plan:
        """Return the survey's plan of now."""
        request = admin_pb2.ShowSurveyRequest(survey=survey)
        self.call("Admin/ShowSurvey", request, admin_pb2.ShowSurveyResponse, _TIMEOUT)
        return self._plans[survey]


def open_checked(
    target: str, *, tls: Tls | None = None, token: Token | None = None, insecure: bool = False
) -> CheckedCalls:
    """Return the checked calls of an analyst or operator to a server, as `open_calls`."""
    return CheckedCalls(open_calls(target, tls=tls, token=token, insecure=insecure))


def _whole(method: str, messages: Iterator[Answer]) -> Iterator[Answer]:
    """Yield each answer as one message, of the messages in which it came."""
    for answer in messages:
        size = answer.ByteSize()
        while getattr(answer, "more", False):
            part = next(messages, None)
            if part is None:
                raise Unreachable("the server ended in the middle of an answer")
            size += part.ByteSize()
            with _refusing(method):
                if size > _MOST_BYTES:
                    raise InvalidInput(f"it has more than {_MOST_BYTES:,} bytes")
            answer.ClearField("more")
            answer.MergeFrom(part)
        yield answer


@contextlib.contextmanager
def _refusing(method: str) -> Iterator[None]:
    """Raise `AnswerRefused`, naming the call, where a check of its answer fails."""
    try:
        yield
    except InvalidInput as error:
        words = on_one_line(str(error))
        raise AnswerRefused(
            f"the server's answer to {method} cannot be used: {words}; ask another server, or one "
            "of this version"
        ) from None
