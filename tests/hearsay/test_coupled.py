"""Only the channel depends on the answer: coupled runs of people who make the same calls.

In two runs they give different answers, inside or outside the domain, and have the same coins
where attributes are drawn. Whatever the plan, the same calls must be followed by messages of the
same form at the same moments. The adversary is a server that chooses the plan, answers as it
likes, and sees all messages.
"""

import math
import queue
import random
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import Liar, plan_of, tampered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hearsay import MEMORY, Caps, Client, Delivery, Unreachable, create_ledger
from hearsay.plans.plan import parse
from hearsay.testing import RecordingTransport
from hearsay.v1 import collector_pb2, plan_pb2
from hearsay_server.surveys import catalogue
from hearsay_server.surveys import survey as surveys
from ldp import Coins, InvalidInput
from ldp.testing import SeededCoins
from support import Calendar

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Awkward:
    """An answer whose methods raise."""

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("no")

    __float__ = __int__ = __index__ = __str__ = __repr__ = __bool__ = __len__ = _raise
    __eq__ = __hash__ = __lt__ = __le__ = __ge__ = __gt__ = __iter__ = _raise


class AwkwardText(Awkward, str):
    """A value of the domain whose methods raise."""

    __slots__ = ()


class AwkwardWhole(Awkward, int):
    """A whole number whose methods raise."""

    __slots__ = ()


class AwkwardNumber(Awkward, float):
    """A number whose methods raise."""

    __slots__ = ()


