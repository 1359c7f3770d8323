"""Vectors of the draws, the mechanisms, the exact checks and the bounds behind them."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import Any

from ldp import InvalidInput, Mechanism, build
from ldp import mechanisms as m
from ldp.core.exact import ONE, ceil_threshold, exp_bounds, include_threshold, log_upper
from ldp.core.longitudinal import Longitudinal
from ldp.core.mechanism import Categorical
from ldp.core.policy import UNIT, UNLIMITED, Policy
from ldp.mechanisms.numbers.mean_table import place_on
from ldp.planning.columns import improved_rr, utility_optimised_rr
from vectors import policies, tables
from vectors.notation import (
    Script,
    Seeds,
    double,
    fraction,
    integer,
    integers,
    mechanism,
    takes_numbers,
)

Case = dict[str, Any]

_SMALL = 16
"""The largest number of categories of which each has vectors."""

# No constructor here rounds a transcendental function in doubles where that could change an
# integer: the files must come out alike on every machine.


def _levels(epsilon: float, size: int) -> tuple[int, ...]:
    """Return weights of `size` levels for `she`, geometric, that keep epsilon."""
    decay = 1 / exp_bounds(Fraction(epsilon) * Fraction(999, 1000) / (2 * (size - 1)))[0]
    shares = [ONE]
    for _ in range(size - 1):
        shares.append(math.ceil(shares[-1] * decay))
    weights = [share * ONE // sum(shares) for share in shares]
    weights[size // 2] += ONE - sum(weights)
    return tuple(weights)


def _table(k: int, epsilon: float) -> m.ChannelTable:
    return m.ChannelTable.from_rows(epsilon, m.KRR(k, epsilon * 0.999).channel().rows)


def _rectangle() -> m.ChannelTable:
    rows = [[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.2, 0.1, 0.4, 0.3]]
    return m.ChannelTable.from_rows(1.5, rows)


def waves(sides: tuple[int, ...], epsilon: float, patterns: Sequence[int]) -> m.Waves:
    """Return waves of these patterns, each one a number with a bit for each bin."""
    k = math.prod(sides)
    share = ONE // (len(patterns) + 1)  # of which the last one has two
    sizes = [pattern.bit_count() for pattern in patterns]
    return m.Waves(
        sides,
        epsilon,
        masks=tuple(p >> at & ONE - 1 for p in patterns for at in range(0, k, 64)),
        chances=(*[share] * (len(patterns) - 1), ONE - share * (len(patterns) - 1)),
        include=tuple(include_threshold(size, k - size, epsilon) for size in sizes),
    )


def every() -> Iterator[Mechanism]:
    """Yield the mechanisms of codes.json: every one of a plan, in each form that its code takes."""
    for k, epsilon in ((2, 0.5), (3, 1.0), (257, 4.0), (70_000, 8.0), (1 << 32, 32.0)):
        yield m.KRR(k, epsilon)
    for k, epsilon in ((2, 0.5), (9, 1.0), (64, 2.0), (2049, 8.0), (10_000, 1.0)):
        yield m.UnaryEncoding(k, epsilon)
    yield m.UnaryEncoding.symmetric(11, 1.0)
    for k, epsilon, size in ((3, 1.0, 3), (4, 2.0, 256), (17, 0.25, 8)):
        yield m.SummingHistogram(k, epsilon, _levels(epsilon, size))
    for k, epsilon in ((2, 0.5), (10, 1.0), (5000, 4.0), (1 << 20, 12.0)):
        yield m.LocalHashing(k, epsilon)
    yield m.LocalHashing(5, 1.0, prime=7)
    yield m.LocalHashing.binary(12, 1.0)
    for k, epsilon in ((2, 0.5), (5, 1.0), (129, 2.0), (1 << 24, 1.0)):
        yield m.HRR(k, epsilon)
    for k, epsilon, blocks in (
        (2, 0.5, 1),
        (9, 2.0, 4),
        (12, 3.0, 8),
        (1000, 4.0, 32),
        (13, 1.0, 1),
    ):
        yield m.HadamardResponse(k, epsilon, blocks)
    yield m.HadamardResponse(1 << 24, 6.0, 256)
    for k, epsilon, size in (
        (2, 0.5, 1),
        (9, 1.0, 3),
        (17, 2.5, 1),
        (300, 1.0, 9),
        (1024, 1.0, 275),
    ):
        yield m.SubsetSelection(k, epsilon, size)
    for k, order, dimension, epsilon in (
        (2, 2, 2, 0.5),
        (12, 3, 3, 1.0),
        (20, 4, 3, 2.0),
        (10, 9, 2, 2.0),
        (14, 2, 4, 0.7),
        (16, 8, 3, 2.0),
        (5000, 256, 3, 5.5),
        (1 << 20, 1031, 3, 6.0),
    ):
        yield m.ProjectiveGeometry(k, epsilon, order, dimension)
    yield m.CountMeanSketch(6, 1.0, 3, 4)
    yield m.CountMeanSketch(100_000, 2.0, 256, 256, seed=ONE - 1)
    yield m.HadamardCountMeanSketch(6, 1.0, 3, 4)
    yield m.HadamardCountMeanSketch(100_000, 2.0, 256, 256, seed=1 << 40)
    yield m.OrderedExponential(2, 0.5)
    yield m.OrderedExponential(7, 2.0)
    yield m.OrderedExponential(20, 1.0)
    yield _table(3, 1.0)
    yield _table(20, 2.0)
    yield _rectangle()
    yield from policies.every()
    yield improved_rr(1.0)
    yield utility_optimised_rr(5, [1, 3], 1.0)
    yield m.PolicyUnary.utility_optimised(5, [0, 3], 1.0)
    yield m.PolicyUnary.utility_optimised(12, [0, 3, 11], 2.0, symmetric=True)
    yield m.PolicyUnary.utility_optimised(300, range(10, 40), 1.0)
    for k, d, epsilon in (
        (4, 1, 1.0),
        (5, 5, 1.0),
        (13, 8, 2.0),
        (200, 16, 4.0),
        (1 << 20, 3, 1.0),
    ):
        yield m.DBitFlip(k, epsilon, d)
    for k, epsilon in ((2, 0.5), (9, 1.0), (300, 2.0)):
        yield m.KRRChain.calibrate(k, epsilon, 2 * epsilon)
    yield m.UnaryChain.l_osue(9, 1.0, 2.0)
    yield m.UnaryChain.l_oue(10, 1.0, 2.0)
    yield m.UnaryChain.l_sue(300, 2.0, 4.0)
    yield m.UnaryChain.l_oue(2100, 2.0, 5.0)
    for k, epsilon in ((5, 1.0), (1000, 2.0)):
        yield m.LOLOHA.calibrate(k, epsilon, 2 * epsilon)
    yield m.LOLOHA.calibrate(12, 0.5, 1.0, buckets=2)
    for epsilon in (0.1, 1.0, 8.0):
        yield m.OneBitMean(epsilon)
    for epsilon, grid, window in ((0.5, 1, 1), (1.0, 1024, 621), (4.0, 2048, 100)):
        yield m.PiecewiseMechanism(epsilon, grid, window)
    for epsilon, grid, window in ((1.0, 8, 5), (2.0, 1000, 400)):
        yield m.SquareWave(epsilon, grid, window)
    for epsilon, grid, window in ((1.0, 4, 3), (2.0, 1024, 377)):
        yield m.HybridMechanism(epsilon, grid, window, onebit=ONE // 3)
    for epsilon, grid in ((0.5, 1), (1.0, 3), (2.0, 64), (8.0, 300)):
        yield m.LaplaceMechanism(epsilon, grid)
    yield from tables.every()
    yield waves((2,), 0.5, [0b01, 0b10])
    yield waves((5,), 1.0, [0b00001, 0b01001])
    yield waves((3, 4), 2.0, [0b000000001111, 0b000100010001, 0b000001110111])
    yield waves((64,), 1.0, [(1 << 17) - 1, ONE // 3, 1 << 63])
    yield waves((100,), 4.0, [(1 << 70) - (1 << 60), 1 << 99, 0x5555])
    yield waves((16, 16), 8.0, [1, (1 << 16) - 1, (1 << 200) + 3])
    # Given sizes: those that doubles choose could differ by machine.
    for items, most, epsilon, size, meet in (
        (3, 1, 0.5, 1, 1),
        (2, 2, 1.0, 1, 1),
        (6, 3, 4.0, 2, 2),
        (100, 5, 1.0, 5, 1),
        (1000, 5, 1.0, 52, 1),
        (5, 4, 1.0, 5, 2),
        (300, 8, 2.0, 1, 1),
        (1 << 15, 64, 2.0, 16, 3),
    ):
        yield m.SetSelection(items, epsilon, most, size, meet)
    for items, epsilon in ((2, 0.5), (9, 1.0), (200, 4.0)):
        yield m.SetBits(items, epsilon)
    for alphabet, lengths, epsilon in (
        ("ab", (1, 1), 0.5),
        ("abcdefghijklmnopqrstuvwxyz'", (4, 8, 12), 1.0),
        ("0123456789", (4, 7), 4.0),
        ("".join(map(chr, range(0x3B1, 0x3D0))), (12, 12), 12.0),
    ):
        yield m.PrefixHashing(tuple(map(ord, alphabet)), lengths, epsilon)
    for epsilon, memo_epsilon, bits, hashes, cohorts in (
        (1.0, 2.0, 16, 1, 1),
        (2.0, 4.0, 128, 2, 16),
        (4.0, 8.0, 75, 3, 7),
        (8.0, 16.0, 64, 9, 16),
    ):
        yield m.RAPPOR.calibrate(epsilon, memo_epsilon, bits=bits, hashes=hashes, cohorts=cohorts)
    yield m.RAPPOR.published(0.5, 0.25, 0.75, bits=32, hashes=2, cohorts=8)
    yield m.RAPPOR.published(0.5, 0.25, 0.5, bits=77, hashes=2, cohorts=16)


NUMBERS = (-1.0, -math.nextafter(1, 0), -0.7, -5e-324, 0.0, 1e-300, 0.1, 1 / 3, 0.5, 0.999, 1.0)
"""Numbers that are randomised: the ends, beside them, and such as no grid point is."""


TEXTS = ("", "a", "that's", "\u03b1\u03b2\U0010ffff", "b" * 128, "c" * 129, "d" * 300)
"""Texts that are hashed: in one block or several, of one byte a character or up to four."""


def values(made: Mechanism) -> Sequence[Any]:
    """Return the values of a mechanism that have vectors: all of few, the edges of many."""
    if takes_numbers(made):
        return NUMBERS
    if isinstance(made, m.SetMechanism):
        sets = [list(items) for items in islice(made.sets(), 2 + made.items)]
        some = [[], *sets[-2:], list(range(min(made.items, made.largest, 12)))]
        last = list(range(max(0, made.items - min(made.largest, 12)), made.items))
        return [items for i, items in enumerate([*some, last]) if items not in [*some, last][:i]]
    if isinstance(made, m.PrefixHashing):
        letters, longest = len(made.alphabet), made.lengths[-1]
        ways = {(1,) * longest, (letters,) * longest, (1,), (letters,)}
        ways |= {tuple(1 + 7 * at % letters for at in range(n)) for n in range(1, longest + 1)}
        return [list(word) for word in sorted(ways)]
    if isinstance(made, m.RAPPOR):
        return [[*map(ord, word)] for word in TEXTS]
    assert isinstance(made, Categorical)
    if made.k <= _SMALL:
        return range(made.k)
    half = 1 << (made.k - 1).bit_length() - 1
    return sorted({0, 1, half - 1, half, made.k - 2, made.k - 1})


def taken(made: Mechanism, value: Any) -> Any:
    """Return a value as a mechanism takes it: a word's letters, counted from 1, as its integer; a
    text's code points as the text."""
    if isinstance(made, m.RAPPOR):
        return "".join(map(chr, value))
    if isinstance(made, m.PrefixHashing):
        return sum(letter << 5 * place for place, letter in enumerate(value))
    return value


