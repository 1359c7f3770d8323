"""What a plan says of two servers: the layout of a record, the noise, and the servers' keys."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from hearsay.plans.attributes import Attribute
from hearsay.plans.kinds import ByKind, Categorical, Kind, Numeric
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import InvalidInput
from ldp.two_servers import account, shares, skellam
from ldp.two_servers.records import Choice, Layout, Number

LEAST = 100
"""The least records that are summed together: fewer need noise that is hardly better than local."""

DEFAULT_LEAST, DEFAULT_SCALE, DEFAULT_BITS = 1000, 64, 32

MOST = 1 << 16
"""The most records of one sum, and so the most that `least` may be."""

MOST_CELLS = 1 << 16
"""The most cells of a record."""

LEAST_DELTA, MOST_DELTA = 1e-50, 1e-4

USUAL_DELTA = 1e-6
"""The most delta that an app accepts which names neither a delta nor the exact plan."""

UNIT = 1 << 10
"""Variances are multiples of 1 / UNIT."""

KEY_BYTES = 32


def helper_key_of(text: str | None) -> bytes:
    """Return a helper's public key, b"" for none; raise `InvalidInput` for one that is none."""
    if text is None:
        return b""
    if not isinstance(text, str) or not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise InvalidInput(
            "helper_key must be the 64 hexadecimal digits that `hearsay helper key` prints, got "
            f"{text!r}"
        )
    return bytes.fromhex(text)


@dataclass(frozen=True)
class Splitting:
    """By what a survey's records, or a training's updates, are split and summed.

    `name` and `revision` are the survey's or the training's. `dim` numbers modulo 2**bits are
    split, and those of at least `least` people are summed. The keys are X25519 public keys; the
    leader's is empty before the survey or the training is registered.
    """

    name: str
    revision: bytes
    leader_key: bytes
    helper_key: bytes
    least: int
    dim: int
    bits: int

    @property
    def rest_bytes(self) -> int:
        """The bytes of share B."""
        return self.dim * self.bits // 8


def check_keys(leader: bytes, helper: bytes) -> None:
    """Raise `InvalidInput` unless these can be the keys of two servers; the leader's may lack."""
    for name, key in (("leader_key", leader), ("helper_key", helper)):
        if len(key) != KEY_BYTES and (key or name == "helper_key"):
            raise InvalidInput(
                f"two_servers: {name} is an X25519 key of {KEY_BYTES} bytes, got {len(key)}"
            )
    if leader == helper:
        raise InvalidInput("two_servers: both servers have one key, so one of them sees all")


@dataclass(frozen=True)
class TwoServers:
    """How records are split between the server that leads and its helper.

    `variance` is that of one device's noise in each cell. `leader_key` and `helper_key` are X25519
    public keys; the leader's is empty before the survey is registered. `layout` has a block for
    each attribute, in their order: numbers are on the scale -1..1, as their domain encodes them.
    """

    least: int
    colluding: int
    delta: float
    bits: int
    variance: Fraction
    leader_key: bytes
    helper_key: bytes
    helper: str
    layout: Layout

    @property
    def rho(self) -> Fraction:
        """Return rho such that a sum's Renyi divergence at order a is at most a rho, between any
        two records of a person, for either server alone (`ldp.two_servers.account`)."""
        honest = account.honest_variance(self.variance, self.least, self.colluding)
        return account.rho(*self.layout.distances, honest)

    def exact_epsilon(self) -> float | None:
        """Return the epsilon at `delta` by the exact divergence of the noise, which is at most the
        charged one; None where it would take more than seconds (`ldp.two_servers.account`)."""
        honest = account.honest_variance(self.variance, self.least, self.colluding)
        cells, shift = 2 * len(self.layout.blocks), self.layout.scale
        return account.exact_epsilon(cells, shift, honest, self.delta)

    def splitting(self, survey: str, revision: bytes) -> Splitting:
        """Return by what the records of the survey with this plan are split."""
        keys = self.leader_key, self.helper_key
        return Splitting(survey, revision, *keys, self.least, self.layout.dim, self.bits)


