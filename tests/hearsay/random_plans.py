"""Random plans, and plans that one change has spoiled or not."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from every_mechanism import CASES

from hearsay.plans.plan import mechanism_message
from hearsay.v1 import plan_pb2, survey_pb2
from hearsay_server.surveys.survey import resolve
from ldp import InvalidInput, Mechanism, PolicyUnary, SetBits, SetSelection, Waves, build
from ldp.core.exact import ONE
from ldp.core.policy import Policy
from ldp.planning import mean_design
from ldp.planning.columns import utility_optimised_rr


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
            match rng.randrange(12):  # the second and third are slow to design
                case 0 | 3:
                    numeric.step, numeric.bins = 0, rng.choice((2, 3, 8))
                case 1:
                    numeric.step = 2.5
                    numeric.sensitive.add(low=rng.choice((-2.5, 0.0)), high=rng.uniform(0, 5))
                case 2:
                    numeric.step = 2.5
                    numeric.resolution.add(upto=rng.uniform(0, 5), within=rng.uniform(0.5, 3))
                    numeric.resolution.add(upto=7.5, within=2.0)
                    numeric.cap = rng.choice((0.0, 1.0, 1.5))
                case _:
                    attribute.mechanism = rng.choice(
                        ("", "onebit", "piecewise", "hybrid", "laplace", "square_wave")
                    )
            continue
        if rng.random() < 0.25:
            _ask_several(attribute, rng)
            continue
        k = rng.randint(2, 30)
        attribute.categorical.values.extend(f"v{i}" for i in range(k))
        match rng.randrange(6):
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
            case 3:
                for name in rng.sample(("mine", "mine2", "m2", "m10"), rng.randint(1, 4)):
                    some = rng.sample(attribute.categorical.values, rng.randint(1, min(4, k)))
                    attribute.categorical.maps[name].sensitive.extend(some)
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
    if rng.random() < 0.4:
        _add_views(survey, rng)
    if rng.random() < 0.3:
        survey.panels = rng.choice((0, 1, 2, 16, 64, 65))
        for position in range(rng.randint(0, 3)):
            name = rng.choice((f"p{position}", f"p{position}", "level", "Wer"))
            survey.properties.add(name=name, title="Ort", values=["a", "b", "é"][position:])
    return survey


def _ask_several(attribute: survey_pb2.Attribute, rng: random.Random) -> None:
    """Make an attribute's domain a set of items, ratings, or strings."""
    if rng.random() < 0.3:
        letters = rng.sample("abcdefghijklmnopqrstuvwxyzßé'", rng.randint(2, 29))
        attribute.strings.alphabet, attribute.strings.longest = "".join(letters), rng.randint(1, 12)
        if rng.random() < 0.5:
            attribute.strings.candidates.extend(letters)
        return
    k = rng.randint(1, 9)
    names, most = [f"v{i}" for i in range(k)], rng.choice((0, 1, k))
    if rng.random() < 0.5:
        attribute.set.values.extend(names)
        attribute.set.at_most, attribute.set.clamp = most, rng.random() < 0.3
        attribute.mechanism = rng.choice(("", "set_selection", "set_bits"))
    else:
        attribute.ratings.keys.extend(names)
        attribute.ratings.low, attribute.ratings.high = 1.0, 5.0
        attribute.ratings.at_most, attribute.ratings.clamp = most, rng.random() < 0.3


def _add_views(survey: survey_pb2.Survey, rng: random.Random) -> None:
    """Let some attributes be asked together, if that can be."""
    names = [
        each.name
        for each in survey.attributes
        if each.HasField("categorical") or (each.HasField("numeric") and each.numeric.bins)
    ]
    pairs = {tuple(rng.sample(names, 2)) for _ in range(rng.randint(1, 3)) if len(names) > 1}
    for pair in sorted({tuple(sorted(pair)): pair for pair in pairs}.values()):
        survey.views.add(attributes=pair)


def plans(rng: random.Random) -> Iterator[bytes]:
    while True:
        try:
            yield resolve(random_survey(rng))
        except InvalidInput:
            continue


def _exchange(plan: plan_pb2.Plan, rng: random.Random) -> None:
    """Give questions each other's mechanisms, or ones of another kind and of their own size."""
    if rng.random() < 0.3:
        places = rng.choices(range(len(plan.levels[0].mechanisms)), k=2)
        for level in plan.levels:
            first, second = (level.mechanisms[place] for place in places)
            kept = plan_pb2.Mechanism.FromString(first.SerializeToString())
            first.CopyFrom(second)
            second.CopyFrom(kept)
        return
    make = rng.choice(_KINDS)
    place = rng.randrange(len(plan.levels[0].mechanisms))
    mapped = rng.random() < 0.2
    for level in plan.levels:
        wires = level.mapped if mapped and level.mapped else level.mechanisms
        wire = wires[min(place, len(wires) - 1)]
        own = build(wire.name, wire.epsilon, {p.name: tuple(p.values) for p in wire.parameters})
        size = getattr(own, "k", 0) or getattr(own, "items", 0) or rng.randint(2, 12)
        with suppress(InvalidInput):
            wire.CopyFrom(mechanism_message(make(size, wire.epsilon, getattr(own, "most", 1))))


