"""Only the channel depends on the answer: coupled runs of two people who make the same calls.

The two are given different answers, inside or outside the domain, and the same coins where
attributes are drawn. Whatever the plan, the same calls must be followed by messages of the same
form at the same moments. The adversary is a server that chooses the plan, and sees all of them.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hearsay import MEMORY, Caps, Client
from hearsay.testing import RecordingTransport
from hearsay_server import catalogue
from hearsay_server import survey as surveys
from ldp import Coins, InvalidInput
from ldp.testing import SeededCoins

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Awkward:
    """An answer whose methods raise."""

    def __float__(self) -> float:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        raise RuntimeError("no")


class Reseeded(Coins):
    """Coins that begin anew for every period, so that both people draw the same attributes."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._inner = SeededCoins(seed)

    def _bytes(self, count: int) -> bytes | memoryview:
        return self._inner._bytes(count)


OUTSIDE = [
    "nowhere",
    "",
    -1,
    10**30,
    1e308,
    -1e308,
    math.nan,
    math.inf,
    b"a",
    [],
    {},
    True,
    Decimal("NaN"),
    Decimal(10) ** 400,
    object(),
    Awkward(),
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
    }
)


def survey(attributes: Sequence[dict[str, Any]], period: str, budget: str) -> str:
    """Return a survey of these attributes, as TOML."""
    lines = ['name = "coupled"', f'budget = "{budget}"', "levels = { one = 2.0 }"]
    lines += [f'period = "{period}"'] if period else []
    for position, each in enumerate(attributes):
        lines += ["[[attributes]]", f'name = "a{position}"']
        if each["kind"] == "numeric":
            lines += [f'mechanism = "{each["mechanism"]}"', "[attributes.numeric]"]
            lines += [f"low = {each['low']!r}", f"high = {each['low'] + each['width']!r}"]
            lines += [f"clamp = {str(each['clamp']).lower()}"]
            continue
        memo = each["memo"] if period and not each["sensitive"] else 0
        plain = not each["sensitive"] and memo <= 1
        lines += [f"memo = {memo}"] if memo else []
        lines += [f'mechanism = "{each["mechanism"]}"'] if plain else []
        values = [f"v{number}" for number in range(each["k"])]
        lines += ["[attributes.categorical]", f"values = {values}"]
        lines += [f"sensitive = {values[:1]}"] if each["sensitive"] else []
    return "\n".join(lines)


def forms(transport: RecordingTransport) -> list[Any]:
    """Return all that can be told of what left but the codes themselves."""
    return [
        (
            batch.period,
            batch.rows,
            batch.ByteSize(),
            [(c.attribute, c.level, len(c.codes), len(c.present)) for c in batch.columns],
        )
        for batch in transport.batches
    ]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    attributes=st.lists(categorical | numeric, min_size=1, max_size=3),
    period=st.sampled_from(["", "P1D", "P1D"]),
    budget=st.sampled_from(["split", "sample"]),
    life=st.sampled_from([None, 0.5, 2.0, 3.7]),
    calls=st.lists(st.sets(st.integers(0, 2)), min_size=1, max_size=6),
    data=st.data(),
)
def test_the_same_calls_send_the_same_forms_whatever_is_answered(
    attributes: list[dict[str, Any]],
    period: str,
    budget: str,
    life: float | None,
    calls: list[set[int]],
    data: st.DataObject,
) -> None:
    try:
        plan = surveys.resolve(surveys.from_toml(survey(attributes, period, budget), "coupled"))
    except InvalidInput:
        return  # no honest server makes it, and a client would refuse it alike
    names = [f"a{position}" for position in range(len(attributes))]
    inside = {
        name: [f"v{v}" for v in range(each["k"])]
        if each["kind"] == "categorical"
        else [each["low"], each["low"] + each["width"] / 2]
        for name, each in zip(names, attributes, strict=True)
    }
    seen = []
    for person in range(2):
        transport = RecordingTransport(plan)
        transport.server_time = int((BEGIN + timedelta(days=100)).timestamp())
        now, coins, story = BEGIN, Reseeded(), []
        with Client(
            transport,
            "coupled",
            epsilon=2.0,
            level="one",
            ledger=MEMORY,
            consent=True,
            caps=Caps(life=life),
            may_reveal={
                name: inside[name][1:]
                for name, each in zip(names, attributes, strict=True)
                if each["kind"] == "categorical" and each["sensitive"]
            },
            may_tell_changes=names,
            coins=coins,
            clock=lambda: now,  # noqa: B023 (the client is closed before it changes meaning)
        ) as client:
            assert client.wait_ready(), client.status()
            for number, asked in enumerate(calls):
                coins.begin(number)
                answers = {}
                for name in [names[each] for each in sorted(asked) if each < len(names)]:
                    possible = [*inside[name], *OUTSIDE]
                    which = data.draw(st.integers(0, len(possible) - 1), label=f"{person} {name}")
                    answers[name] = possible[which]
                answered = client.record(**answers)
                story.append((answered.taken, dict(answered.dropped)))
                assert client.flush()
                story.append(len(transport.batches))
                now += timedelta(hours=18)
        seen.append((story, forms(transport)))
    assert seen[0] == seen[1]


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
        transport, "coupled", epsilon=2.0, level="one", ledger=MEMORY, consent=True
    ) as client:
        client.wait_ready()
        recorded = client.record(a0="v1", a1=math.nan)
        assert recorded.taken == ("a0", "a1")
        assert recorded.invalid == ("a1",)
        assert recorded.dropped == {}
        assert [spending.reports for spending in client.spendings()] == [1, 1]
