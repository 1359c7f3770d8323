"""Vectors of records that are split between two servers: noise, shares, plans, what is sealed."""

import hashlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from hearsay.plans.plan import parse
from hearsay.plans.two_servers import UNIT
from hearsay.sealed import hpke as library
from hearsay.sealed import shares
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import InvalidInput
from ldp.two_servers import account
from ldp.two_servers import shares as additive
from ldp.two_servers.records import calibrate
from ldp.two_servers.skellam import MAX_VARIANCE, _limits, skellam
from vectors import hpke
from vectors.notation import Script, Seeds, double, integer

Case = dict[str, Any]
Change = Callable[[plan_pb2.Plan], object]

_PRIVATES = {role: hashlib.sha256(role.encode()).digest() for role in ("leader", "helper")}
_EPHEMERALS = {role: hashlib.sha256(f"to {role}".encode()).digest() for role in _PRIVATES}
_PUBLICS = {
    role: library.private_key(private).public_key().public_bytes_raw()
    for role, private in _PRIVATES.items()
}
_PERIOD = "2026-08-03"


def split() -> dict[str, list[Case]]:
    """Return split.json."""
    return {
        "noise": [*_noise(), *_continued()],
        "plans": [_judged(*each) for each in _plans()],
        "records": list(_records()),
    }


# --- noise --------------------------------------------------------------------------------------


def _noise() -> Iterator[Case]:
    seeds = Seeds("split.json: noise")
    for variance, count in (
        (Fraction(1, UNIT), 40),
        (Fraction(1, 2), 30),
        (Fraction(3), 30),
        (Fraction(251_659, UNIT), 30),
        (Fraction(12_345_679, UNIT), 20),
    ):
        seed = seeds.next()
        coins = Script(seed)
        values = skellam(variance, count, coins).tolist()
        yield {
            "variance": _shown(variance),
            "seed": seed.hex(),
            "values": values,
            "used": coins.used,
        }


def _continued() -> Iterator[Case]:
    """Yield draws whose first word is on the limit between two values: more words decide."""
    most = (1 << 64) - 1
    for variance in (Fraction(3), Fraction(251_659, UNIT)):
        first, limits = _limits(variance / 2)
        mode = int(variance / 2) - first
        between = (int(limits[mode]) + int(limits[mode + 1])) // 2
        for on in (0, mode, mode + 1, len(limits) - 1):
            for more in ((0, 0), (1 << 63,), (most, most)):
                words = [int(limits[on]), between, *more]
                stream = b"".join(word.to_bytes(8, "little") for word in words)
                coins = Script(stream=stream)
                try:
                    values = skellam(variance, 1, coins).tolist()
                except EOFError:
                    continue  # it needs more words than these
                yield {
                    "variance": _shown(variance),
                    "stream": stream[: coins.used].hex(),
                    "values": values,
                    "used": coins.used,
                }


def _shown(number: Fraction) -> list[str]:
    return [integer(number.numerator), integer(number.denominator)]


# --- plans --------------------------------------------------------------------------------------


def _plan(
    epsilon: float = 1.0,
    change: Change = lambda plan: None,
    *,
    unit: str = "P1D",
    fewer: int = 0,
    **fields: Any,
) -> bytes:
    """Return a plan with the least noise that keeps epsilon, or with some steps less."""
    survey = survey_pb2.Survey(name="commute", period=unit, levels={"standard": epsilon})
    way = survey.attributes.add(name="way")
    way.categorical.values.extend(["bus", "train", "car"])
    minutes = survey.attributes.add(name="minutes")
    minutes.numeric.low, minutes.numeric.high, minutes.numeric.clamp = 0.0, 120.0, True
    two = survey.two_servers
    two.least, two.colluding, two.delta, two.scale, two.bits = 1000, 100, 1e-6, 64, 32
    two.leader_key, two.helper_key = _PUBLICS["leader"], _PUBLICS["helper"]
    two.helper = "Example Foundation"
    for name, value in fields.items():
        setattr(two, name, value)
    if "variance" not in fields:
        distances = 4 * two.scale, 4 * two.scale**2
        rho = account.largest_rho(epsilon, two.delta)
        kept = calibrate(distances, rho, two.least, two.colluding, UNIT)
        two.variance = int(kept * UNIT) - fewer
    plan = plan_pb2.Plan(survey=survey)
    plan.levels.add(name="standard", epsilon=epsilon)
    change(plan)
    return plan.SerializeToString(deterministic=True)