def _repeats(made: Mechanism) -> int:
    """Return how many codes each value has: more where they are short and there are few."""
    return max(1, min(4, 60 // len(values(made)), 400 // made.code_bytes))


def codes() -> dict[str, list[Case]]:
    """Return codes.json."""
    seeds = Seeds("codes")
    found = []
    for made in every():
        listed = []
        for value in values(made):
            for _ in range(_repeats(made)):
                seed = seeds.next()
                coins = Script(seed)
                code = made.encode_one(made.randomize(taken(made, value), coins))
                shown = double(value) if isinstance(value, float) else value
                listed.append([shown, seed.hex(), code.hex(), coins.used])
        kind = "number" if takes_numbers(made) else "category"
        kind = "set" if isinstance(made, m.SetMechanism) else kind
        kind = "word" if isinstance(made, m.PrefixHashing) else kind
        kind = "text" if isinstance(made, m.RAPPOR) else kind
        found.append(mechanism(made) | {"input": kind, "width": made.code_bytes, "codes": listed})
    return {"mechanisms": found}


def lasting() -> Iterator[Categorical | m.RAPPOR]:
    """Yield the mechanisms of lives.json: those with rounds, and some without."""
    for made in every():
        if isinstance(made, Longitudinal) and isinstance(made, Categorical | m.RAPPOR):
            yield made
    yield m.KRR(3, 1.0)
    yield m.UnaryEncoding(9, 1.0)
    yield m.LocalHashing(10, 1.0)
    yield m.SubsetSelection(9, 1.0, 3)


def lives() -> dict[str, list[Case]]:
    """Return lives.json."""
    from hearsay.plans.memo import Memoizer

    seeds = Seeds("lives")
    found = []
    for made in lasting():
        memoizer = Memoizer(made)
        listed = []
        width = 0
        for value in values(made):
            seed = seeds.next()
            coins = Script(seed)
            device = memoizer.enroll(coins)
            width = len(device)
            key = memoizer.key(device, taken(made, value))
            others = (x for x in values(made) if memoizer.key(device, taken(made, x)) != key)
            memos = []
            for each in (value, *list(others)[:1]):
                memo = memoizer.memoize(device, taken(made, each), coins)
                reports = [memoizer.report(memo, coins).hex() for _ in range(2)]
                where = memoizer.key(device, taken(made, each))
                shown = integer(where) if isinstance(made, m.RAPPOR) else where
                memos.append({"value": each, "key": shown, "memo": memo.hex(), "reports": reports})
            life = {"seed": seed.hex(), "device": device.hex(), "memos": memos, "used": coins.used}
            listed.append(life)
        widths = {"width": made.code_bytes, "device": width}
        epsilon = {"memo_epsilon": double(memoizer.epsilon)}
        found.append(mechanism(made) | widths | epsilon | {"lives": listed})
    return {"mechanisms": found}


_TOP = (ONE - 1).to_bytes(8, "little")


def draws() -> dict[str, list[Case]]:
    """Return draws.json."""
    found: list[Case] = []
    seeds = Seeds("draws")

    def add(draw: str, arguments: Case, result: Callable[[Script], Any], *streams: bytes) -> None:
        for stream in streams:
            coins = Script(stream=stream)
            outcome = result(coins)
            used = stream[: coins.used].hex()
            found.append({"draw": draw, **arguments, "stream": used, "result": outcome})

    def random(count: int) -> bytes:
        return Script(seeds.next())._bytes(count)

    for threshold in (0, 1, ONE // 2, ONE - 1, ONE):
        around = {max(0, min(ONE - 1, threshold + by)) for by in (-1, 0, 1)}
        words = [word.to_bytes(8, "little") for word in sorted(around)]
        add(
            "coin",
            {"threshold": integer(threshold)},
            lambda coins, t=threshold: coins.bernoulli(t),
            *words,
        )
    for bound in (1, 2, 3, 10, 1 << 32, (1 << 63) + 1, ONE - 1, ONE):
        edge = ONE - ONE % bound
        first = [
            word.to_bytes(8, "little") for word in sorted({0, 1, edge - 1, min(edge, ONE - 1)})
        ]
        streams = [word + bytes(8) for word in first]
        add(
            "uniform",
            {"bound": integer(bound)},
            lambda coins, b=bound: integer(coins.below(b)),
            *streams,
            random(256),
        )
    for bound in (ONE + 1, 10**40, 1 << 192):
        words = -(-(bound - 1).bit_length() // 64)
        edge = (1 << 64 * words) - (1 << 64 * words) % bound
        streams = [number.to_bytes(8 * words, "little") for number in (0, 1, edge - 1)]
        if edge < 1 << 64 * words:
            streams.append(edge.to_bytes(8 * words, "little") + bytes(8 * words))
        add(
            "uniform",
            {"bound": integer(bound)},
            lambda coins, b=bound: integer(coins.below(b)),
            *streams,
            random(512),
        )
    for weights in (
        (ONE // 2, ONE // 2),
        (1, ONE - 2, 1),
        (ONE // 3, ONE // 3, ONE - 2 * (ONE // 3)),
    ):
        edges = [sum(weights[:y]) for y in range(1, len(weights))]
        words = sorted({0, ONE - 1, *edges, *(edge - 1 for edge in edges)})
        add(
            "pick",
            {"weights": [integer(weight) for weight in weights]},
            lambda coins, w=weights: _picked(w, coins),
            *(word.to_bytes(8, "little") for word in words),
        )
    for threshold in (0, 1, ONE // 2, 3 << 61, 0x4E1A_55CF_0000_0001, ONE - 1, ONE):
        for size in (1, 8, 9, 257):
            streams = [random(32 * size)] if size > 9 else [random(64 * size), bytes(64 * size)]
            if size == 1:
                streams.append(b"\xff" * 64)
            add(
                "toss",
                {"threshold": integer(threshold), "count": size},
                lambda coins, t=threshold, n=size: coins.toss(t, n).tobytes().hex(),
                *streams,
            )
    for count, size in ((1, 0), (1, 1), (5, 5), (7, 3), (9, 9), (40, 13), (1000, 3), (1000, 12)):
        rejected = _TOP * 3 + random(8 * size + 64)
        add(
            "distinct",
            {"count": count, "size": size},
            lambda coins, n=count, s=size: coins.distinct(n, s).tolist(),
            random(8 * size + 64),
            rejected,
            bytes(8 * size),
        )
    for grid in (1, 3, 1024, 2048):
        for x in NUMBERS:
            add(
                "point",
                {"x": double(x), "grid": grid},
                lambda coins, number=x, g=grid: _point(number, g, coins),
                bytes(8),
                _TOP,
            )
    for grid in (1, 15):
        points = {float(Fraction(2 * point, grid) - 1) for point in (1, grid // 2, grid - 1)}
        beside = {math.nextafter(x, end) for x in points for end in (-2, 2)}
        for x in sorted({*NUMBERS, *points, *beside}):
            add(
                "place",
                {"x": double(x), "grid": grid},
                lambda coins, number=x, g=grid: _place(number, g, coins),
                bytes(8),
                _TOP,
            )
    return {"draws": found}


def _picked(weights: Sequence[int], coins: Script) -> int:
    from ldp.mechanisms.tools.sampling import draw_many, thresholds

    return int(draw_many(thresholds("pick", weights), 1, coins)[0])


def _point(x: float, grid: int, coins: Script) -> int:
    """Return the grid point of a number, as the mechanisms for numbers round it."""
    made = m.PiecewiseMechanism(1.0, grid, 1)
    rounded: list[int] = []
    object.__setattr__(made, "_report", lambda point, coins: rounded.append(int(point)) or 0)
    made.randomize(x, coins)
    return rounded[0]


def _place(x: float, grid: int, coins: Script) -> int:
    """Return the grid point of a number, as the tables for numbers round it."""
    point, rest = place_on(grid, x)
    return point + coins.bernoulli(rest << 32)


# --- exact checks ------------------------------------------------------------------------------


def bounds() -> dict[str, list[Case]]:
    """Return bounds.json."""
    doubles = [5e-324, 1e-300, 1e-60, 1e-20, 0.01, 0.1, 0.5, 1 / 3, 1.0, math.log(2), 2.0, 8.0]
    doubles += [math.nextafter(1.0, 0), math.nextafter(1.0, 2), 31.999, 32.0]
    doubles += [n / 7 for n in range(1, 200, 6)] + [n * 0.1 for n in range(1, 60, 2)]
    ratios = [Fraction(x) for x in doubles]
    ratios += [Fraction(d, UNIT) for d in (1, UNIT // 3, UNIT, UNIT + 1, 5 * UNIT // 2, 31 * UNIT)]
    exponentials = []
    for x in ratios:
        low = exp_bounds(x)[0]
        digits, exponent = low, 0
        while digits >= 10**60:
            digits, exponent = digits / 10, exponent + 1
        while digits < 10**59:
            digits, exponent = digits * 10, exponent - 1
        assert digits.denominator == 1
        bound = [integer(int(digits)), integer(exponent)]
        exponentials.append({"x": fraction(x), "bound": bound})
    logarithms = []
    for made in [*every(), *(m.KRR(k, n / 10) for k in (2, 3, 50) for n in range(1, 40, 2))]:
        if made.guarantee != "policy":
            ratio = made._worst_ratio()
            logarithms.append({"ratio": fraction(ratio), "epsilon": double(log_upper(ratio))})
    for n in (1, 10, 10**6, 10**30):
        ratio = 1 + Fraction(1, n)
        logarithms.append({"ratio": fraction(ratio), "epsilon": double(log_upper(ratio))})
    return {"exponentials": exponentials, "logarithms": logarithms}


def _outcome(name: str, epsilon: float, given: dict[str, tuple[int, ...]], note: str) -> Case:
    case: Case = {
        "note": note,
        "name": name,
        "epsilon": double(epsilon),
        "integers": integers(given),
    }
    try:
        build(name, epsilon, given)
    except InvalidInput as error:
        text = str(error)
        exceeds = "the integers give epsilon" in text or "told apart" in text
        return case | {"accepted": False, "reason": "epsilon" if exceeds else "integers"}
    return case | {"accepted": True}


def checks() -> dict[str, list[Case]]:
    """Return checks.json: mechanisms as they are, with one integer off by one, and with one that
    is missing, unknown, or out of its range."""
    found = []
    seen: dict[str, int] = {}
    for made in every():
        seen[made.name] = seen.get(made.name, 0) + 1
        count = sum(map(len, made.integers.values()))
        # Of each mechanism two, the second of them a small one.
        if seen[made.name] > 2 or count > (60 if seen[made.name] == 1 else 12):
            continue
        name, epsilon, given = made.name, made.epsilon, made.integers
        found.append(_outcome(name, epsilon, given, "as calibrated"))
        below = math.nextafter(epsilon, 0)
        found.append(_outcome(name, below, given, "the next smaller epsilon"))
        realised = made.realised_epsilon
        found.append(_outcome(name, realised, given, "the epsilon of the integers"))
        below = math.nextafter(realised, 0)
        found.append(_outcome(name, below, given, "just below the epsilon of the integers"))
        for key, row in given.items():
            places = {0, len(row) // 2, len(row) - 1}
            for place in sorted(places):
                for by in (-1, 1):
                    moved = [*row]
                    moved[place] += by
                    if 0 <= moved[place] < ONE:
                        note = f"{key}[{place}] {by:+d}"
                        changed = given | {key: tuple(moved)}
                        found.append(_outcome(name, epsilon, changed, note))
            if len(row) > 1:
                for place in range(min(len(row) - 1, 4)):
                    for by in (-1, 1):
                        moved = [*row]
                        moved[place], moved[place + 1] = moved[place] - by, moved[place + 1] + by
                        if all(0 <= each < ONE for each in moved):
                            note = f"{by} moved from {key}[{place}] to the next"
                            changed = given | {key: tuple(moved)}
                            found.append(_outcome(name, epsilon, changed, note))
                found.append(_outcome(name, epsilon, given | {key: row[:-1]}, f"{key} shorter"))
            else:
                twice = given | {key: row * 2}
                found.append(_outcome(name, epsilon, twice, f"{key} twice"))
            none = given | {key: (0,) * len(row)}
            found.append(_outcome(name, epsilon, none, f"{key} 0"))
            if seen[name] == 1:
                most = given | {key: (ONE - 1,) * len(row)}
                found.append(_outcome(name, epsilon, most, f"{key} 2^64 - 1"))
                missing = {other: each for other, each in given.items() if other != key}
                found.append(_outcome(name, epsilon, missing, f"no {key}"))
        if seen[name] == 1:
            found.append(_outcome(name, epsilon, given | {"other_": (1,)}, "an unknown integer"))
            for odd in (0.0, -1.0, math.inf, math.nan, 32.0, math.nextafter(32.0, 33)):
                found.append(_outcome(name, odd, given, "another epsilon"))
    found.append(_outcome("gaussian", 1.0, {"grid": (1,)}, "no mechanism of a plan"))
    found += _edges()
    return {"checks": found}


def _edges() -> Iterator[Case]:
    """Yield mechanisms at the ends of their ranges, and just beyond."""
    quiet = 40.0 / 64

    def flips(epsilon: float) -> int:
        return ceil_threshold(1 / (exp_bounds(Fraction(epsilon))[0] + 1))

    flip = flips(quiet)
    for name, others, largest in (
        ("krr", {"resample": (ONE - 1,)}, 1 << 32),
        ("unary", {"own": (ONE // 2,), "other": (flips(1.0) + 1,)}, 1 << 20),
        ("hrr", {"flip": (flip,)}, 1 << 24),
        ("hadamard", {"blocks": (1,), "include": ((ONE >> 1) + 1,)}, 1 << 24),
    ):
        for k in (0, 1, largest, largest + 1):
            yield _outcome(name, 32.0, {"k": (k,), **others}, f"k = {k}")
    for prime in (1021, 1023, 7, 11, 4_194_301, 4_194_319):
        given = {"k": (10,), "buckets": (4,), "prime": (prime,), "resample": (ONE // 2,)}
        yield _outcome("hashing", 8.0, given, f"prime = {prime}")
    for buckets in (1, 2, 1 << 15, (1 << 15) + 1):
        given = {"k": (10,), "buckets": (buckets,), "prime": (2_097_169,), "resample": (ONE - 1,)}
        yield _outcome("hashing", 8.0, given, f"buckets = {buckets}")
    for k in ((1 << 20), (1 << 20) + 1):
        given = {"k": (k,), "buckets": (4,), "prime": (2_097_169,), "resample": (ONE // 2,)}
        yield _outcome("hashing", 8.0, given, f"k = {k}")
    for order in (1, 2, 4, 6, 12, 16, 256, 257, 512, 1024, 4093):
        for dimension in (1, 2, 3):
            given = {
                "k": (2,),
                "order": (order,),
                "dimension": (dimension,),
                "include": (ONE - ONE // 4,),
            }
            yield _outcome("projective", 32.0, given, f"order {order}, dimension {dimension}")
    flip_below = {"include": (ONE - 1,)}
    for items, most, size, meet in (
        (1, 1, 1, 1),
        (1, 2, 1, 1),
        (4, 2, 1, 2),
        (4, 2, 3, 2),
        (4, 2, 5, 1),
        (4, 2, 5, 2),
        (4, 4, 1, 1),
        (4, 3, 4, 4),
        (64_511, 1024, 1, 1),
        (64_512, 1024, 1, 1),
        (64_513, 1024, 1, 1),
        (64_511, 1025, 1, 1),
        (60_000, 1, 4096, 1),
        (60_000, 1, 4097, 1),
    ):
        given = {"items": (items,), "most": (most,), "size": (size,), "meet": (meet,), **flip_below}
        note = f"items {items}, most {most}, size {size}, meet {meet}"
        yield _outcome("set_selection", 32.0, given, note)
    for items in (1, 2, 1 << 15, (1 << 15) + 1):
        yield _outcome("set_bits", 1.0, {"items": (items,), "flip": (flip,)}, f"items {items}")
    for size in (0, 1, 5, 6):
        given = {"k": (10,), "size": (size,), "include": (ONE - ONE // 4,)}
        yield _outcome("subset", 32.0, given, f"size = {size}")
    for grid, window in ((1, 1), (2048, 1), (2049, 1), (1, 65_535), (1, 65_536), (2048, 63_488)):
        given = {"grid": (grid,), "window": (window,), "resample": (ONE - 1,)}
        yield _outcome("piecewise", 32.0, given, f"grid {grid}, window {window}")
    for hashes, buckets, seed in ((1, 2, 1), (65_536, 256, 1), (65_536, 257, 1), (65_537, 2, 1)):
        given = {
            "k": (10,),
            "hashes": (hashes,),
            "buckets": (buckets,),
            "seed": (seed,),
            "prime": (257 if buckets > 2 else 11,),
            "flip": (flip,),
        }
        yield _outcome("hcms", 1.0, given, f"hashes {hashes}, buckets {buckets}")
    for note, changed in (
        ("no sides", {"sides": ()}),
        ("three sides", {"sides": (5, 1, 1)}),
        ("a side of 0", {"sides": (5, 0)}),
        ("two sides", {"sides": (1, 5)}),
        ("257 bins", {"sides": (257,)}),
        ("a bit beyond the bins", {"masks": (0b100001, 0b01001)}),
        ("an empty pattern", {"masks": (0, 0b01001)}),
        ("a full pattern", {"masks": (0b00001, 0b11111)}),
        ("a word too many", {"masks": (0b00001, 0b01001, 0)}),
        ("an include at its share", {"include": (ONE // 5, ONE // 2)}),
        ("an include that exceeds epsilon", {"include": (ONE // 2, ONE - 1)}),
        ("a chance of 0", {"chances": (0, ONE - 1)}),
    ):
        good = waves((5,), 1.0, [0b00001, 0b01001]).integers
        yield _outcome("waves", 1.0, good | changed, note)
    word = m.PrefixHashing((97, 98), (4, 8), 1.0).integers
    for note, changed in (
        ("one letter", {"alphabet": (97,)}),
        ("31 letters", {"alphabet": tuple(range(97, 128))}),
        ("32 letters", {"alphabet": tuple(range(96, 128))}),
        ("a letter twice", {"alphabet": (97, 97)}),
        ("a letter of 0", {"alphabet": (97, 0)}),
        ("half of a letter", {"alphabet": (97, 0xD800)}),
        ("no letter of Unicode", {"alphabet": (97, 0x110000)}),
        ("the last letter of Unicode", {"alphabet": (97, 0x10FFFF)}),
        ("one length", {"lengths": (4,), "chances": (ONE - 1,)}),
        ("a length of 0", {"lengths": (0, 8)}),
        ("a length of 13", {"lengths": (4, 13)}),
        ("lengths that fall", {"lengths": (8, 4)}),
        ("a chance too many", {"chances": (ONE // 2, ONE // 4, ONE // 4)}),
        ("chances below all", {"chances": (ONE // 2, ONE // 2 - 1)}),
        ("a chance of 0", {"chances": (ONE - 1, 0)}),
        ("three buckets", {"buckets": (3,)}),
        ("one bucket", {"buckets": (1,)}),
        ("512 buckets", {"buckets": (512,)}),
        ("256 buckets", {"buckets": (256,), "resample": (ONE - 1,)}),
    ):
        yield _outcome("prefix_hashing", 1.0, word | changed, note)
    text = m.RAPPOR.calibrate(2.0, 4.0, bits=64, hashes=2, cohorts=4).integers
    for note, changed in (
        ("64 hashes", {"hashes": (64,), "bits": (128,)}),
        ("65 hashes", {"hashes": (65,), "bits": (130,)}),
        ("3 bits of 2 hashes", {"bits": (3,)}),
        ("4 bits of 2 hashes", {"bits": (4,)}),
        ("65536 bits", {"bits": (1 << 16,)}),
        ("65537 bits", {"bits": ((1 << 16) + 1,)}),
        ("65536 cohorts", {"cohorts": (1 << 16,)}),
        ("65537 cohorts", {"cohorts": ((1 << 16) + 1,)}),
        ("2^24 bits of all cohorts", {"cohorts": (1 << 10,), "bits": (1 << 14,)}),
        ("more bits of all cohorts", {"cohorts": (1 << 10,), "bits": ((1 << 14) + 1,)}),
        ("a round of equals", {"instantaneous": (ONE // 2, ONE // 2)}),
        ("a memo above 32", {"permanent": (ONE - (1 << 40), 1 << 40)}),
        ("a memo far above 32", {"permanent": (ONE - 1, 1), "hashes": (64,), "bits": (128,)}),
    ):
        yield _outcome("rappor", 32.0, text | changed, note)
    for distance in (UNIT, UNIT + 1, 0, UNLIMITED):
        policy = Policy.uniform(2, 1.0).integers
        given = {
            "k": (2,),
            "weights": (3 << 62, 1 << 62, 1 << 62, 3 << 62),
            "policy": tuple(distance if x == UNIT else x for x in policy),
        }
        yield _outcome("policy_table", 1.0, given, f"distance {distance}")
    yield from _tables()


def _tables() -> Iterator[Case]:
    """Yield tables of two codes at the ends of their ranges, and such as would be biased."""
    for grid in (1, 63, 64):
        rise = (3 << 61) // grid
        rows = [((7 << 61) - rise * i, (1 << 61) + rise * i) for i in range(grid + 1)]
        for last, bent in ((1, 0), (1 << 16, 0), ((1 << 16) + 1, 0), (1, 1)):
            weights = [weight for row in rows for weight in row]
            weights[0], weights[1] = weights[0] - bent, weights[1] + bent
            given = {"grid": (grid,), "places": (0, last), "weights": tuple(weights)}
            yield _outcome("mean_table", 2.0, given, f"grid {grid}, places to {last}, bent {bent}")
    level = {"grid": (1,), "weights": (1 << 63,) * 4}
    yield _outcome("mean_table", 2.0, level | {"places": (0, 1)}, "no rise")
    steep = {"grid": (1,), "weights": (1 << 62, 3 << 62, 3 << 62, 1 << 62)}
    yield _outcome("mean_table", 2.0, steep | {"places": (0, 1)}, "a fall")
    for places in ((1, 2), (0, 0), (1, 0), (0,), (0, 1, 2)):
        given = {"grid": (1,), "weights": (3 << 62, 1 << 62, 1 << 62, 3 << 62), "places": places}
        yield _outcome("mean_table", 2.0, given, f"places {places}")
    for size in (256, 257):
        row = [ONE // size] * (size - 1)
        row.append(ONE - sum(row))
        other = [row[0] - 1, *row[1:-1], row[-1] + 1]
        given = {"grid": (1,), "places": tuple(range(size)), "weights": (*row, *other)}
        yield _outcome("mean_table", 2.0, given, f"{size} codes")