def two_servers_of(
    survey: survey_pb2.Survey, attributes: Mapping[str, Attribute]
) -> TwoServers | None:
    """Return what a plan says of two servers; None where it says nothing.

    Raises `InvalidInput` where the survey declares what is not collected this way, and where a
    number is out of range or a key is none.
    """
    if not survey.HasField("two_servers"):
        return None
    wire = survey.two_servers
    _check_alone(survey)
    if not LEAST <= wire.least <= MOST:
        raise InvalidInput(f"two_servers: least must be {LEAST} to {MOST:,}, got {wire.least:,}")
    if not 0 <= wire.colluding < wire.least:
        raise InvalidInput(
            f"two_servers: colluding must be below least, {wire.least:,}, got {wire.colluding:,}"
        )
    if not LEAST_DELTA <= wire.delta <= MOST_DELTA:
        raise InvalidInput(
            f"two_servers: delta must lie in [{LEAST_DELTA:g}, {MOST_DELTA:g}], got {wire.delta}"
        )
    shares.dtype(wire.bits)
    if not 0 < wire.variance <= skellam.MAX_VARIANCE * UNIT:
        raise InvalidInput(
            f"two_servers: the noise of a device must have a variance in (0, "
            f"{skellam.MAX_VARIANCE:,}], got {wire.variance / UNIT:,}: ask for a larger epsilon or "
            "a smaller scale"
        )
    check_keys(wire.leader_key, wire.helper_key)
    layout = Layout(tuple(_block(each) for each in attributes.values()), wire.scale)
    if layout.dim > MOST_CELLS:
        raise InvalidInput(
            f"two_servers: a record has at most {MOST_CELLS:,} cells, got {layout.dim:,}"
        )
    return TwoServers(
        least=wire.least,
        colluding=wire.colluding,
        delta=wire.delta,
        bits=wire.bits,
        variance=Fraction(wire.variance, UNIT),
        leader_key=wire.leader_key,
        helper_key=wire.helper_key,
        helper=wire.helper,
        layout=layout,
    )


def check_level(two: TwoServers, levels: list[plan_pb2.Level]) -> None:
    """Raise `InvalidInput` unless there is one level, without mechanisms, whose epsilon the sums
    keep at `delta`: it is computed again from the integers of the plan."""
    if len(levels) != 1:
        raise InvalidInput(
            f"two_servers: all devices add the same noise, so there is one level, got {len(levels)}"
        )
    (level,) = levels
    if level.mechanisms or level.mapped or level.chances:
        raise InvalidInput(
            "two_servers: no answer is randomised by itself, so leave mechanisms out"
        )
    if not (math.isfinite(level.epsilon) and account.keeps(two.rho, level.epsilon, two.delta)):
        spent = account.epsilon_of(two.rho, two.delta)
        raise InvalidInput(
            f"level {level.name!r} promises epsilon {level.epsilon:g} at delta {two.delta:g}, but "
            f"the noise gives {spent:.6g}"
        )


def _block(attribute: Attribute) -> Choice | Number:
    name, domain = attribute.name, attribute.domain
    if attribute.memo or attribute.cap != math.inf:
        raise InvalidInput(f"two_servers: {name!r} can have neither memo nor cap")
    return _BLOCKS[domain](name, domain)


def _of_values(name: str, domain: Categorical) -> Choice:
    if domain.sensitive or domain.classes or domain.maps:
        raise InvalidInput(
            f"two_servers: all values of {name!r} are protected alike: leave sensitive, classes "
            "and maps out"
        )
    return Choice(name, len(domain.values))


def _of_numbers(name: str, domain: Numeric) -> Number:
    return _of_others(name, domain) if domain.is_graded or domain.step else Number(name, -1.0, 1.0)


def _of_others(name: str, domain: Kind) -> NoReturn:
    raise InvalidInput(
        f"two_servers: {name!r} must be categorical, or numeric by low, high and clamp alone"
    )


_BLOCKS: ByKind[Callable[[str, Any], Choice | Number]] = ByKind.otherwise(
    _of_others, category=_of_values, number=_of_numbers
)
"""The block of a layout that an attribute's answers are written in."""


def _check_alone(survey: survey_pb2.Survey) -> None:
    for name in ("views", "properties"):
        if getattr(survey, name):
            raise InvalidInput(f"two_servers: leave {name} out: sums are of single attributes")
    for name in ("sealing", "levels_differ_at_most"):
        if survey.HasField(name):
            raise InvalidInput(f"two_servers: leave {name} out")
    if survey.panels:
        raise InvalidInput("two_servers: leave panels out")
    if survey.budget not in ("", "split"):
        raise InvalidInput(
            f"two_servers: every record has all attributes, so budget is split, got "
            f"{survey.budget!r}"
        )
    for each in survey.attributes:
        if each.mechanism or each.HasField("weight"):
            raise InvalidInput(f"two_servers: {each.name!r} can have neither mechanism nor weight")
