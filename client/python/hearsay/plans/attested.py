"""What a plan requires of the evidence that a server gives of the code it runs."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from hearsay.v1 import survey_pb2
from ldp import InvalidInput

KINDS = ("tdx", "sgx", "nitro", "test")

DEFAULT_STATUSES, DEFAULT_AGE = ("UpToDate",), 300

_MEASUREMENT = re.compile("[0-9a-f]{64,128}")

_MOST = 256
"""Measurements of a kind that a plan may name."""

_MOST_AGE = 7 * 24 * 3600


class Policy(Protocol):
    """What an app accepts: see `hearsay.attestation.Policy`."""

    @property
    def measurements(self) -> Mapping[str, Collection[str]]: ...
    @property
    def statuses(self) -> Collection[str]: ...
    @property
    def max_age(self) -> float: ...


@dataclass(frozen=True)
class Requirement:
    """The evidence that a plan's records may leave for: measurements by kind, the statuses of
    Intel's TCB, and the age in seconds."""

    measurements: Mapping[str, frozenset[str]]
    statuses: frozenset[str]
    max_age: int

    def check(self, survey: str, policy: Policy | None) -> None:
        """Raise `InvalidInput`, naming the condition, unless an app's policy accepts nothing that
        the plan does not accept: what meets the policy then meets both."""
        if policy is None:
            raise InvalidInput(
                f"the records of {survey!r} go to an attested server alone: give attestation=, a "
                f"policy of some of the kinds {', '.join(self.measurements)} (docs/attestation.md)"
            )
        for kind, accepted in policy.measurements.items():
            if kind not in self.measurements:
                raise InvalidInput(
                    f"kind: the plan of {survey!r} takes {', '.join(self.measurements)}, and the "
                    f"policy accepts {kind}"
                )
            if other := sorted(set(accepted) - self.measurements[kind]):
                raise InvalidInput(
                    f"measurement: the policy accepts {other[0]} for {kind}, and the plan of "
                    f"{survey!r} does not"
                )
        intel = {"tdx", "sgx"} & policy.measurements.keys()
        if intel and (other := sorted(set(policy.statuses) - self.statuses)):
            raise InvalidInput(
                f"status: the policy accepts {other[0]}, and the plan of {survey!r} "
                f"{' or '.join(sorted(self.statuses))} alone"
            )
        if policy.max_age > self.max_age:
            raise InvalidInput(
                f"age: the policy takes evidence of {policy.max_age:g} s, and the plan of "
                f"{survey!r} of {self.max_age} s at most"
            )


def requirement_of(survey: survey_pb2.Survey) -> Requirement | None:
    """Return what a plan requires of its server's evidence; None where it requires nothing.

    Raises `InvalidInput` where it names no measurement, or one that is none, and for an age out of
    range.
    """
    if not survey.HasField("attestation"):
        return None
    wire = survey.attestation
    measurements = {kind: tuple(getattr(wire, kind)) for kind in KINDS if getattr(wire, kind)}
    if not measurements:
        raise InvalidInput(
            f"attestation: name the measurements of one kind at least, of {', '.join(KINDS)}"
        )
    for kind, listed in measurements.items():
        for each in listed:
            if kind != "test" and not _MEASUREMENT.fullmatch(each):
                raise InvalidInput(
                    f"attestation: a measurement of {kind} is 64 to 128 lower-case hexadecimal "
                    f"digits, got {each!r}"
                )
        if len(set(listed)) < len(listed) or len(listed) > _MOST or not all(listed):
            raise InvalidInput(
                f"attestation: measurements of {kind} must be 1 to {_MOST}, all different"
            )
    if not 1 <= wire.max_age <= _MOST_AGE:
        raise InvalidInput(
            f"attestation: max_age must be 1 to {_MOST_AGE:,} seconds, got {wire.max_age:,}"
        )
    if not wire.statuses:
        raise InvalidInput("attestation: name a status at least, such as UpToDate")
    return Requirement(
        {kind: frozenset(listed) for kind, listed in measurements.items()},
        frozenset(wire.statuses),
        wire.max_age,
    )
