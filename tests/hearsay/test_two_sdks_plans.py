"""The TypeScript SDK and Python's make the same of random plans, answers and periods."""

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from every_mechanism import CASES
from hostile import plan_of
from random_plans import plans, spoil
from two_sdks import REPORTS, ScriptedCoins, Twin, in_hex, why_missing

from hearsay.plans import period
from hearsay.plans.kinds import Numeric
from hearsay.plans.plan import mechanism_message, parse
from hearsay.v1 import plan_pb2
from ldp import InvalidInput
from ldp.core.exact import ONE

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing() or "runs")


def parsed(data: bytes) -> dict[str, Any]:
    """Return what Python makes of a plan, in the twin's words."""
    plan = parse(data)
    levels = {}
    for level in plan.levels.values():
        memoizers = {name: plan.memoizer(level.name, name) for name in plan.questions}
        levels[level.name] = {
            "epsilon": in_hex(level.budget.record_epsilon),
            "memos": {name: in_hex(m.epsilon) for name, m in memoizers.items() if m is not None},
        }
    return {"revision": plan.revision.hex(), "levels": levels}


def compare_plan(twin: Twin, data: bytes) -> bool:
    """Compare what both make of a plan; return whether it was accepted."""
    answer = twin.ask("plan", plan=data.hex())
    for level in answer.get("levels", {}).values():
        assert level.pop("drawn") == []
    try:
        expected = parsed(data)
    except InvalidInput as error:
        assert "refused" in answer, f"Python refuses: {error}; the twin accepts {data.hex()}"
        return False
    assert answer == expected, data.hex()
    return True


def compare_plans(twin: Twin, n: int, rng: random.Random) -> Counter[bool]:
    seen = Counter[bool]()
    for data in plans(rng):
        assert compare_plan(twin, data)
        for _ in range(20):
            seen[compare_plan(twin, spoil(data, rng))] += 1
        if seen.total() >= n:
            break
    return seen


ONE_OF_EACH = """
name = "kinds"
[levels]
strict = 5.0
[[attributes]]
name = "category"
categorical = { values = ["a", "b", "c", "d"] }
[[attributes]]
name = "number"
numeric = { low = 0, high = 1 }
[[attributes]]
name = "bin"
numeric = { low = 0, high = 1, bins = 4 }
[[attributes]]
name = "items"
set = { values = ["a", "b", "c", "d"], at_most = 2 }
[[attributes]]
name = "word"
strings = { alphabet = "abcd", longest = 2, candidates = ["a", "b"] }
"""


def test_every_mechanism_fits_the_same_kinds_of_questions(twin: Twin) -> None:
    plan = plan_pb2.Plan.FromString(plan_of(ONE_OF_EACH))
    (level,), fits = plan.levels, Counter[int]()
    for mechanism in [case.make(4, 1.0) for case in CASES.values()]:
        for place, own in enumerate(level.mechanisms):
            kept = plan_pb2.Mechanism.FromString(own.SerializeToString())
            own.CopyFrom(mechanism_message(mechanism))
            fits[place] += compare_plan(twin, plan.SerializeToString(deterministic=True))
            own.CopyFrom(kept)
    assert [fits[place] for place in range(5)] == [17, 6, 1, 2, 1]


@pytest.mark.slow
def test_plans_are_parsed_or_refused_alike(twin: Twin) -> None:
    seen = compare_plans(twin, 300, random.Random(6))
    assert min(seen[True], seen[False]) > 30


