"""Calls of analysts and operators, whose answers are checked once, here."""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from google.protobuf.message import Message

from hearsay.asking import wire
from hearsay.asking.answer import Answer as Answered
from hearsay.checking import answers, registered, streams
from hearsay.checking.fields import check_fields
from hearsay.checking.tables import check_tables
from hearsay.plain import on_one_line
from hearsay.plans.plan import Plan, parse
from hearsay.sending.transport import Answer, Calls, Tls, Token, open_calls
from hearsay.v1 import admin_pb2, answer_pb2
from ldp.errors import AnswerRefused, InvalidInput

_TIMEOUT = 30.0
"""Seconds to wait for a survey's plan."""


class AnalystCalls(Calls, Protocol):
    """The calls of an analyst to a server."""

    def ask(self, method: str, request: Message, timeout: float) -> Answered:
        """Return the answer to a question; raise as `Calls.call`."""

    def asked(self, method: str, request: Message) -> Iterator[Answered]:
        """Yield the answers to a question, again and again; raise as `Calls.stream`."""


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
            for answer in messages:
                with _refusing(method):
                    check_fields(answer)
                    check_next(answer)
                yield answer

    def ask(self, method: str, request: Message, timeout: float) -> Answered:
        """Return the answer to an analyst's question, once it is checked."""
        message = self._calls.call(method, request, answer_pb2.Answer, timeout)
        return self._answered(method, request, message)

    def asked(self, method: str, request: Message) -> Iterator[Answered]:
        """Yield the answers to an analyst's question, each once it is checked."""
        with contextlib.closing(  # type: ignore[type-var]
            self._calls.stream(method, request, answer_pb2.Answer)
        ) as messages:
            for message in messages:
                yield self._answered(method, request, message)

    def _answered(self, method: str, request: Message, message: answer_pb2.Answer) -> Answered:
        with _refusing(method):
            found = wire.from_message(message)
            check_tables(found)
            self._by_plan(request, found)
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

    def _by_plan(self, request: Message, answer: Answered) -> None:
        """Check an answer by the survey's plan; raise as `answers.check`."""
        name = answers.survey_of(request)
        plan = self._plans.get(name)
        if plan is not None:
            try:
                answers.check(request, answer, plan)
            except InvalidInput:
                # The survey may have been deleted, and created again with another plan.
                if self._fetched(name).revision == plan.revision:
                    raise
            else:
                return
        answers.check(request, answer, self._plans.get(name) or self._fetched(name))

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
