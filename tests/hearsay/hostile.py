"""A server that lies, and plans that it could lie with. What the tests of attacks share."""

import contextlib
import gc
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from hearsay import MEMORY, Client
from hearsay.plans.plan import mechanism_message
from hearsay.testing import RecordingTransport
from hearsay.v1 import collector_pb2, plan_pb2, survey_pb2
from hearsay_server.surveys import catalogue
from hearsay_server.surveys import survey as surveys
from ldp import KRR, ChannelTable, InvalidInput, Mechanism, PolicyUnary, SetBits, Waves


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


def device(transport: RecordingTransport, **choices: Any) -> Client:
    """Return a client of such a survey as an app makes it; what is not chosen is the default."""
    known = {"ledger": MEMORY, "consent": True, "epsilon": 1.0, "level": "standard"}
    return Client(transport, "survey", **{**known, **choices})


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


def tampered(plan: bytes, choose: Random, *, values: int) -> bytes:
    """Return a plan with one thing changed that no honest server would write, canonical again.

    Many such plans are refused. `values` is how many values an honest server could offer, for
    plans with more or fewer than this one.
    """
    message = plan_pb2.Plan.FromString(plan)
    choose.choice(_TAMPERINGS)(message, choose, values)
    return message.SerializeToString(deterministic=True)