@pytest.mark.slow
@pytest.mark.timeout(3600)  # with many reports asked for
def test_many_plans_are_parsed_or_refused_alike(twin: Twin) -> None:
    seen = compare_plans(twin, max(4000, REPORTS // 50), random.Random(7))
    assert min(seen[True], seen[False]) > 400


@pytest.mark.slow
def test_records_report_the_same_attributes(twin: Twin) -> None:
    rng, compared = random.Random(8), 0
    for data in plans(rng):
        plan = parse(data)
        if all(chance == ONE for level in plan.levels.values() for chance in level.budget.chances):
            continue
        seed = rng.randbytes(8)
        coins = ScriptedCoins(seed)
        answer = twin.ask("plan", plan=data.hex(), seed=seed.hex(), records=50)
        for level in plan.levels.values():
            expected = [list(level.budget.draw(coins)) for _ in range(50)]
            assert answer["levels"][level.name]["drawn"] == expected
        compared += 1
        if compared == 8:
            return


# --- answers and periods -------------------------------------------------------------------


def test_numbers_take_the_same_places(twin: Twin) -> None:
    rng = random.Random(9)
    for low, high, step in [
        (0.0, 30.0, 1.0),
        (-2.5, 7.5, 0.1),
        (0.1, 0.7, 0.2),
        (-1e9, 3e8, 0.0),
        (0.0, 5e-324, 0.0),
        (1e-3, 512.001, 1.0),
        (0.0, 1 / 3, 1 / 21),
    ]:
        for clamp in (False, True):
            domain = Numeric(low, high, clamp, step)
            values = [
                rng.uniform(low - (high - low) / 10, high + (high - low) / 10) for _ in range(200)
            ]
            if domain.points is not None:
                values += [low + i * step for i in range(len(domain.points))]
                values += [math.nextafter(low + i * step, low) for i in range(len(domain.points))]
                values += [low + i * step - 1e-6 * step for i in range(len(domain.points))]
            values += [
                low,
                high,
                -0.0,
                math.nan,
                math.inf,
                -math.inf,
                math.nextafter(low, -9e9),
                math.nextafter(high, 9e9),
            ]
            expected: list[str | None] = []
            for value in values:
                try:
                    expected.append(in_hex(domain.encode(value)))
                except InvalidInput:
                    expected.append(None)
            coins = ScriptedCoins(b"numbers")
            drawn = [domain.anything(coins) for _ in range(20)]
            answer = twin.ask(
                "numbers",
                low=in_hex(low),
                high=in_hex(high),
                clamp=clamp,
                step=in_hex(step),
                values=[in_hex(value) for value in values],
                seed=b"numbers".hex(),
                drawn=20,
            )
            assert answer == {"places": expected, "drawn": [in_hex(place) for place in drawn]}


@pytest.mark.parametrize("unit", ["", "PT1H", "P1D", "P1W", "P1M", "P1Y"])
def test_periods_have_the_same_names_and_ends(twin: Twin, unit: str) -> None:
    rng = random.Random(unit)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [epoch + timedelta(milliseconds=rng.randrange(-(10**13), 10**14)) for _ in range(300)]
    for year in range(1999, 2041):  # the ends of years, where ISO weeks belong to another one
        moments += [
            datetime(year, 1, day, tzinfo=UTC) - timedelta(milliseconds=1) for day in range(1, 8)
        ]
    moments += [datetime(9999, 12, 31, 23, 59, tzinfo=UTC), epoch]
    milliseconds = [(moment - epoch) // timedelta(milliseconds=1) for moment in moments]
    answer = twin.ask("periods", unit=unit, moments=milliseconds)
    names = [period.label(unit, moment) for moment in moments]
    assert answer["names"] == names

    def bound(at: datetime) -> int | None:
        inside = datetime.min.replace(tzinfo=UTC) < at < datetime.max.replace(tzinfo=UTC)
        return (at - epoch) // timedelta(milliseconds=1) if inside else None

    assert answer["bounds"] == [
        [bound(period.start(unit, n)), bound(period.end(unit, n))] for n in names
    ]


def test_names_that_are_no_periods_are_refused_alike(twin: Twin) -> None:
    names = [
        "once",
        "",
        "2026",
        "2026-13",
        "2026-7",
        "2026-07",
        "2026-02-29",
        "2024-02-29",
        "2026-W53",
        "2020-W53",
        "2026-W00",
    ]
    names += [
        "2026-W5",
        "2026-07-04T24",
        "2026-07-04T05",
        "2026-07-04t05",
        " 2026",
        "2026 ",
        "+026",
        "0999",
        "10000",
        "2026-07-04",
        "\uff12\uff10\uff12\uff16",  # full-width digits
    ]
    for unit in ("PT1H", "P1D", "P1W", "P1M", "P1Y"):
        accepted = twin.ask("starts", unit=unit, names=names)["accepted"]
        for name, begin in zip(names, accepted, strict=True):
            try:
                expected: float | None = period.start(unit, name).timestamp() * 1000
            except InvalidInput:
                expected = None
            assert begin == expected, (unit, name)
