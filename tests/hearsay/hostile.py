"""A server that lies, and plans that it could lie with. What the tests of attacks share."""

import contextlib
import gc
import warnings
from collections.abc import Iterator, Sequence

from hearsay.plan import mechanism_message
from hearsay.testing import RecordingTransport
from hearsay.v1 import collector_pb2, plan_pb2
from hearsay_server import survey as surveys
from ldp import KRR


def plan_of(toml: str) -> bytes:
    """Return the plan that an honest server makes of a survey."""
    return surveys.resolve(surveys.from_toml(toml, "attack.toml"))


def one_question(
    values: Sequence[str],
    epsilon: float = 1.0,
    *,
    name: str = "answer",
    period: str = "P1D",
    title: str = "",
    sensitive: Sequence[str] = (),
    memo: float = 0.0,
    mechanism: str = "",
) -> str:
    """Return a survey of one categorical question, as TOML."""
    lines = ['name = "survey"', f'title = "{title}"', f"levels = {{ standard = {epsilon} }}"]
    lines += [f'period = "{period}"'] if period else []
    lines += ["[[attributes]]", f'name = "{name}"']
    lines += [f"memo = {memo}"] if memo else []
    lines += [f'mechanism = "{mechanism}"'] if mechanism else []
    lines += ["[attributes.categorical]", f"values = {list(values)}"]
    lines += [f"sensitive = {list(sensitive)}"] if sensitive else []
    return "\n".join(lines)


class Liar(RecordingTransport):
    """A server that serves another plan whenever it likes: whatever `bytes_now` is."""

    def __init__(self, plan: bytes) -> None:
        super().__init__(plan)
        self.bytes_now = plan

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        """Return the plan of the moment, whatever survey was asked for."""
        answer = super().get_plan(self.plan.survey, timeout)
        answer.plan = self.bytes_now
        return answer


def with_another_epsilon(plan: bytes, epsilon: float) -> bytes:
    """Return a plan whose k-RR has another epsilon, all else being the same."""
    message = plan_pb2.Plan.FromString(plan)
    k = len(message.survey.attributes[0].categorical.values)
    for level in message.levels:
        level.epsilon = epsilon
        level.mechanisms[0].CopyFrom(mechanism_message(KRR(k, epsilon)))
        message.survey.levels[level.name] = epsilon
    return message.SerializeToString(deterministic=True)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector out, while exceptions of a signal handler come at any moment.

    Python swallows those that come within its callbacks. And a file that an exception kept from
    being closed is only closed when it is collected, about which nobody else's test should hear.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.enable()
            gc.collect()
