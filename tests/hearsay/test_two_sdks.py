"""The TypeScript SDK and Python's draw the same reports from the same coins, byte for byte."""

import random
import sys
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from two_sdks import (
    MAKERS,
    REPORTS,
    ScriptedCoins,
    Twin,
    as_question,
    in_hex,
    mechanisms,
    question,
    spoiled,
    taken,
    values_of,
    why_missing,
)

from hearsay.plans.memo import Memoizer
from ldp import RAPPOR, InvalidInput, Mechanism, build
from ldp.core.exact import ONE, exp_bounds, log_upper
from ldp.core.mechanism import Categorical
from ldp.mechanisms import IN_PLANS

pytestmark = pytest.mark.skipif(bool(why_missing()), reason=why_missing() or "runs")


BOUNDS = (1, 2, 3, 1 << 26, 1 << 32, ONE, 3 * ONE, ONE**3 - 1)
"""Bounds of uniform draws at whose sizes the ways to draw change."""


def compare_reports(twin: Twin, mechanism: Mechanism, n: int, rng: random.Random) -> int:
    """Compare reports from one stream; return how many."""
    values, seed = values_of(mechanism, n, rng), rng.randbytes(8)
    given = [in_hex(value) if isinstance(value, float) else value for value in values]
    coins = ScriptedCoins(seed)
    drawn = [mechanism.randomize(taken(mechanism, value), coins) for value in values]
    codes = [mechanism.encode_one(code).hex() for code in drawn]
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
@pytest.mark.timeout(3600)  # with many reports asked for
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
    sys.stdout.write(f"{done} reports, no byte differs: {dict(kinds)}\n")


@pytest.mark.parametrize("name", sorted(set(MAKERS) - {"policy_table", "policy_subsets"}))
def test_memos_and_their_reports_are_the_same(twin: Twin, name: str) -> None:
    rng = random.Random(f"memo {name}")
    for _ in range(6):
        try:
            mechanism = MAKERS[name](rng)
        except InvalidInput:
            continue
        if isinstance(mechanism, Categorical | RAPPOR):
            compare_lives(twin, mechanism, rng)


def compare_lives(twin: Twin, mechanism: Categorical | RAPPOR, rng: random.Random) -> None:
    memoizer, seed = Memoizer(mechanism), rng.randbytes(8)
    coins = ScriptedCoins(seed)
    device = memoizer.enroll(coins)
    values, memos = values_of(mechanism, 3, rng), []
    for value in (taken(mechanism, each) for each in values):
        key = str(memoizer.key(device, value))
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
@pytest.mark.timeout(3600)  # with many reports asked for
def test_many_spoiled_mechanisms_are_accepted_or_refused_alike(twin: Twin) -> None:
    seen = compare_checks(twin, max(1500, REPORTS // 100), random.Random(3))
    assert len({name for name, accepted in seen if accepted}) >= 20
    assert {name for name, accepted in seen if not accepted} == set(MAKERS)


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
            rng.choice((*BOUNDS, rng.randrange(1, 1 << rng.randint(1, 32)))),
        )
        weights = [1 + rng.randrange(ONE // 20) for _ in range(rng.randint(1, 15))]
        x, n = rng.choice((-1.0, 1.0, 0.0, 5e-324, rng.uniform(-1, 1))), rng.randint(1, 300)
        size = rng.randint(0, n)
        draws += [
            ["coin", str(t)],
            ["uniform", str(m)],
            ["toss", str(t), n],
            ["distinct", n, size],
            ["point", in_hex(x), n],
            ["place", in_hex(x), n],
        ]
        draws.append(["pick", [str(w) for w in (*weights, ONE - sum(weights))]])
        numerator, denominator = x.as_integer_ratio()
        expected += [
            coins.bernoulli(t),
            coins.below(m) if m <= 1 << 32 else str(coins.below(m)),
            coins.toss(t, n).tobytes().hex(),
            sorted(coins.distinct(n, size).tolist()),
        ]
        whole, rest = divmod((numerator + denominator) * n, 2 * denominator)
        expected.append(whole + coins.bernoulli(rest * ONE // (2 * denominator)))
        near = (2 * (numerator + denominator) * n * 2**32 + 2 * denominator) // (4 * denominator)
        expected.append((near >> 32) + coins.bernoulli(near % 2**32 * 2**32))
        word = int(coins.words(1)[0])
        expected.append(sum(word >= sum(weights[: y + 1]) for y in range(len(weights))))
    answer = twin.ask("draws", seed=seed.hex(), draws=draws)
    assert answer == {"results": expected, "used": coins.used}


def test_every_mechanism_of_a_plan_is_compared() -> None:
    assert set(MAKERS) == set(IN_PLANS)