_KINDS: Sequence[Callable[[int, float, int], Mechanism]] = [
    *(
        lambda size, epsilon, _, case=case: case.make(min(size, case.largest), epsilon)
        for case in CASES.values()
    ),
    *(
        lambda size, epsilon, _, case=case: case.make(size, epsilon)
        for name, case in CASES.items()
        if name not in ("rappor", "prefix_hashing")
    ),
    lambda size, epsilon, _: replace(Waves.over(size, epsilon), sides=(1, size)),
    lambda size, epsilon, _: Waves((max(2, size // 2), 2), epsilon),
    lambda size, epsilon, _: SetBits(size, epsilon),
    lambda size, epsilon, most: SetSelection(size, epsilon, most),
    lambda size, epsilon, _: PolicyUnary.utility_optimised(size, [0], epsilon),
    lambda size, epsilon, _: utility_optimised_rr(size, [0], epsilon),
    lambda size, epsilon, _: mean_design.under(Policy.one_sided(min(size, 6), [0], epsilon)),
]
"""Mechanisms of every kind that a plan may have, by size, epsilon, and items of the largest set."""


def spoil(data: bytes, rng: random.Random) -> bytes:
    """Return a plan's bytes after one change: to a field, to an integer, to the bytes, or to
    which mechanism a question has."""
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
    if rng.random() < 0.25:
        _exchange(plan, rng)
        return plan.SerializeToString(deterministic=True)
    survey, level = plan.survey, rng.choice(plan.levels)
    attribute = rng.choice(survey.attributes)
    mechanism = rng.choice([*level.mechanisms, *level.mapped])
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
        lambda: level.mapped.append(mechanism),
        lambda: level.mapped.reverse(),
        lambda: level.mapped.__delitem__(slice(-1, None)),
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
        lambda: attribute.categorical.maps[
            rng.choice(("mine", "work", "Mine", odd))
        ].sensitive.append(rng.choice(("v0", "v1", "none"))),
        lambda: attribute.categorical.maps.pop(rng.choice(("mine", "work")), None),
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
        lambda: setattr(attribute.numeric, "bins", rng.choice((0, 1, 2, 3, 8, 9, 256, 257))),
        lambda: attribute.numeric.sensitive.add(
            low=rng.choice((-2.5, -3.0, 0.0, math.nan)), high=rng.choice((0.0, 1.0, 7.5, 8.0))
        ),
        lambda: attribute.numeric.resolution.add(
            upto=rng.choice((0.0, 7.5, 8.0, math.nan)), within=rng.choice((0.0, 1.0, math.inf, 9.0))
        ),
        lambda: setattr(
            attribute.numeric, "cap", rng.choice((0.0, -0.0, 0.5, 1.0, 2.0, 99.0, math.nan))
        ),
        lambda: attribute.set.values.append(rng.choice(("v0", "v9", "", odd))),
        lambda: setattr(attribute.set, "at_most", rng.choice((0, 1, 2, 9, 10, 2**32 - 1))),
        lambda: setattr(attribute.set, "clamp", True),
        lambda: setattr(attribute.strings, "alphabet", rng.choice(("ab", "a", "aa", "ab ", odd))),
        lambda: setattr(attribute.strings, "longest", rng.choice((0, 1, 2, 12, 13))),
        lambda: attribute.strings.candidates.append(rng.choice(("a", "ab", "z", "", odd))),
        lambda: attribute.ratings.keys.append(rng.choice(("v0", "v9", "", odd))),
        lambda: setattr(attribute.ratings, "at_most", rng.choice((0, 1, 2, 9, 10))),
        lambda: setattr(attribute.ratings, "low", rng.choice((1.0, 5.0, -math.inf, math.nan))),
        lambda: survey.views.add(attributes=rng.choices(["q0", "q1", "q2", "none"], k=2)),
        lambda: survey.views.add(attributes=["q0"]),
        lambda: survey.views.__delitem__(slice(-1, None)),
        lambda: survey.views.reverse(),
    ]
    rng.choice(changes)()
    if rng.random() < 0.1:
        with suppress(ValueError, IndexError):  # the first change may have left nothing to change
            rng.choice(changes)()
    return plan.SerializeToString(deterministic=True)