class Nameless:
    """An answer that does not even tell its type."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError("no")


class Secretive(InvalidInput):
    """An error that cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Worse:
    """An answer whose methods raise an error that cannot be read."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise Secretive


class Reseeded(Coins):
    """Coins that begin anew with every call, so that two runs draw the same attributes.

    Those of each sender are its own: it shuffles the rows of a batch while nobody calls.
    """

    def __init__(self) -> None:
        self._of = threading.local()

    def begin(self, seed: int) -> None:
        self._of.inner = SeededCoins(seed)

    def _bytes(self, count: int) -> bytes | memoryview:
        if not hasattr(self._of, "inner"):
            self.begin(0)
        inner: SeededCoins = self._of.inner
        return inner._bytes(count)


OUTSIDE: Sequence[object] = [
    "nowhere",
    "",
    -1,
    10**30,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    np.float32("nan"),
    np.datetime64("NaT"),
    np.array([1.0, 2.0]),
    b"a",
    [],
    {},
    True,
    NotImplemented,
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal(10) ** 400,
    1j,
    object(),
    Awkward(),
    AwkwardText("v1"),
    AwkwardWhole(1),
    AwkwardNumber(0.5),
    Nameless(),
    "x" * 10_000,
    "\ud800",
]

categorical = st.fixed_dictionaries(
    {
        "kind": st.just("categorical"),
        "k": st.integers(2, 9),
        "mechanism": st.sampled_from(sorted(catalogue.CATEGORICAL)),
        "sensitive": st.booleans(),
        "memo": st.sampled_from([0, 0, 1, 1, 2.5]),
    }
)
numeric = st.fixed_dictionaries(
    {
        "kind": st.just("numeric"),
        "mechanism": st.sampled_from(sorted(catalogue.NUMERIC)),
        "low": st.sampled_from([0.0, -1e300, -1e-300, 5.0]),
        "width": st.sampled_from([1e-280, 1.0, 1e10, 1e300]),
        "clamp": st.booleans(),
        "steps": st.sampled_from([0, 0, 3, 40]),
    }
)


def survey(attributes: Sequence[dict[str, Any]], period: str = "", budget: str = "") -> str:
    """Return a survey of these attributes, as TOML."""
    lines = ['name = "coupled"', f'budget = "{budget}"', "levels = { one = 2.0, two = 4.0 }"]
    lines += [f'period = "{period}"', "panels = 8"] if period else []
    for position, each in enumerate(attributes):
        lines += ["[[attributes]]", f'name = "a{position}"']
        if each["kind"] == "numeric":
            lines += [f'mechanism = "{each["mechanism"]}"', "[attributes.numeric]"]
            lines += [f"low = {each['low']!r}", f"high = {each['low'] + each['width']!r}"]
            lines += [f"clamp = {str(each['clamp']).lower()}"]
            lines += [f"step = {each['width'] / each['steps']!r}"] if each.get("steps") else []
            continue
        memo = each["memo"] if period and not each["sensitive"] else 0
        plain = not each["sensitive"] and memo <= 1
        lines += [f"memo = {memo}"] if memo else []
        lines += [f'mechanism = "{each["mechanism"]}"'] if plain else []
        values = [f"v{number}" for number in range(each["k"])]
        lines += ["[attributes.categorical]", f"values = {values}"]
        lines += [f"sensitive = {values[:1]}"] if each["sensitive"] else []
    lines += ["[[properties]]", 'name = "platform"', 'values = ["ios", "android"]']
    return "\n".join(lines)


# --- time that passes when the test lets it ------------------------------------------------------


class Moments:
    """Time that a test lets pass, for the modules `time` and `queue` of a sender.

    The senders' threads run one at a time, each when something is due, and all of them wait while
    the test's own thread runs: so two runs differ by nothing but what they are given.
    """

    Empty = queue.Empty
    sleep = staticmethod(time.sleep)

    def __init__(self) -> None:
        self.now = BEGIN.timestamp()
        self.is_over = False
        self.changed = threading.Condition()
        self._senders: list[Calls] = []

    def SimpleQueue(self) -> "Calls":
        self._senders.append(Calls(self))
        return self._senders[-1]

    def monotonic(self) -> float:
        return self.now

    def clock(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def settle(self) -> None:
        """Let the senders do all that is due now."""
        with self.changed:
            while True:
                assert self.changed.wait_for(self._all_wait, timeout=60), "a sender has stopped"
                due = [calls for calls in self._senders if calls or calls.until <= self.now]
                if not due:
                    return
                due[0].let_go()

    def go_by(self, seconds: float) -> None:
        """Let time go by, minutes as they come; through hours the device is suspended."""
        end = self.now + seconds
        while seconds < 600 and (due := min(calls.until for calls in self._senders)) <= end:
            self.now = due
            self.settle()
        self.now = end
        self.settle()

    def end(self) -> None:
        """Let the senders go whenever they are called, so that they can be stopped."""
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def _all_wait(self) -> bool:
        return all(calls.waits for calls in self._senders)


class Calls:
    """The calls that a sender waits for, until a moment."""

    def __init__(self, moments: Moments) -> None:
        self._moments = moments
        self._calls: deque[Any] = deque()
        self.waits = False
        self.until = math.inf

    def __len__(self) -> int:
        return len(self._calls)

    def empty(self) -> bool:
        return not self._calls

    def put(self, call: Any) -> None:
        with self._moments.changed:
            self._calls.append(call)
            if call is not None or self._moments.is_over:  # somebody is about to wait for it
                self.let_go()

    def get(self, timeout: float) -> Any:
        with self._moments.changed:
            self.waits, self.until = True, self._moments.now + timeout
            self._moments.changed.notify_all()
            self._moments.changed.wait_for(
                lambda: not self.waits or (self._moments.is_over and self._calls)
            )
            return self.get_nowait()

    def get_nowait(self) -> Any:
        with self._moments.changed:
            if not self._calls:
                raise queue.Empty
            return self._calls.popleft()

    def let_go(self) -> None:
        self.waits = False
        self._moments.changed.notify_all()


# --- two runs of the same calls ------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call of one of the clients and people, and the seconds until the next.

    `answers` are two for each attribute, one for each run, as places in what may be answered.
    """

    client: int
    person: int
    what: str
    answers: Mapping[str, tuple[int, int]]
    pause: float


ANSWERS: Mapping[str, Callable[[], collector_pb2.Result | Exception]] = {
    "stored": lambda: collector_pb2.Result(status=collector_pb2.Result.STORED),
    "away": lambda: Unreachable("away"),
    "busy": lambda: Unreachable("busy", retry_after=40.0),
    "not yet": lambda: collector_pb2.Result(status=collector_pb2.Result.RETRY),
    "refused": lambda: collector_pb2.Result(status=collector_pb2.Result.REFUSED),
    "no such call": lambda: InvalidInput("no"),
}
"""What a server may answer a batch."""


