"""The TypeScript SDK and Python's do the same: random plans, answers and coins, byte for byte."""

import math
import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from two_sdks import (
    MAKERS,
    ScriptedCoins,
    Twin,
    as_question,
    in_hex,
    mechanisms,
    question,
    spoiled,
    values_of,
    why_missing,
)

from hearsay.plans import period
from hearsay.plans.memo import Memoizer
from hearsay.plans.plan import Numeric, parse
from hearsay.v1 import plan_pb2, survey_pb2
from hearsay_server.surveys.survey import resolve
from ldp import InvalidInput, Mechanism, build
from ldp.core.exact import ONE, exp_bounds, log_upper
from ldp.core.longitudinal import Longitudinal
from ldp.core.mechanism import Categorical

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing() or "runs")

REPORTS = int(os.environ.get("HEARSAY_FUZZ_REPORTS", "20000"))
"""How many reports the long comparison draws: HEARSAY_FUZZ_REPORTS=1000000 for the full one."""


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    with Twin() as process:
        yield process


def compare_reports(twin: Twin, mechanism: Mechanism, n: int, rng: random.Random) -> int:
    """Compare reports from one stream; return how many."""
    values, seed = values_of(mechanism, n, rng), rng.randbytes(8)
    given = [in_hex(value) if isinstance(value, float) else value for value in values]
    coins = ScriptedCoins(seed)
    codes = [mechanism.encode_one(mechanism.randomize(value, coins)).hex() for value in values]
    answer = twin.ask("reports", mechanism=question(mechanism), values=given, seed=seed.hex())
    assert answer == {"codes": codes, "used": coins.used}, mechanism
    return n


