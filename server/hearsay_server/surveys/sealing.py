"""Declare how a survey's records are sealed, and make its keys when it is registered."""

from typing import NamedTuple

import hearsay.plans.plan
from hearsay.plans import sealing
from hearsay.plans.plan import Plan
from hearsay.sealed import hpke
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import InvalidInput

_DAY = 24 * 3600


class Registered(NamedTuple):
    """A plan with its keys, and their private halves in the same order."""

    plan: bytes
    privates: tuple[bytes, ...]


def declared(asked: survey_pb2.Sealing, plan: plan_pb2.Plan, parsed: Plan) -> bytes:
    """Return a plan with what a survey declares of sealing, and the size that its records need.

    `parsed` is the plan without. Keys are made by `with_keys`. Raises `InvalidInput` where the
    survey names a size or keys, and where the threshold, or the number or age of keys, cannot be.
    """
    if asked.size or asked.keys:
        raise InvalidInput("sealing: the server fills in size and keys: leave them out")
    survey = plan.survey
    survey.sealing.least = asked.least or sealing.LEAST
    survey.sealing.rotate_days = asked.rotate_days or sealing.DEFAULT_DAYS
    survey.sealing.key_count = (asked.key_count or sealing.DEFAULT_KEYS) if survey.period else 1
    survey.sealing.size = sealing.least_size(
        survey, parsed.questions, parsed.levels.values(), parsed.properties
    )
    data: bytes = plan.SerializeToString(deterministic=True)
    hearsay.plans.plan.parse(data)
    return data


def with_keys(plan: bytes, now: int) -> Registered:
    """Return a plan with new keys: the first for now, in seconds since 1970, each further one
    `rotate_days` later; with two servers the one that leads has one. Another plan is returned as it
    is."""
    message = hearsay.plans.plan.message(plan)
    if message.survey.HasField("two_servers"):
        private, message.survey.two_servers.leader_key = hpke.new_pair()
        return Registered(_checked(message), (private,))
    if not message.survey.HasField("sealing"):
        return Registered(plan, ())
    wire = message.survey.sealing
    privates = []
    for place in range(wire.key_count):
        private, public = hpke.new_pair()
        wire.keys.add(public=public, since=now + place * wire.rotate_days * _DAY)
        privates.append(private)
    return Registered(_checked(message), tuple(privates))


def without_keys(plan: bytes) -> bytes:
    """Return a plan as it was before it was registered: two registrations of one survey are alike
    but for their keys."""
    message = hearsay.plans.plan.message(plan)
    if message.survey.HasField("sealing"):
        message.survey.sealing.ClearField("keys")
    if message.survey.HasField("two_servers"):
        message.survey.two_servers.ClearField("leader_key")
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _checked(message: plan_pb2.Plan) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    hearsay.plans.plan.parse(data)
    return data