class Watching(Liar):
    """A server that serves its plans one after the other, and writes down what comes and when."""

    def __init__(self, plans: Sequence[bytes], moments: Moments, story: list[Any]) -> None:
        super().__init__(plan_of(HARMLESS))
        self._plans = list(plans)
        self._moments = moments
        self._story = story

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        self._story.append((self._moments.now, "plan", survey))
        self.bytes_now = self._plans.pop(0) if len(self._plans) > 1 else self._plans[0]
        return super().get_plan(survey, timeout)

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        self._story.append((self._moments.now, "batch", form(batch)))
        return super().submit(batch, timeout)

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        self._story.append((self._moments.now, "forget", survey, period, len(ids)))
        return super().forget(survey, period, ids, timeout)

    def _now(self) -> int:
        return int(self._moments.now)


HARMLESS = survey(
    [{"kind": "numeric", "mechanism": "onebit", "low": 0, "width": 1, "clamp": False}]
)


def form(batch: collector_pb2.Batch) -> bytes:
    """Return all that can be told of a batch but its codes and its random id."""
    copy = collector_pb2.Batch.FromString(batch.SerializeToString())
    copy.id = bytes(len(copy.id))
    for column in copy.columns:
        column.codes = bytes(len(column.codes))
    return copy.SerializeToString(deterministic=True)


def story(
    run: int,
    calls: Sequence[Call],
    possible: Mapping[str, Sequence[object]],
    plans: Sequence[bytes],
    *,
    surveys: Sequence[str] = ("coupled",),
    answers: Sequence[str] = (),
    **choices: Any,
) -> list[Any]:
    """Return what became of the calls and what left, each with its moment, in one of two runs.

    There is a client for each of `surveys`; several share a ledger.
    """
    told: list[Any] = []
    moments, coins, clients = Moments(), Reseeded(), []
    with replaced(moments), tempfile.TemporaryDirectory() as folder:
        if len(surveys) > 1:
            create_ledger(Path(folder, "ledger.db"))
        for name in surveys:
            transport = Watching([renamed(plan, name) for plan in plans], moments, told)
            transport.answers = [ANSWERS[each]() for each in answers]
            client = Client(
                transport,
                name,
                ledger=Path(folder, "ledger.db") if len(surveys) > 1 else MEMORY,
                level="one",
                consent=True,
                coins=coins,
                clock=moments.clock,
                panels=8,
                properties={"platform": "ios"},
                **choices,
            )
            clients.append(client)
            moments.settle()
        android = {"platform": "android"}
        people = [
            (client, client.person("ann", level="one", properties=android)) for client in clients
        ]
        for _, ann in people:
            ann.grant()
            moments.settle()
        for number, call in enumerate(calls):
            client = clients[call.client % len(clients)]
            person = people[call.client % len(clients)][call.person]
            coins.begin(number)
            told.append((moments.now, call.what))
            match call.what:
                case "record":
                    given = {
                        name: possible[name][places[run] % len(possible[name])]
                        for name, places in sorted(call.answers.items())
                        if name in possible
                    }
                    recorded = person.record(**given)
                    told.append((recorded.taken, dict(recorded.dropped)))
                case "grant":
                    person.grant()
                case "revoke":
                    person.revoke()
                case "forget":
                    person.revoke(forget=True)
                case "flush":
                    assert client.flush()
            moments.settle()
            moments.go_by(call.pause)
        moments.end()
        ended = list(told)  # what leaves as they close is not timed
        for client in clients:
            client.close(0)
            client._device.sender.join(20)
    return ended