def few(mechanism: Mechanism, n: int) -> int:
    """Return fewer than n where a code is long."""
    return max(4, min(n, 20000 // mechanism.code_bytes))


@pytest.mark.parametrize("name", MAKERS)
def test_reports_of_every_mechanism_are_the_same(twin: Twin, name: str) -> None:
    rng = random.Random(name)
    drawn = 0
    while drawn < 4:
        try:
            mechanism = MAKERS[name](rng)
        except InvalidInput:
            continue
        if not name.startswith(
            "policy_"
        ):  # which of the designs has no zeros depends on the policy
            assert mechanism.name == name
        compare_reports(twin, mechanism, 10, rng)
        drawn += 1


@pytest.mark.slow
def test_many_reports_of_random_mechanisms_are_the_same(twin: Twin) -> None:
    rng = random.Random(1)
    done, kinds = 0, Counter[str]()
    for mechanism in mechanisms(rng):
        count = compare_reports(
            twin, mechanism, few(mechanism, 40 if REPORTS <= 20000 else 250), rng
        )
        kinds[mechanism.name] += count
        done += count
        if done >= REPORTS:
            break
    assert set(kinds) == set(MAKERS)
    print(f"{done} reports, no byte differs: {dict(kinds)}")


@pytest.mark.parametrize("name", sorted(set(MAKERS) - {"policy_table", "policy_subsets"}))
def test_memos_and_their_reports_are_the_same(twin: Twin, name: str) -> None:
    rng = random.Random(f"memo {name}")
    for _ in range(6):
        try:
            mechanism = MAKERS[name](rng)
        except InvalidInput:
            continue
        if isinstance(mechanism, Categorical):
            compare_lives(twin, mechanism, rng)


def compare_lives(twin: Twin, mechanism: Categorical, rng: random.Random) -> None:
    memoizer, seed = Memoizer(mechanism), rng.randbytes(8)
    coins = ScriptedCoins(seed)
    device = memoizer.enroll(coins)
    values, memos = values_of(mechanism, 3, rng), []
    for value in values:
        key = memoizer.key(device, value)
        memo = memoizer.memoize(device, value, coins)
        reports = [memoizer.report(memo, coins).hex() for _ in range(2)]
        memos.append({"key": key, "memo": memo.hex(), "reports": reports})
    answer = twin.ask("life", mechanism=question(mechanism), values=values, seed=seed.hex())
    assert answer == {
        "device": device.hex(),
        "memos": memos,
        "used": coins.used,
        "epsilon": in_hex(memoizer.epsilon),
    }, mechanism


def compare_checks(twin: Twin, n: int, rng: random.Random) -> Counter[tuple[str, bool]]:
    """Compare which spoiled mechanisms are accepted; return how many of each kind were."""
    seen = Counter[tuple[str, bool]]()
    for mechanism in mechanisms(rng):
        name, epsilon, integers = spoiled(mechanism, rng)
        try:
            build(name, epsilon, integers)
            reason = ""
        except InvalidInput as error:
            reason = str(error)
        answer = twin.ask("build", mechanism=as_question(name, epsilon, integers))
        assert ("refused" in answer) == bool(reason), (
            reason,
            answer,
            name,
            epsilon,
            str(integers)[:2000],
        )
        seen[name, not reason] += 1
        if seen.total() >= n:
            return seen
    raise AssertionError("there is always another mechanism")


def test_spoiled_mechanisms_are_accepted_or_refused_alike(twin: Twin) -> None:
    seen = compare_checks(twin, 150, random.Random(2))
    assert (
        min(sum(n for (_, ok), n in seen.items() if ok is accepted) for accepted in (True, False))
        > 20
    )


@pytest.mark.slow
def test_many_spoiled_mechanisms_are_accepted_or_refused_alike(twin: Twin) -> None:
    seen = compare_checks(twin, max(1500, REPORTS // 100), random.Random(3))
    assert len({name for name, accepted in seen if accepted}) >= 20
    assert len({name for name, accepted in seen if not accepted}) == 24


def test_bounds_of_exponentials_and_logarithms_are_the_same(twin: Twin) -> None:
    rng = random.Random(4)
    xs = [Fraction(rng.uniform(0, 32)) for _ in range(300)] + [
        Fraction(rng.randrange(1, 1 << 63), 1 << 58) for _ in range(100)
    ]
    xs += [Fraction(10 ** rng.uniform(-300, 0)) for _ in range(60)] + [
        Fraction(5e-324),
        Fraction(32),
        Fraction(1, 3),
    ]
    ratios = [
        1 + Fraction(rng.randrange(1, ONE) << rng.randrange(20), 1 + rng.randrange(ONE))
        for _ in range(300)
    ]
    ratios += [Fraction(1), 1 + Fraction(1, ONE), 1 + Fraction(1, ONE**2)] + [
        exp_bounds(x)[0] for x in xs[:20]
    ]
    answer = twin.ask(
        "bounds",
        exponents=[[str(x.numerator), str(x.denominator)] for x in xs],
        ratios=[[str(ratio.numerator), str(ratio.denominator)] for ratio in ratios],
    )
    assert [Fraction(int(n), int(d)) for n, d in answer["bounds"]] == [exp_bounds(x)[0] for x in xs]
    assert answer["logarithms"] == [in_hex(log_upper(ratio)) for ratio in ratios]


def test_single_draws_are_the_same(twin: Twin) -> None:
    rng, seed = random.Random(5), b"draws"
    coins, draws, expected = ScriptedCoins(seed), list[list[Any]](), list[Any]()
    for _ in range(300):
        t, m = (
            rng.choice((1, 2, ONE // 2, ONE - 1, rng.randrange(1, ONE))),
            rng.choice((1, 2, 3, 1 << 26, 1 << 32, rng.randrange(1, 1 << rng.randint(1, 32)))),
        )
        weights = [1 + rng.randrange(ONE // 20) for _ in range(rng.randint(1, 15))]
        x, n = rng.choice((-1.0, 1.0, 0.0, 5e-324, rng.uniform(-1, 1))), rng.randint(1, 300)
        size = rng.randint(0, n)
        draws += [
            ["coin", str(t)],
            ["uniform", m],
            ["toss", str(t), n],
            ["distinct", n, size],
            ["point", in_hex(x), n],
        ]
        draws.append(["pick", [str(w) for w in (*weights, ONE - sum(weights))]])
        numerator, denominator = x.as_integer_ratio()
        expected += [
            coins.bernoulli(t),
            coins.below(m),
            coins.toss(t, n).tobytes().hex(),
            sorted(coins.distinct(n, size).tolist()),
        ]
        whole, rest = divmod((numerator + denominator) * n, 2 * denominator)
        expected.append(whole + coins.bernoulli(rest * ONE // (2 * denominator)))
        word = int(coins.words(1)[0])
        expected.append(sum(word >= sum(weights[: y + 1]) for y in range(len(weights))))
    answer = twin.ask("draws", seed=seed.hex(), draws=draws)
    assert answer == {"results": expected, "used": coins.used}


# --- plans ---------------------------------------------------------------------------------


def random_survey(rng: random.Random) -> survey_pb2.Survey:
    """Return a survey that may or may not have a plan."""
    survey = survey_pb2.Survey(
        name="health", title=rng.choice(("", "Wie geht es?", "Çà va?")), period="P1D"
    )
    for level in rng.sample(("strict", "standard", "loose"), rng.randint(1, 3)):
        survey.levels[level] = rng.choice((0.5, 1.0, 2.0, rng.uniform(0.3, 8)))
    survey.default_level = rng.choice(("", next(iter(survey.levels))))
    survey.budget = rng.choice(("", "split", "sample", "auto"))
    if rng.random() < 0.3:
        survey.levels_differ_at_most = rng.choice((0.0, 0.25, 1.0))
    for position in range(rng.randint(1, 4)):
        attribute = survey.attributes.add(name=f"q{position}", title="Question?")
        if rng.random() < 0.3:
            attribute.weight = rng.uniform(0.5, 3)
        if rng.random() < 0.2:
            attribute.cap = rng.uniform(0.5, 3)
        if rng.random() < 0.3:
            numeric = attribute.numeric
            numeric.low, numeric.high, numeric.clamp = -2.5, 7.5, rng.random() < 0.5
            numeric.step = rng.choice((0, 0.5, 1.25))
            attribute.mechanism = rng.choice(
                ("", "onebit", "piecewise", "hybrid", "laplace", "square_wave")
            )
            continue
        k = rng.randint(2, 30)
        attribute.categorical.values.extend(f"v{i}" for i in range(k))
        match rng.randrange(5):
            case 0:
                attribute.categorical.sensitive.extend(
                    rng.sample(attribute.categorical.values, rng.randint(1, min(3, k)))
                )
            case 1:
                inner = attribute.categorical.classes["private"]
                inner.scale = rng.choice((0.5, rng.uniform(0.2, 1)))
                inner.values.extend(rng.sample(attribute.categorical.values, rng.randint(1, k - 1)))
            case 2:
                attribute.memo = rng.choice((1, 2, 3.5))
            case _:
                attribute.mechanism = rng.choice(
                    (
                        "",
                        "krr",
                        "oue",
                        "sue",
                        "olh",
                        "hrr",
                        "hadamard",
                        "subset",
                        "she",
                        "projective",
                        "cms",
                        "hcms",
                        "ordered",
                        "dbitflip",
                    )
                )
    return survey


def plans(rng: random.Random) -> Iterator[bytes]:
    while True:
        try:
            yield resolve(random_survey(rng))
        except InvalidInput:
            continue


def parsed(data: bytes) -> dict[str, Any]:
    """Return what Python makes of a plan, in the twin's words."""
    plan = parse(data)
    levels = {}
    for level in plan.levels.values():
        memoizers = {name: plan.memoizer(level.name, name) for name in plan.attributes}
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


def spoil(data: bytes, rng: random.Random) -> bytes:
    """Return a plan's bytes after one change: to a field, to an integer, or to the bytes."""
    if rng.random() < 0.25:  # of the bytes themselves: seldom canonical, often no plan
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            case 1:
                return data[:at] + data[at + 1 :]
            case 2:
                return data[:at] + bytes([rng.randrange(256)]) + data[at:]
            case _:
                return data + rng.choice((data, b"\x0a\x00", b"\x12\x00", b"\x18\x01", b"\x08"))
    plan = plan_pb2.Plan.FromString(data)
    survey, level = plan.survey, rng.choice(plan.levels)
    attribute, mechanism = rng.choice(survey.attributes), rng.choice(level.mechanisms)
    parameter = rng.choice(mechanism.parameters)
    where = rng.randrange(len(parameter.values))
    odd = rng.choice(
        (
            "",
            "a\u0301",
            "\u00e1",
            "x\u200b",
            "\ufe0f",
            "\n",
            "\u3164",
            "é",
            "日本",
            "\U000e0100",
            "\ue000",
        )
    )
    changes = [
        lambda: parameter.values.__setitem__(where, min(ONE - 1, parameter.values[where] + 1)),
        lambda: parameter.values.__setitem__(where, max(0, parameter.values[where] - 1)),
        lambda: parameter.values.append(1),
        lambda: parameter.values.pop(),
        lambda: setattr(parameter, "name", rng.choice(("k", "flip", "zz", ""))),
        lambda: mechanism.parameters.reverse(),
        lambda: mechanism.parameters.append(parameter),
        lambda: mechanism.parameters.remove(parameter),
        lambda: setattr(
            mechanism,
            "epsilon",
            rng.choice(
                (
                    0,
                    -1.0,
                    math.nan,
                    math.inf,
                    32.5,
                    math.nextafter(mechanism.epsilon, 0),
                    math.nextafter(mechanism.epsilon, 99),
                )
            ),
        ),
        lambda: setattr(
            mechanism,
            "name",
            rng.choice(("rappor", "gaussian", "krr", "unary", "", "KRR", "constructor")),
        ),
        lambda: setattr(
            level,
            "epsilon",
            rng.choice((0, math.nan, math.inf, 7.0, math.nextafter(level.epsilon, 0))),
        ),
        lambda: setattr(level, "name", rng.choice(("strict", "", odd))),
        lambda: survey.levels.__setitem__(
            "loose", rng.choice((level.epsilon, 9.0, math.nan, math.inf, 0.0))
        ),
        lambda: survey.levels.__setitem__(odd, 1.0),
        lambda: level.chances.append(rng.choice((0, 1, ONE // 2, ONE - 1))),
        lambda: level.chances.__delitem__(slice(None)),
        lambda: level.mechanisms.append(mechanism),
        lambda: level.mechanisms.reverse(),
        lambda: plan.levels.append(level),
        lambda: plan.levels.reverse(),
        lambda: plan.levels.__delitem__(slice(None)),
        lambda: survey.attributes.append(attribute),
        lambda: survey.attributes.reverse(),
        lambda: setattr(survey, "period", rng.choice(("", "PT1H", "P2D", "constructor", "P1Y"))),
        lambda: setattr(survey, "default_level", rng.choice(("", "loose", "none", odd))),
        lambda: setattr(
            survey,
            "levels_differ_at_most",
            rng.choice((0.0, -0.0, 1.0, -1e-9, 1.0000001, math.nan)),
        ),
        lambda: setattr(survey, rng.choice(("name", "title", "budget")), odd),
        lambda: setattr(attribute, rng.choice(("name", "title", "mechanism")), odd),
        lambda: setattr(
            attribute, "memo", rng.choice((0, -0.0, 0.5, 1, 2, 1e9, math.inf, math.nan))
        ),
        lambda: setattr(
            attribute,
            "cap",
            rng.choice(
                (
                    0.0,
                    mechanism.epsilon,
                    math.nextafter(mechanism.epsilon, 0),
                    math.inf,
                    math.nan,
                    -1.0,
                )
            ),
        ),
        lambda: setattr(attribute, "weight", rng.choice((0.0, -0.0, math.nan, math.inf, 3.0))),
        lambda: attribute.ClearField("categorical"),
        lambda: attribute.categorical.values.append(rng.choice(("v0", "", odd))),
        lambda: attribute.categorical.sensitive.append(rng.choice(("v0", "v1", "none"))),
        lambda: attribute.categorical.classes["other"].values.append(
            rng.choice(("v0", "v1", "none"))
        ),
        lambda: setattr(
            attribute.categorical.classes["private"],
            "scale",
            rng.choice((0.0, 0.25, 1.0, 1.5, 1e-300, math.nan)),
        ),
        lambda: setattr(attribute.categorical.classes[odd], "scale", 0.5),
        lambda: setattr(
            attribute.numeric,
            "step",
            rng.choice((0, -0.0, 0.1, 3.3, 1e-9, -1.0, math.nan, math.inf)),
        ),
        lambda: setattr(
            attribute.numeric, "high", rng.choice((8.0, -2.5, -9.0, math.nan, math.inf, 1.7e308))
        ),
        lambda: setattr(
            attribute.numeric, "low", rng.choice((-2.5, 0.0, -1.7e308, math.nan, -math.inf))
        ),
        lambda: setattr(attribute.numeric, "clamp", True),
    ]
    rng.choice(changes)()
    if rng.random() < 0.1:
        rng.choice(changes)()
    return plan.SerializeToString(deterministic=True)


def compare_plans(twin: Twin, n: int, rng: random.Random) -> Counter[bool]:
    seen = Counter[bool]()
    for data in plans(rng):
        assert compare_plan(twin, data)
        for _ in range(20):
            seen[compare_plan(twin, spoil(data, rng))] += 1
        if seen.total() >= n:
            break
    return seen


def test_plans_are_parsed_or_refused_alike(twin: Twin) -> None:
    seen = compare_plans(twin, 300, random.Random(6))
    assert min(seen[True], seen[False]) > 30


@pytest.mark.slow
def test_many_plans_are_parsed_or_refused_alike(twin: Twin) -> None:
    seen = compare_plans(twin, max(4000, REPORTS // 50), random.Random(7))
    assert min(seen[True], seen[False]) > 400


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
    from hearsay.recording.terms import _GRID

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
            points = domain.points
            drawn = [
                points.place(coins.below(len(points)))
                if points is not None
                else 2 * coins.below(_GRID) / (_GRID - 1) - 1
                for _ in range(20)
            ]
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
        "２０２６",
    ]
    for unit in ("PT1H", "P1D", "P1W", "P1M", "P1Y"):
        accepted = twin.ask("starts", unit=unit, names=names)["accepted"]
        for name, begin in zip(names, accepted, strict=True):
            try:
                expected: float | None = period.start(unit, name).timestamp() * 1000
            except InvalidInput:
                expected = None
            assert begin == expected, (unit, name)