def _plans() -> Iterator[tuple[str, bytes, bool]]:
    """Yield notes, plans, and whether they are accepted."""
    yield "two servers", _plan(), True
    for epsilon, fields in (
        (1.0, {}),
        (0.1, {}),
        (8.0, {}),
        (32.0, {}),
        (1.0, {"delta": 1e-4}),
        (1.0, {"delta": 1e-50}),
        (1.0, {"least": 65_536, "colluding": 0}),
        (1.0, {"least": 100, "colluding": 99}),
        (2.0, {"scale": 1, "bits": 16}),
        (0.5, {"scale": 65_536, "bits": 64, "least": 60_000}),
    ):
        of = ", ".join(f"{name} {value:g}" for name, value in fields.items()) or "as usual"
        yield f"epsilon {epsilon:g}, {of}: the least noise", _plan(epsilon, **fields), True
        less = _plan(epsilon, fewer=1, **fields)
        yield f"epsilon {epsilon:g}, {of}: a little less noise", less, False
    most = MAX_VARIANCE * UNIT
    yield "the most noise", _plan(variance=most), True
    yield "more noise", _plan(variance=most + 1), False
    yield "no noise", _plan(variance=0), False
    yield "one period", _plan(unit=""), True
    yield "no leader's key: it is not registered", _plan(leader_key=b""), True
    yield "no helper's key", _plan(helper_key=b""), False
    yield "a leader's key of 31 bytes", _plan(leader_key=bytes(31)), False
    yield "a helper's key of 33 bytes", _plan(helper_key=bytes(33)), False
    yield "one key of both", _plan(leader_key=_PUBLICS["helper"]), False
    yield "no name of the helper", _plan(helper=""), True
    yield "a name with a line's end", _plan(helper="Example\nFoundation"), False
    yield "99 records", _plan(least=99, colluding=0), False
    yield "65,537 records", _plan(least=65_537), False
    yield "all collude", _plan(variance=1 << 20, colluding=1000), False
    yield "no delta", _plan(variance=1 << 30, delta=0.0), False
    yield "a delta below the least", _plan(variance=1 << 30, delta=9e-51), False
    yield "a delta above the most", _plan(variance=1 << 30, delta=1.1e-4), False
    yield "a delta that is no number", _plan(variance=1 << 30, delta=float("nan")), False
    yield "8 bits", _plan(bits=8), False
    yield "no bits", _plan(bits=0), False
    yield "no scale", _plan(variance=1 << 30, scale=0), False
    yield "a scale above the most", _plan(scale=65_537), False
    for note, change in _changes():
        yield note, _plan(change=change), False
    infinite = _plan(change=lambda plan: _level(plan, float("inf")))
    yield "an epsilon without end", infinite, False
    yield "an epsilon of 33", _plan(change=lambda plan: _level(plan, 33.0)), False
    yield "a negative epsilon", _plan(change=lambda plan: _level(plan, -1.0)), False


def _level(plan: plan_pb2.Plan, epsilon: float) -> None:
    plan.survey.levels["standard"] = plan.levels[0].epsilon = epsilon


