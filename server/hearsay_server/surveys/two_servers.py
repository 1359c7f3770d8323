"""Resolve a survey whose records are split between two servers, and predict its errors."""

import math

import hearsay.plans.plan
from hearsay.plans import two_servers
from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import MOST, UNIT
from hearsay.v1 import plan_pb2, survey_pb2
from hearsay_server.surveys import catalogue
from ldp import KRR, InvalidInput
from ldp.two_servers import account
from ldp.two_servers.records import Number, calibrate


def resolved(survey: survey_pb2.Survey) -> bytes:
    """Return the plan of a survey that declares two servers, without the leader's key.

    The noise of a device is the least, in steps of 1 / 1024 of variance, with which the sums keep
    the level's epsilon at `delta`. Raises `InvalidInput` that names the place for a survey that
    cannot be.
    """
    if survey.two_servers.variance or survey.two_servers.leader_key:
        raise InvalidInput(
            "two_servers: the server fills in variance and leader_key: leave them out"
        )
    if survey.HasField("page"):
        raise InvalidInput("page: a survey with [two_servers] has no page yet: leave it out")
    if len(survey.levels) != 1:
        raise InvalidInput(
            "levels: with [two_servers] all devices add the same noise, so there is one level, got "
            f"{len(survey.levels)}"
        )
    ((name, epsilon),) = survey.levels.items()
    plan = plan_pb2.Plan(survey=survey, levels=[plan_pb2.Level(name=name, epsilon=epsilon)])
    wire = plan.survey.two_servers
    wire.least = wire.least or two_servers.DEFAULT_LEAST
    wire.scale = wire.scale or two_servers.DEFAULT_SCALE
    wire.bits = wire.bits or two_servers.DEFAULT_BITS
    wire.variance = 1
    attributes = {
        each.name: hearsay.plans.plan.attribute(each, survey.period) for each in survey.attributes
    }
    two = two_servers.two_servers_of(plan.survey, attributes)  # refused here, before calibrating
    assert two is not None
    rho = account.largest_rho(epsilon, two.delta)
    variance = calibrate(two.layout.distances, rho, two.least, two.colluding, UNIT)
    wire.variance = int(variance * UNIT)
    needed = two.layout.least_bits(MOST, variance)
    if two.bits < needed:
        raise InvalidInput(
            f"two_servers: sums of {MOST:,} records need bits = {needed}, got {two.bits}"
        )
    data: bytes = plan.SerializeToString(deterministic=True)
    hearsay.plans.plan.parse(data)
    return data


def errors(plan: Plan, epsilon: float, users: int) -> dict[str, tuple[float, float]]:
    """Return by attribute the standard errors of this survey, and of a local one."""
    two = plan.two_servers
    assert two is not None
    noise = float(two.variance) / (users * two.layout.scale**2)
    share = epsilon / len(plan.attributes)
    found = {}
    for block, attribute in zip(two.layout.blocks, plan.attributes.values(), strict=True):
        if isinstance(block, Number):
            units = attribute.domain.units
            local = catalogue.numeric("auto", share, 0)
            mine, theirs = 2 * noise + 1 / (3 * users), local.largest_report_variance + 1 / 3
            found[block.name] = units * math.sqrt(mine), units * math.sqrt(theirs / users)
        else:
            k = block.size
            spread = 1 / k * (1 - 1 / k) / users
            own = noise * (1 - 2 / k + k / k**2) + spread
            krr = KRR(k, share).variance([1 / k] * k, users)
            found[block.name] = math.sqrt(own), math.sqrt(float(krr[0]))
    return found