@contextmanager
def replaced(moments: Moments) -> Iterator[None]:
    """Let the senders live by these moments, and let their retries repeat."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hearsay.sending.sender.time", moments)
        patch.setattr("hearsay.sending.sender.queue", moments)
        patch.setattr("hearsay.sending.backoff.random", random.Random(0))
        patch.setattr("hearsay.sending.plan_keeper.uptime", moments.monotonic)
        yield


def renamed(plan: bytes, survey: str) -> bytes:
    """Return a plan as that of another survey; "coupled" is what all plans are of."""
    if survey == "coupled":
        return plan
    message = plan_pb2.Plan.FromString(plan)
    message.survey.name = survey
    return message.SerializeToString(deterministic=True)


# --- what may be generated -----------------------------------------------------------------------

NAMES = ("a0", "a1", "a2")


def calls_of(*kinds: str) -> st.SearchStrategy[list[Call]]:
    """Return a strategy of calls, most of them answers."""
    places = st.integers(0, 99)
    call = st.builds(
        Call,
        client=st.integers(0, 1),
        person=st.integers(0, 1),
        what=st.sampled_from((*["record"] * 6, *kinds)),
        answers=st.dictionaries(st.sampled_from(NAMES), st.tuples(places, places), min_size=1),
        pause=st.sampled_from([0.0, 0.0, 0.3, 3.0, 70.0, 18 * 3600.0, 40 * 3600.0]),
    )
    return st.lists(call, min_size=4, max_size=12)


caps = st.builds(
    lambda life, until: Caps(life=life, until=until if life else None),
    st.sampled_from([None, None, 0.5, 2.0, 3.7, 9.0]),
    st.sampled_from([None, None, "2026-01-04"]),
)
deliveries = st.builds(
    Delivery,
    batch_rows=st.sampled_from([1, 2, 512]),
    batch_age=st.sampled_from([0.5, 5.0, 100.0]),
    max_reports=st.sampled_from([1, 3, 1000]),
    first_wait=st.sampled_from([0.1, 1.0, 50.0]),
    longest_wait=st.sampled_from([50.0, 300.0]),
    plan_age=st.sampled_from([50.0, 24 * 3600.0]),
)
of_a_server = st.lists(st.sampled_from(sorted(ANSWERS)), max_size=6)
sharing = st.sampled_from([("coupled", "coupled"), ("coupled", "other")])


def usual(examples: int) -> settings:
    return settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])


def possible_answers(attributes: Sequence[dict[str, Any]]) -> Mapping[str, Sequence[object]]:
    """Return what may be answered, by attribute: half of it is in the domain."""
    return {
        name: (list(inside_of(each)) * len(OUTSIDE))[: len(OUTSIDE)] + list(OUTSIDE)
        for name, each in zip(NAMES, attributes, strict=False)
    }


def inside_of(attribute: dict[str, Any]) -> Sequence[object]:
    if attribute["kind"] == "categorical":
        return [f"v{number}" for number in range(attribute["k"])]
    return [attribute["low"], attribute["low"] + attribute["width"] / 2]


@lru_cache(maxsize=256)
def resolved(toml: str) -> bytes | None:
    """Return the plan of a survey; None where no honest server makes it."""
    try:
        return plan_of(toml)
    except InvalidInput:
        return None


def both(
    attributes: Sequence[dict[str, Any]], calls: Sequence[Call], plans: Sequence[bytes], **more: Any
) -> tuple[list[Any], list[Any]]:
    """Return the stories of both runs, of an app that allows all that an honest plan asks for."""
    names = NAMES[: len(attributes)]
    more = {
        "epsilon": 2.0,
        "may_tell_changes": names,
        "may_reveal": {
            name: inside_of(each)[1:]
            for name, each in zip(names, attributes, strict=True)
            if each.get("sensitive")
        },
        **more,
    }
    first, second = (
        story(run, calls, possible_answers(attributes), plans, **more) for run in range(2)
    )
    return first, second


honest_server = given(
    attributes=st.lists(categorical | numeric, min_size=1, max_size=3),
    period=st.sampled_from(["", "P1D", "P1D"]),
    budget=st.sampled_from(["split", "sample"]),
    calls=calls_of("flush", "revoke", "grant"),
    caps=caps,
    delivery=deliveries,
)


@usual(3)
@honest_server
def test_the_same_calls_send_the_same_forms_whatever_is_answered(**drawn: Any) -> None:
    check_an_honest_server(**drawn)


@pytest.mark.slow
@usual(150)
@honest_server
def test_many_of_the_same_calls_send_the_same_forms_whatever_is_answered(**drawn: Any) -> None:
    check_an_honest_server(**drawn)


def check_an_honest_server(
    attributes: list[dict[str, Any]], period: str, budget: str, calls: list[Call], **choices: Any
) -> None:
    plan = resolved(survey(attributes, period, budget))
    if plan is None:
        return  # no honest server makes it, and a client would refuse it alike
    first, second = both(attributes, calls, [plan], **choices)
    assert first == second


def check_a_hostile_server(
    attributes: list[dict[str, Any]],
    period: str,
    seeds: list[int],
    lies: str,
    calls: list[Call],
    **more: Any,
) -> None:
    honest = resolved(survey(attributes, period))
    assert honest is not None
    plans = [tampered_twice(honest, random.Random(seed), lies) for seed in seeds]
    if lies == "later":
        plans.insert(0, honest)
    first, second = both(attributes, calls, plans, **more)
    assert first == second


def tampered_twice(plan: bytes, choose: random.Random, lies: str) -> bytes:
    """Return a plan with two things changed, each so that it can be read where `lies` is "well"."""
    for _ in range(2):
        for _ in range(12 if lies == "well" else 1):
            changed = tampered(plan, choose, values=4)
            if changed != plan and is_readable(changed):
                break
        plan = changed
    return plan


def is_readable(plan: bytes) -> bool:
    try:
        parse(plan)
    except InvalidInput:
        return False
    return True


ASKED: Sequence[dict[str, Any]] = [
    {"kind": "categorical", "k": 4, "mechanism": "krr", "sensitive": False, "memo": 0},
    {"kind": "categorical", "k": 3, "mechanism": "oue", "sensitive": False, "memo": 0},
    {"kind": "categorical", "k": 4, "mechanism": "olh", "sensitive": False, "memo": 1},
    {"kind": "categorical", "k": 3, "mechanism": "auto", "sensitive": False, "memo": 2.5},
    {"kind": "categorical", "k": 3, "mechanism": "auto", "sensitive": True, "memo": 0},
    {"kind": "numeric", "mechanism": "laplace", "low": 0.0, "width": 1.0, "clamp": False},
    {"kind": "numeric", "mechanism": "piecewise", "low": -1e300, "width": 1e300, "clamp": True},
    {
        "kind": "numeric",
        "mechanism": "square_wave",
        "low": 0.0,
        "width": 10.0,
        "clamp": False,
        "steps": 10,
    },
]
hostile_server = given(
    attributes=st.lists(st.sampled_from(ASKED), min_size=1, max_size=3),
    period=st.sampled_from(["", "P1D", "P1D"]),
    seeds=st.lists(st.integers(0, 1 << 32), min_size=1, max_size=2),
    lies=st.sampled_from(["well", "well", "badly", "later"]),
    calls=calls_of("revoke", "forget", "grant"),
    epsilon=st.sampled_from([2.0, 64.0]),
    caps=caps,
    delivery=deliveries,
    answers=of_a_server,
)


@usual(5)
@hostile_server
def test_a_hostile_server_sees_the_same_messages_at_the_same_moments(**drawn: Any) -> None:
    check_a_hostile_server(**drawn)


@pytest.mark.slow
@usual(1000)
@hostile_server
def test_many_hostile_servers_see_the_same_messages_at_the_same_moments(**drawn: Any) -> None:
    check_a_hostile_server(**drawn)


@pytest.mark.slow
@usual(40)
@given(
    attributes=st.lists(st.sampled_from(ASKED), min_size=1, max_size=3),
    surveys=sharing,
    calls=calls_of("revoke", "forget", "grant"),
    caps=caps,
    delivery=deliveries,
    answers=of_a_server,
)
def test_clients_that_share_a_ledger_send_the_same_messages_at_the_same_moments(
    attributes: list[dict[str, Any]], calls: list[Call], **more: Any
) -> None:
    plan = resolved(survey(attributes, "P1D"))
    assert plan is not None
    first, second = both(attributes, calls, [plan], **more)
    assert first == second


@pytest.mark.parametrize(
    ("memo", "life", "surveys"),
    [
        (1, 3.0, ["coupled"]),
        (1, 5.5, ["coupled"]),
        (2.5, 7.0, ["coupled"]),
        (1, 7.0, ["coupled", "other"]),
    ],
)
def test_memos_that_use_up_a_cap_are_not_seen_in_the_other_questions(
    memo: float, life: float, surveys: list[str]
) -> None:
    # One answers alike each day and pays for one memo, the other pays for a new one each day.
    asked = [{**ASKED[0], "memo": memo, "mechanism": "auto"}, {**ASKED[0], "mechanism": "krr"}]
    calls = [
        Call(client, 0, "record", {"a0": (0, day), "a1": (0, day)}, 0.0 if client else 24 * 3600.0)
        for day in range(7)
        for client in reversed(range(len(surveys)))
    ]
    plan = resolved(survey(asked, "P1D", "split"))
    assert plan is not None
    first, second = both(asked, calls, [plan], surveys=surveys, caps=Caps(life=life))
    assert first == second
    assert [each for each in first if each[1:2] == ("batch",)]
    assert any(isinstance(each[-1], dict) and "spent" in each[-1].values() for each in first)


def test_a_random_value_is_uniform_and_is_counted_here_alone() -> None:
    toml = (
        'name = "coupled"\nlevels = { one = 32.0 }\n[[attributes]]\nname = "a0"\n'
        'mechanism = "krr"\n[attributes.categorical]\nvalues = ["a", "b", "c", "d"]'
    )
    plan = surveys.resolve(surveys.from_toml(toml, "coupled"))
    transport = RecordingTransport(plan)
    with Client(
        transport, "coupled", epsilon=32.0, level="one", ledger=MEMORY, coins=SeededCoins(1)
    ) as client:
        for number in range(800):
            person = client.person(str(number), level="one")
            person.grant()
            assert person.wait_ready()
            recorded = person.record(a0="elsewhere")
            assert (recorded.taken, recorded.invalid) == (("a0",), ("a0",))
        assert client.flush()
        assert client.counters["invalid"] == 800
    counts = transport.tally("a0", "one").counts
    assert sum((count - 200) ** 2 / 200 for count in counts) < 16.3  # chi-square, 3 degrees, 0.999
    assert b"elsewhere" not in b"".join(b.SerializeToString() for b in transport.batches)


def test_what_no_epsilon_is_left_for_is_random() -> None:
    asked = [{**ASKED[0], "memo": 1, "mechanism": "krr"}, {**ASKED[0], "mechanism": "krr"}]
    toml = survey(asked, "P1D", "split").replace("one = 2.0, two = 4.0", "one = 32.0")
    transport, calendar, people = RecordingTransport(plan_of(toml)), Calendar(-3), 100
    with Client(
        transport,
        "coupled",
        epsilon=32.0,
        level="one",
        ledger=MEMORY,
        coins=SeededCoins(1),
        clock=calendar,
        panels=8,
        caps=Caps(life=64.0),  # two new memos, and two answers beside them, at 16 each
        may_tell_changes=["a0"],
    ) as client:
        for day in range(3):
            for number in range(people):
                person = client.person(str(number), level="one")
                person.grant()
                assert person.wait_ready()
                assert person.record(a0=f"v{day}", a1="v1").taken == ("a0", "a1")
            calendar.pass_days(1)
        assert client.flush()
    counts = transport.tally("a1", "one").counts
    assert counts.sum() == 3 * people
    assert abs(counts[1] - 2.25 * people) < 18  # 4 standard errors: of the last day a quarter


def test_one_bad_answer_changes_nothing_else_in_the_record() -> None:
    toml = survey(
        [
            {"kind": "categorical", "k": 3, "mechanism": "krr", "sensitive": False, "memo": 0},
            {"kind": "numeric", "mechanism": "laplace", "low": 0.0, "width": 1.0, "clamp": False},
        ],
        "P1D",
        "split",
    )
    transport = RecordingTransport(surveys.resolve(surveys.from_toml(toml, "coupled")))
    with Client(
        transport, "coupled", epsilon=2.0, level="one", ledger=MEMORY, consent=True, panels=8
    ) as client:
        client.wait_ready()
        recorded = client.record(a0="v1", a1=math.nan)
        assert recorded.taken == ("a0", "a1")
        assert recorded.invalid == ("a1",)
        assert recorded.dropped == {}
        assert [spending.reports for spending in client.spendings()] == [1, 1]


def test_an_answer_whose_error_cannot_be_read_changes_nothing_else_in_the_record() -> None:
    transport = RecordingTransport(plan_of(survey(ASKED[:2])))
    with Client(
        transport, "coupled", epsilon=2.0, level="one", ledger=MEMORY, consent=True
    ) as client:
        assert client.wait_ready()
        recorded = client.record(a0="v1", a1=Worse())
        assert (recorded.taken, recorded.invalid) == (("a0", "a1"), ("a1",))
        assert client.flush()
    assert len(transport.batches) == 1