_EXTREMES = (0.0, -0.0, 5e-324, 1e-300, 1e-9, 0.5, 1.0, 30.0, 1e300, -1.0, math.inf, math.nan)
_INTEGERS = (0, 1, 2, 3, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def _mechanism_of(plan: plan_pb2.Plan, choose: Random) -> tuple[int, plan_pb2.Mechanism]:
    """Return the place of an attribute, and its mechanism at some level."""
    place = choose.randrange(len(plan.survey.attributes))
    return place, choose.choice(plan.levels).mechanisms[place]


def _change_integers(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    _, mechanism = _mechanism_of(plan, choose)
    parameter = choose.choice([p.values for p in mechanism.parameters if p.values])
    place = choose.randrange(len(parameter))
    other = choose.randrange(len(parameter))
    match choose.randrange(6):
        case 0:
            parameter[place] = choose.choice(_INTEGERS)
        case 1:
            parameter[place] = (parameter[place] + choose.choice((-2, -1, 1, 2))) % (1 << 64)
        case 2:
            parameter[place] //= 2
        case 3:
            parameter[place], parameter[other] = parameter[other], parameter[place]
        case 4:
            parameter.append(parameter[place])
        case 5:
            parameter.pop()


def _rename_integers(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    _, mechanism = _mechanism_of(plan, choose)
    copy = plan_pb2.Mechanism.FromString(mechanism.SerializeToString())
    parameters = list(copy.parameters)
    match choose.randrange(3):
        case 0:
            parameters.reverse()
        case 1:
            parameters.append(parameters[0])
        case 2:
            parameters[0].name += "s"
    del mechanism.parameters[:]
    mechanism.parameters.extend(parameters)


def _change_epsilon(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    """Let the mechanism, the level or the survey have another epsilon, or all of them."""
    level = choose.choice(plan.levels)
    mechanism = choose.choice(level.mechanisms)
    epsilon = choose.choice((*_EXTREMES, mechanism.epsilon * (1 - 2**-40), level.epsilon / 3))
    which = choose.randrange(5)
    if which in (0, 3):
        mechanism.epsilon = epsilon
    if which in (1, 3, 4):
        level.epsilon = epsilon
    if which in (2, 3, 4):
        plan.survey.levels[level.name] = epsilon


def _another_mechanism(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    """Take the mechanism of another level or attribute, or one of the same domain's."""
    place, mechanism = _mechanism_of(plan, choose)
    if choose.randrange(3) == 0:
        mechanism.CopyFrom(_mechanism_of(plan, choose)[1])
        return
    domain = plan.survey.attributes[place]
    k = len(domain.categorical.values)
    with contextlib.suppress(InvalidInput):
        mechanism.CopyFrom(mechanism_message(_fitting(k, mechanism.epsilon, choose)))


def _fitting(k: int, epsilon: float, choose: Random) -> Mechanism:
    """Return some mechanism for k values or items, or for numbers where there are none."""
    if not k:
        return catalogue.numeric(choose.choice(sorted(catalogue.NUMERIC)), epsilon)
    match choose.randrange(6):
        case 0:
            rows = KRR(k, epsilon * 0.9).matrix()
            return ChannelTable.from_rows(epsilon, rows.tolist())
        case 1:
            return PolicyUnary.utility_optimised(k, [0], epsilon)
        case 2:
            name = choose.choice(sorted(catalogue.CHAINS))
            return catalogue.chain(name, k, epsilon, 2 * epsilon)
        case 3:
            return Waves.over(k, epsilon)
        case 4:
            return SetBits(k, epsilon)
    return catalogue.categorical(choose.choice(sorted(catalogue.CATEGORICAL)), k, epsilon)


def _other_values(plan: plan_pb2.Plan, choose: Random, values: int) -> None:
    """Offer other values than the app asks for, mostly with mechanisms that fit them."""
    place = choose.randrange(len(plan.survey.attributes))
    attribute = plan.survey.attributes[place]
    offered = attribute.categorical.values
    if not offered:
        offered.extend(["v0", "v1"])
    known = [f"v{number}" for number in range(values)]
    match choose.randrange(6):
        case 0:
            found = choose.sample(known, choose.choice((1, 2)))
        case 1:
            found = choose.sample(known, choose.randint(2, values))
        case 2:
            found = list(reversed(offered))
        case 3:
            found = [*offered, offered[0]]
        case 4:
            found = ["5", "-1", "True", "nan", "[]", "nowhere"][: len(offered) or 2]
        case 5:
            found = ["", *offered][: len(offered)]
    del offered[:]
    offered.extend(found)
    if choose.randrange(4):
        for level in plan.levels:
            with contextlib.suppress(InvalidInput):
                fitting = KRR(len(found), level.mechanisms[place].epsilon)
                level.mechanisms[place].CopyFrom(mechanism_message(fitting))


def _other_protection(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    attribute = choose.choice(plan.survey.attributes)
    match choose.randrange(4):
        case 0:
            attribute.memo = choose.choice((*_EXTREMES, 2.5))
        case 1:
            attribute.cap = choose.choice(_EXTREMES)
        case 2:
            attribute.categorical.sensitive.append(choose.choice(("v0", "v1", "other")))
        case 3:
            weaker = survey_pb2.Class(values=["v0"], scale=choose.choice(_EXTREMES))
            attribute.categorical.classes["weaker"].CopyFrom(weaker)


def _other_bounds(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    attribute = choose.choice(plan.survey.attributes)
    if choose.randrange(4) or attribute.HasField("numeric"):
        numbers = [a for a in plan.survey.attributes if a.HasField("numeric")]
        attribute = choose.choice(numbers or [attribute])
    numeric = attribute.numeric
    match choose.randrange(6):
        case 0:
            numeric.low, numeric.high = numeric.high, numeric.low
        case 1:
            numeric.high = numeric.low
        case 2:
            numeric.low = choose.choice(_EXTREMES)
            numeric.high = choose.choice(_EXTREMES)
        case 3:
            numeric.low = choose.choice((-1.7e308, -8.9e307, 0.0, 5.0))
            numeric.high = math.nextafter(numeric.low, math.inf)
        case 4:
            numeric.low, numeric.high = choose.choice(((-8.9e307, 8.9e307), (0.0, 1.7e308)))
        case 5:
            numeric.step = choose.choice((*_EXTREMES, (numeric.high - numeric.low) / 3))
    numeric.clamp = choose.random() < 0.5


def _other_budget(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    if choose.randrange(3) == 0:
        plan.survey.budget = choose.choice(("", "split", "sample", "auto", "all"))
        return
    level, count = choose.choice(plan.levels), len(plan.survey.attributes)
    chances = choose.choices(_INTEGERS, k=count + (choose.randrange(5) == 0))
    if choose.randrange(3):  # a sum that can be drawn by
        chances[-1] = -sum(chances[:-1]) % (1 << 64)
    del level.chances[:]
    level.chances.extend(chances)


def _other_order(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    """Swap the attributes with their mechanisms or without, or the levels."""
    match choose.randrange(3):
        case 0:
            plan.levels.reverse()
        case 1:
            plan.survey.attributes.reverse()
        case 2:
            plan.survey.attributes.reverse()
            for level in plan.levels:
                level.mechanisms.reverse()


def _other_frame(plan: plan_pb2.Plan, choose: Random, _: int) -> None:
    survey = plan.survey
    match choose.randrange(5):
        case 0:
            survey.period = choose.choice(("", "PT1H", "P1D", "P1W", "P1Y", "P1X"))
        case 1:
            survey.name += "s"
        case 2:
            survey.title = choose.choice(("another", "a\u200b"))
        case 3:
            survey.default_level = choose.choice(("", "one", "two", "three"))
        case 4:
            plan.levels[-1].name = survey.attributes[-1].name = plan.levels[0].name


_TAMPERINGS: Sequence[Callable[[plan_pb2.Plan, Random, int], None]] = (
    _change_integers,
    _rename_integers,
    _change_epsilon,
    _another_mechanism,
    _other_values,
    _other_protection,
    _other_bounds,
    _other_budget,
    _other_order,
    _other_frame,
)


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
