"""Vectors of answers that are sets and ratings, on their way to a mechanism."""

import math
from typing import Any

from hearsay.plans.kinds import Ratings, SetOf
from ldp import InvalidInput
from vectors.notation import Script, Seeds, double, integer

Case = dict[str, Any]

_SETS = ((3, 2, False), (3, 2, True), (2, 2, False), (40, 5, True))  # values, at_most, clamp

_SCALES = (  # keys, low, high, at_most, clamp
    (2, 1.0, 5.0, 2, False),
    (3, 1.0, 5.0, 1, True),
    (1, 0.1, 0.7, 1, False),
    (30, -1e308, 7e307, 4, True),
)


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"v{place}" for place in range(count))


def sets() -> dict[str, list[Case]]:
    """Return sets.json."""
    seeds = Seeds("sets")
    found = []
    for count, most, clamp in _SETS:
        names = _names(count)
        domain = SetOf(names, most, clamp)
        answers: list[list[Any]] = []
        given = ([], [0], [count - 1, 0], list(range(min(count, 8))), [1, 1, 0, 1])
        for places in given:
            seed = seeds.next()
            coins = Script(seed)
            try:
                value = domain.encode([names[place] for place in places])
            except InvalidInput:
                answers.append([places, None, seed.hex(), 0])
                continue
            answers.append([places, list(domain.settled(value, coins)), seed.hex(), coins.used])
        anything = []
        for _ in range(6):
            seed = seeds.next()
            coins = Script(seed)
            drawn = domain.settled(domain.anything(coins), coins)
            anything.append([seed.hex(), list(drawn), coins.used])
        case = {"values": count, "at_most": most, "clamp": clamp}
        found.append(case | {"answers": answers, "anything": anything})
    return {"sets": found, "ratings": _ratings(seeds)}


def _ratings(seeds: Seeds) -> list[Case]:
    found = []
    for count, low, high, most, clamp in _SCALES:
        names = _names(count)
        domain = Ratings(names, low, high, most, clamp)
        inner = [low, high, math.nextafter(low, high), low / 3 + high * (2 / 3), (low + high) / 2]
        tables = [[], *([[0, rating]] for rating in inner), [[0, math.nan]], [[0, math.inf]]]
        tables += [[[0, math.nextafter(low, -math.inf)]], [[0, math.nextafter(high, math.inf)]]]
        tables.append([[key, inner[key % 5]] for key in reversed(range(min(count, 6)))])
        answers: list[list[Any]] = []
        for table in tables:
            seed = seeds.next()
            coins = Script(seed)
            shown = [[key, double(rating)] for key, rating in table]
            try:
                value = domain.encode({names[int(key)]: rating for key, rating in table})
            except InvalidInput:
                answers.append([shown, None, None, seed.hex(), 0])
                continue
            places = [[key, integer(threshold)] for key, threshold in value]
            settled = list(domain.settled(value, coins))
            answers.append([shown, places, settled, seed.hex(), coins.used])
        anything = []
        for _ in range(6):
            seed = seeds.next()
            coins = Script(seed)
            drawn = domain.settled(domain.anything(coins), coins)
            anything.append([seed.hex(), list(drawn), coins.used])
        case = {"keys": count, "low": double(low), "high": double(high)}
        case |= {"at_most": most, "clamp": clamp}
        found.append(case | {"answers": answers, "anything": anything})
    return found