def _changes() -> Iterator[tuple[str, Change]]:
    def of_survey(**fields: Any) -> Change:
        return lambda plan: plan.survey.MergeFrom(survey_pb2.Survey(**fields))

    def of_way(plan: plan_pb2.Plan) -> survey_pb2.Attribute:
        return plan.survey.attributes[0]

    def of_minutes(plan: plan_pb2.Plan) -> survey_pb2.Attribute:
        return plan.survey.attributes[1]

    yield "a mechanism", lambda plan: plan.levels[0].mechanisms.add(name="krr", epsilon=1.0)
    yield "a chance", lambda plan: plan.levels[0].chances.append(0)
    yield "two levels", _second
    yield "no level", lambda plan: plan.ClearField("levels")
    yield "panels", of_survey(panels=4)
    yield "a property", lambda plan: plan.survey.properties.add(name="told", values=["a", "b"])
    yield "a view", lambda plan: plan.survey.views.add(attributes=["way", "minutes"])
    yield "a sampled budget", of_survey(budget="sample")
    yield "levels that differ little", of_survey(levels_differ_at_most=0.5)
    yield "sealing, too", lambda plan: plan.survey.sealing.SetInParent()
    yield "a weight", lambda plan: setattr(of_way(plan), "weight", 1.0)
    yield "the name of a mechanism", lambda plan: setattr(of_way(plan), "mechanism", "krr")
    yield "a memo", lambda plan: setattr(of_way(plan), "memo", 1.0)
    yield "a cap", lambda plan: setattr(of_way(plan), "cap", 9.0)
    yield "a sensitive value", lambda plan: of_way(plan).categorical.sensitive.append("car")
    yield (
        "a map",
        lambda plan: of_way(plan).categorical.maps["mine"].sensitive.append("car"),
    )
    yield "a step", lambda plan: setattr(of_minutes(plan).numeric, "step", 1.0)
    yield "bins", lambda plan: setattr(of_minutes(plan).numeric, "bins", 4)
    yield "graded numbers", lambda plan: setattr(of_minutes(plan).numeric, "cap", 4.0)
    yield (
        "a set",
        lambda plan: of_way(plan).set.MergeFrom(survey_pb2.Set(values=["a", "b"], at_most=1)),
    )


def _second(plan: plan_pb2.Plan) -> None:
    plan.survey.levels["strict"] = 2.0
    plan.levels.add(name="strict", epsilon=2.0)


def _judged(note: str, data: bytes, accepted: bool) -> Case:
    case: Case = {"note": note, "plan": data.hex(), "accepted": accepted}
    try:
        plan = parse(data)
    except InvalidInput:
        assert not accepted, note
        return case
    assert accepted and plan.two_servers is not None, note
    return case | {"recorded": list(plan.recorded), "cells": plan.two_servers.layout.dim}


# --- records ------------------------------------------------------------------------------------


def _records() -> Iterator[Case]:
    seeds = Seeds("split.json: records")
    plans = (
        _plan(),
        _plan(2.0, scale=1, bits=16),
        _plan(0.5, scale=4096, bits=64, least=60_000),
    )
    answers: tuple[dict[str, Any], ...] = (
        {"way": 2, "minutes": 0.3},
        {"way": 0, "minutes": -1.0},
        {"minutes": 1.0, "way": 1},
        {"way": 1},
        {"minutes": 0.1},
        {"way": None, "minutes": -0.7},
        {},
    )
    for data in plans:
        for values in answers:
            yield _record(data, values, seeds.next())


def _record(data: bytes, values: dict[str, Any], seed: bytes) -> Case:
    plan = parse(data)
    two = shares.of(plan)
    coins = Script(seed)
    cells = two.layout.randomize(values, two.variance, coins)
    a, b = additive.split(cells, two.bits, coins)
    id_ = hashlib.sha256(seed).digest()[:16]
    by = shares.splitting(plan)
    infos = {role: shares.info(role, by, _PERIOD, id_) for role in ("leader", "helper")}
    code = b"".join(
        hpke.sealed(share, _PUBLICS[role], infos[role], _EPHEMERALS[role])
        for role, share in (("leader", a), ("helper", b))
    )
    sealed = {"leader": code[: shares.LEADER_BYTES], "helper": code[shares.LEADER_BYTES :]}
    for role, share in (("leader", a), ("helper", b)):
        own = library.private_key(_PRIVATES[role])
        assert shares.opened(by, role, _PERIOD, id_, sealed[role], own) == share
    return {
        "plan": data.hex(),
        "values": {
            name: double(value) if isinstance(value, float) else value
            for name, value in values.items()
        },
        "seed": seed.hex(),
        "cells": cells.tolist(),
        "share_a": a.hex(),
        "share_b": b.hex(),
        "used": coins.used,
        "period": _PERIOD,
        "id": id_.hex(),
        "privates": {role: private.hex() for role, private in _PRIVATES.items()},
        "ephemerals": {role: private.hex() for role, private in _EPHEMERALS.items()},
        "infos": {role: info.hex() for role, info in infos.items()},
        "code": code.hex(),
    }
