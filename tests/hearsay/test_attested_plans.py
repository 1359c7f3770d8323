"""A plan that requires evidence of a server is refused by a client that asks for less."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from certificates import self_signed

from hearsay import MEMORY, Client, InvalidInput, Reason
from hearsay.attestation import Policy
from hearsay.plans.plan import parse
from hearsay.sending.transport import Tls
from hearsay.testing import RecordingTransport
from hearsay_server.surveys import survey as surveys

ONE, TWO, OTHER = "ab" * 48, "cd" * 48, "ef" * 48

TOML = f"""
name = "daily"
period = "P1D"
default_level = "strict"
[levels]
strict = 1.0
[attestation]
nitro = ["{ONE}", "{TWO}"]
tdx = ["{ONE}"]
max_age = 100
[[attributes]]
name = "smokes"
categorical = {{ values = ["no", "yes"] }}
"""

PLAN = surveys.resolve(surveys.from_toml(TOML, "survey"))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    self_signed(tmp_path / "server.pem", tmp_path / "server.key")
    return tmp_path / "server.pem"


def client(policy: Policy | None, certificate: Path) -> Client:
    options = {} if policy is None else {"attestation": policy, "tls": Tls(certificate)}
    return Client(
        RecordingTransport(PLAN),
        "daily",
        epsilon=1.0,
        ledger=MEMORY,
        consent=True,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (None, "go to an attested server alone: give attestation="),
        (Policy({"sgx": {ONE}}, max_age=100), "kind: the plan of 'daily' takes tdx, nitro"),
        (Policy({"nitro": {ONE, OTHER}}, max_age=100), "measurement: the policy accepts efef"),
        (
            Policy({"tdx": {ONE}}, max_age=100, statuses=("UpToDate", "SWHardeningNeeded")),
            "status: the policy accepts SWHardeningNeeded",
        ),
        (Policy({"nitro": {ONE}}, max_age=101), "age: the policy takes evidence of 101 s"),
    ],
    ids=["no policy", "kind", "measurement", "status", "age"],
)
def test_a_plan_that_requires_evidence_is_refused_without_a_policy_as_strict(
    certificate: Path, policy: Policy | None, why: str
) -> None:
    with client(policy, certificate) as device:
        device.wait_ready(5)
        assert device.status().reason is Reason.PLAN_REFUSED
        assert why in device.status().detail
        assert not device.record(smokes="yes")


def test_a_policy_that_is_as_strict_is_taken_and_nothing_leaves_without_evidence(
    certificate: Path,
) -> None:
    with client(Policy({"nitro": {TWO}}, max_age=60), certificate) as device:
        assert device.wait_ready(5)
        assert device.record(smokes="yes")
        assert not device.flush(timeout=0.5)  # the double gives no evidence
        assert "no evidence" in device.delivery.last_error
        transport = device._transport._server
        assert not transport.batches  # type: ignore[attr-defined]
        device.close(0)  # it would go on trying


def test_the_plan_says_what_it_requires() -> None:
    required = parse(PLAN).attested
    assert required is not None
    assert required.measurements == {"tdx": {ONE}, "nitro": {ONE, TWO}}
    assert (required.statuses, required.max_age) == ({"UpToDate"}, 100)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({f'"{ONE}", "{TWO}"': '"xyz"'}, "64 to 128 lower-case hexadecimal digits, got 'xyz'"),
        ({f'"{ONE}", "{TWO}"': f'"{ONE}", "{ONE}"'}, "all different"),
        ({f'nitro = ["{ONE}", "{TWO}"]': "", f'tdx = ["{ONE}"]': ""}, "of one kind at least"),
        ({"max_age = 100": "max_age = 604801"}, "max_age must be 1 to 604,800 seconds"),
        ({"[[attributes]]": "[page]\npublic = true\n[[attributes]]"}, "has no page"),
        ({"max_age": "age"}, "unknown key 'age'"),
    ],
)
def test_a_requirement_that_cannot_be_says_why(change: Mapping[str, str], why: str) -> None:
    text = TOML
    for old, new in change.items():
        text = text.replace(old, new)
    with pytest.raises(InvalidInput, match=why):
        surveys.resolve(surveys.from_toml(text, "survey"))
