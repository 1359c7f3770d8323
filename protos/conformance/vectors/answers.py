"""Vectors of answers on their way to a mechanism: numbers, drawn attributes, periods, batches."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hearsay.plans import period
from hearsay.plans.kinds import Binned, Categorical, Numeric
from hearsay.plans.presence import unpack
from hearsay.plans.views import View
from hearsay.recording.batches import together
from hearsay.v1 import collector_pb2
from ldp import InvalidInput
from ldp.core.exact import ONE
from ldp.planning.budget import Budget
from vectors.mechanisms import _point
from vectors.notation import Script, Seeds, double, integer

Case = dict[str, Any]

_GRID = 1024

_DOMAINS = (  # low, high, step, clamp
    (0.0, 1.0, 0.0, False),
    (0.0, 1.0, 0.0, True),
    (-40.0, 60.0, 0.0, False),
    (0.1, 0.7, 0.0, False),
    (-1e308, 7e307, 0.0, True),
    (0.0, 5e-324, 0.0, False),
    (1e16, 1e16 + 4, 0.0, False),
    (0.0, 100.0, 1.0, False),
    (18.0, 99.0, 1.0, True),
    (0.0, 1.0, 0.1, False),
    (0.0, 0.3, 0.1, True),
    (-5.0, 5.0, 2.5, False),
    (36.0, 42.0, 0.1, False),
    (0.0, 512.0, 1.0, False),
    (0.0, 1.0, 1.0, False),
    (0.5, 3.5, 1.0, False),
)

_NO_DOMAINS = (
    (1.0, 1.0, 0.0, False),
    (1.0, 0.0, 0.0, False),
    (math.nan, 1.0, 0.0, False),
    (0.0, math.inf, 0.0, False),
    (-1.7e308, 1.7e308, 0.0, False),
    (0.0, 1.0, -0.1, False),
    (0.0, 1.0, math.nan, False),
    (0.0, 1.0, math.inf, False),
    (0.0, 1.0, 0.3, False),
    (0.0, 1.0, 2.0, False),
    (0.0, 513.0, 1.0, False),
    (0.0, 1.0, 1e-3, False),
    (0.0, 1e-9, 1.0, False),
)


def _answers(domain: Numeric) -> list[float]:
    low, high, width = domain.low, domain.high, domain.high - domain.low
    inner = [low + share * width for share in (0.1, 0.25, 1 / 3, 0.5, 0.7, 0.9, 0.999)]
    edges = [low, high, math.nextafter(low, high), math.nextafter(high, low)]
    outside = [math.nextafter(low, -math.inf), math.nextafter(high, math.inf), -0.0, 0.0]
    far = [math.nan, math.inf, -math.inf, 1.7e308, -1.7e308]
    on_points: list[float] = []
    if domain.points is not None:
        for i in (1, 2, len(domain.points) // 2, len(domain.points) - 2):
            if 0 <= i < len(domain.points):
                at = low + i * domain.step
                near = [at * (1 + by) for by in (-1e-5, -1e-8, 1e-8, 1e-5)]
                on_points += [at, math.nextafter(at, low), math.nextafter(at, high), *near]
                on_points.append(at + 0.9999985 * domain.step)
                on_points.append(at + 0.9999995 * domain.step)
    return [*inner, *edges, *outside, *far, *on_points]


def numbers() -> dict[str, list[Case]]:
    """Return numbers.json."""

    seeds = Seeds("numbers")
    domains = []
    for low, high, step, clamp in _DOMAINS:
        domain = Numeric(low, high, clamp, step)
        answers: list[list[Any]] = []
        for answer in _answers(domain):
            seed = seeds.next()
            try:
                place = domain.encode(answer)
            except InvalidInput:
                answers.append([double(answer), None, seed.hex(), None])
                continue
            point = _point(place, _GRID, Script(seed))
            answers.append([double(answer), double(place), seed.hex(), point])
        drawn = []
        for _ in range(4):
            seed = seeds.next()
            coins = Script(seed)
            drawn.append([seed.hex(), double(float(domain.anything(coins))), coins.used])
        points = 0 if domain.points is None else len(domain.points)
        domains.append(
            _domain(low, high, step, clamp)
            | {"points": points, "grid": _GRID, "answers": answers, "anything": drawn}
        )
    refused = []
    for low, high, step, clamp in _NO_DOMAINS:
        try:
            Numeric(low, high, clamp, step)
        except InvalidInput:
            refused.append(_domain(low, high, step, clamp))
            continue
        raise AssertionError(f"{low}, {high}, {step} is a domain")
    return {"domains": domains, "refused": refused, "graded": list(_graded()), **_bins()}


_GRADED: tuple[tuple[Numeric, Sequence[int]], ...] = (
    (Numeric(0, 2000, True, 0.0, ((800.0, 2000.0),)), (1, 3, 15, 20)),
    (Numeric(0, 2000, True, 0.0, ((801.0, 802.0), (1200.0, 1333.5))), (15, 20)),
    (Numeric(-0.3, 0.6, False, 0.0, ((-0.3, -0.1), (0.0, 0.3))), (9, 15)),
    (Numeric(17, 42, False, 1.0, ((17.0, 17.0), (30.0, 33.5))), (15, 25)),
    (Numeric(0, 2000, True, 0.0, (), ((800.0, 100.0), (2000.0, 400.0)), 2.0), (1, 7, 10)),
    (Numeric(0.1, 0.7, True, 0.0, (), ((0.25, 0.1), (0.3, 0.5), (0.7, 0.02)), 1.0), (3, 8)),
    (Numeric(0, 7, True, 1.0, (), ((2.5, 2.0), (7.0, 0.7)), 3.3), (7, 6)),
    (Numeric(0, 1, True, 0.0, (), ((1.0, 1.0),)), (2,)),
)


def _graded() -> Iterator[Case]:
    """Yield the policies that numbers declare on some grids, and what may be revealed of them."""
    for domain, grids in _GRADED:
        declared = _domain(domain.low, domain.high, domain.step, domain.clamp) | {
            "sensitive": [list(map(double, region)) for region in domain.sensitive],
            "resolution": [list(map(double, part)) for part in domain.resolution],
            "cap": double(domain.cap),
        }
        for grid in grids:
            for epsilon in (1.0, 0.3):
                policy = domain.policy(epsilon, grid)
                assert policy is not None
                yield declared | {
                    "ordinary": [list(map(double, each)) for each in domain.ordinary_ranges],
                    "grid": grid,
                    "epsilon": double(epsilon),
                    "policy": [integer(each) for each in policy.integers],
                }


_BINS = (  # low, high, bins, clamp
    (0.0, 1440.0, 48, False),
    (0.0, 1.0, 10, True),
    (0.1, 0.7, 3, False),
    (-1e308, 7e307, 256, True),
    (0.0, 1e-320, 7, False),
    (1e16, 1e16 + 512, 256, False),
    (-40.0, 60.0, 2, True),
)

_EDGES = (  # edges, clamp
    ((0.0, 1.0, 10.0, 100.0), False),
    ((-1e6, -1.0, -0.1, 0.1, 1.0, 1e6), True),
    ((0.0, 5e-324, 1e308), False),
    (tuple(math.ldexp(1.0, power) for power in range(-128, 129)), True),
)

_NO_EDGES = (
    (0.0, 1.0),
    (0.0, 1.0, 1.0),
    (0.0, 2.0, 1.0, 3.0),
    (0.0, math.nan, 1.0),
    (0.0, 1.0, math.inf),
    tuple(float(edge) for edge in range(258)),
)

_NO_BINS = (
    (0.0, 1.0, 1, False),
    (0.0, 1.0, 257, False),
    (0.0, 5e-324, 2, False),
    (1e16, 1e16 + 4, 3, False),
    (1.0, 1.0, 4, False),
    (-1.7e308, 1.7e308, 4, False),
)


def _bins() -> dict[str, list[Case]]:
    """Return the parts of numbers.json on bins."""
    seeds = Seeds("bins")
    found = []
    domains = [Binned(low, high, clamp, count) for low, high, count, clamp in _BINS]
    domains += [Binned.between(edges, clamp) for edges, clamp in _EDGES]
    for domain in domains:
        low, high, count, clamp = domain.low, domain.high, domain.count, domain.clamp
        edges = [domain.points.edge(index) for index in (1, count // 2, count - 1)]
        answers = [*_answers(Numeric(low, high, clamp)), *edges]
        for edge in edges:
            width = (high - low) / count
            answers += [math.nextafter(edge, low), math.nextafter(edge, high)]
            answers += [edge - 1.5e-6 * width, edge - 0.5e-6 * width]
        listed: list[list[Any]] = []
        for answer in answers:
            try:
                listed.append([double(answer), domain.encode(answer)])
            except InvalidInput:
                listed.append([double(answer), None])
        drawn = []
        for _ in range(4):
            seed = seeds.next()
            coins = Script(seed)
            drawn.append([seed.hex(), domain.anything(coins), coins.used])
        case = _binned(low, high, count, clamp, domain.edges)
        found.append(case | {"answers": listed, "anything": drawn})
    refused = []
    for low, high, count, clamp in _NO_BINS:
        try:
            Binned(low, high, clamp, count)
        except InvalidInput:
            refused.append(_binned(low, high, count, clamp))
            continue
        raise AssertionError(f"{low}, {high} has {count} bins")
    for given in _NO_EDGES:
        try:
            Binned.between(given, False)
        except InvalidInput:
            refused.append(_binned(given[0], given[-1], len(given) - 1, False, given))
            continue
        raise AssertionError(f"{given} are edges")
    return {"binned": found, "refused_bins": refused}


def _binned(low: float, high: float, bins: int, clamp: bool, edges: Sequence[float] = ()) -> Case:
    listed = [double(edge) for edge in edges]
    case = {"low": double(low), "high": double(high), "bins": bins, "clamp": clamp}
    return case | {"edges": listed}


def _domain(low: float, high: float, step: float, clamp: bool) -> Case:
    return {"low": double(low), "high": double(high), "step": double(step), "clamp": clamp}


def arcs() -> dict[str, list[Case]]:
    """Return arcs.json."""
    third = ONE // 3
    levels = []
    for chances in (
        (third, third, ONE - 2 * third),
        (ONE // 2, ONE // 2),
        (1, ONE - 1),
        (ONE, ONE // 4, ONE - ONE // 4),
        (ONE // 4 * 3, ONE // 4 * 3, ONE // 2, ONE),
        (ONE - 1, ONE - 1, 2),
        (ONE // 5,) * 4 + (ONE - 4 * (ONE // 5),),
    ):
        budget = Budget((1.0,) * len(chances), chances)
        edges = {start + by for start in budget._starts for by in (-1, 0, 1)}
        edges |= {
            start + chance + by
            for start, chance in zip(budget._starts, chances, strict=True)
            for by in (-1, 0)
        }
        coins = Script(b"arcs")
        words = sorted({edge % ONE for edge in edges} | {0, ONE - 1}) + coins.words(6).tolist()
        draws = []
        for word in words:
            drawn = budget.draw(Script(stream=int(word).to_bytes(8, "little")))
            draws.append([integer(word), list(drawn)])
        levels.append({"chances": [integer(c % ONE) for c in chances], "draws": draws})
    return {"levels": levels}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def _at(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND


def views() -> dict[str, list[Case]]:
    """Return views.json."""
    seeds = Seeds("views")
    found = []
    for sizes in ((2, 2), (2, 3), (3, 2), (2, 3, 5), (7, 1000, 2), (64, 64)):
        names = tuple(f"a{place}" for place in range(len(sizes)))
        view = View(names, sizes)
        parts = [Categorical(tuple(map(str, range(size)))) for size in sizes]
        answers: list[list[Any]] = []
        edges = [[0] * len(sizes), [size - 1 for size in sizes]]
        for categories in [*edges, *([(5 + 3 * n) % size for size in sizes] for n in range(3))]:
            for missing in range(1 << len(sizes)) if len(sizes) < 3 else (0, 1, 5, 7):
                given = [None if missing >> j & 1 else v for j, v in enumerate(categories)]
                seed = seeds.next()
                coins = Script(seed)
                drawn = [
                    domain.anything(coins) if value is None else value
                    for domain, value in zip(parts, given, strict=True)
                ]
                answers.append([given, seed.hex(), view.category(drawn), coins.used])
        found.append({"sizes": list(sizes), "answers": answers})
    return {"views": found}


def periods() -> dict[str, list[Any]]:
    """Return periods.json."""
    moments = [
        datetime(2026, 7, 4, 13, 45, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(2024, 2, 29, 12, tzinfo=UTC),
        datetime(2000, 2, 29, tzinfo=UTC),
        datetime(2100, 2, 28, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(2100, 3, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(9998, 12, 31, tzinfo=UTC),
    ]
    # The days around the ends of years, which weeks of ISO 8601 cut: 53 of them in 2020 and 2026.
    for year in (*range(2018, 2034), 2099, 2100, 2101):
        first = datetime(year, 1, 1, tzinfo=UTC)
        moments += [first + timedelta(days=day) for day in (-3, -1, 0, 2, 3)]
        moments += [first - _MILLISECOND, first + timedelta(days=3, hours=23, minutes=59)]
    instants: list[Any] = []
    named: dict[tuple[str, str], None] = {}
    for unit in ("", "PT1H", "P1D", "P1W", "P1M", "P1Y"):
        for moment in moments[: None if unit else 1]:
            name = period.label(unit, moment)
            instants.append([unit, _at(moment), name])
            named[unit, name] = None
    found: list[Any] = []
    for unit, name in named:
        if unit:
            ends = [_at(period.start(unit, name)), _at(period.end(unit, name))]
        else:
            ends = [None, None]  # type: ignore[list-item]
        found.append([unit, name, *ends])
    refused = [
        *(("", name) for name in ("", "twice", "2026")),
        *(("PT1H", name) for name in ("2026-07-04", "2026-07-04T24", "2026-07-04T1", "once")),
        *(("P1D", name) for name in ("2026-7-4", "2026-02-29", "2026-07-04T13", "2026-00-10")),
        *(("P1W", name) for name in ("2025-W53", "2026-W00", "2026-W54", "2026-W7", "2026-27")),
        *(("P1M", name) for name in ("2026-13", "2026-7", "2026-07-01", "26-07")),
        *(("P1Y", name) for name in ("26", "2026-01", "02026", "year")),
    ]
    for unit, name in refused:
        try:
            period.start(unit, name)
        except InvalidInput:
            continue
        raise AssertionError(f"{name} is a period of {unit}")
    return {"instants": instants, "periods": found, "refused": [list(each) for each in refused]}


def batches() -> dict[str, list[Case]]:
    """Return batches.json."""
    coins = Script(b"batches")
    found = []

    def code(width: int) -> bytes:
        return bytes(coins._bytes(width))

    one = [("smokes", "strict", 1)]
    both = [*one, ("age", "strict", 2)]
    loose = [("smokes", "open", 1), ("age", "open", 2)]
    mixed = [("smokes", "open", 1), ("age", "strict", 2)]
    accents = [("\u00e9", "\U0001f600", 1), ("\uffee", "b", 1), ("a", "\uffee", 1)]
    chosen = [[("smokes", "strict", 1, name)] for name in ("mine", "", "work", "mine")]
    told: dict[int, Case] = {
        12: {"panel": 7, "properties": ["ios", ""]},
        13: {"properties": ["", "", "\u00e9"]},
        14: {"panel": 64},
    }
    for number, rows in enumerate(
        (
            [one],
            [both],
            [both] * 2,
            [both, one],
            [one, both, loose, one],
            [both, loose, mixed] * 3,
            [one] * 8 + [both] + [one] * 8,
            [[("wide", "strict", 300)]] * 3,
            [accents, accents[:1], accents[1:]],
            [one] * 100,
            chosen,
            [*chosen, [*chosen[0], ("age", "strict", 2)]],
            [both, one],
            [one],
            [one] * 2,
        )
    ):
        public = told.get(number, {})
        reports = []
        shown = []
        for row in rows:
            report = collector_pb2.Batch(
                survey="health", revision=bytes(range(32)), period="2026-W27", rows=1, **public
            )
            for attribute, level, width, *maps in row:
                by_map = maps[0] if maps else ""
                report.columns.add(attribute=attribute, level=level, codes=code(width), map=by_map)
            reports.append(report)
            shown.append(
                [
                    {"attribute": c.attribute, "level": c.level, "code": c.codes.hex()}
                    | ({"map": c.map} if c.map else {})
                    for c in report.columns
                ]
            )
        batch = together(reports)
        batch.id = code(16)
        assert sum(int(unpack(c.present, batch.rows).sum()) for c in batch.columns) == sum(
            map(len, rows)
        )
        found.append(
            {
                "survey": batch.survey,
                "revision": batch.revision.hex(),
                "period": batch.period,
                "id": batch.id.hex(),
                "rows": shown,
                **public,
                "bytes": batch.SerializeToString(deterministic=True).hex(),
            }
        )
    return {"batches": found}
