"""Quotes that real processors made, with the collateral of their time.

They are samples of dcap-qvl 0.7.0 (MIT). Two lie with the data sets beside the project. For the
third, of a weak processor, unpack the source package and name its folder `sample` in
HEARSAY_QUOTES. Tests whose samples are missing skip.
"""

import os
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hearsay.attestation import AttestationRefused, Condition, Evidence, Policy, dcap

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
FOLDER = Path(os.environ.get("HEARSAY_QUOTES", DATA / "tee-quotes"))
WEAK = "tdx_quote_outdated"
THEN = datetime(2025, 6, 25, tzinfo=UTC).timestamp()

pytestmark = pytest.mark.skipif(
    not (FOLDER / "tdx_quote").exists(),
    reason="there are no recorded quotes here (CONTRIBUTING.md)",
)

SIGNED = {"sgx": 432, "tdx": 632}
"""Bytes of a quote that its attestation key signs: the header and the report."""

kinds = pytest.mark.parametrize("kind", ["sgx", "tdx"])


def recorded(kind: str, name: str = "") -> Evidence:
    file = FOLDER / (name or f"{kind}_quote")
    collateral = file.with_name(f"{file.name}_collateral.json")
    return Evidence(kind, file.read_bytes(), collateral.read_bytes())


@pytest.mark.parametrize(
    ("kind", "status"), [("sgx", "ConfigurationAndSWHardeningNeeded"), ("tdx", "UpToDate")]
)
def test_a_quote_is_verified_at_its_time_and_bound_to_nothing_of_ours(
    kind: str, status: str
) -> None:
    evidence = recorded(kind)
    claims = dcap.verify(evidence, THEN)
    assert (claims.kind, claims.status, claims.debug) == (kind, status, False)
    conditions = []
    for statuses in (("UpToDate",), (status,)):
        policy = Policy({kind: {claims.measurement}}, statuses=statuses)
        with pytest.raises(AttestationRefused) as refused:
            policy.check(evidence, spki=b"key", revision=bytes(32), nonce=bytes(32), now=THEN)
        conditions.append(refused.value.condition)
    first = Condition.BINDING if status == "UpToDate" else Condition.STATUS
    assert conditions == [first, Condition.BINDING]


@kinds
@pytest.mark.parametrize("when", ["2025-06-18", "2025-07-20", "2026-11-24"])
def test_collateral_that_is_not_valid_yet_or_any_more_is_refused(kind: str, when: str) -> None:
    now = datetime.fromisoformat(f"{when}T12:00:00+00:00").timestamp()
    with pytest.raises(AttestationRefused, match=r"issue date|xpired"):
        dcap.verify(recorded(kind), now)


@kinds
def test_no_flipped_byte_changes_what_a_quote_says(kind: str) -> None:
    evidence, chance = recorded(kind), random.Random(2)
    claims, size = dcap.verify(evidence, THEN), len(evidence.document)
    places = [*chance.sample(range(SIGNED[kind]), 150), *chance.sample(range(size), 250)]
    for place in places:
        flipped = bytearray(evidence.document)
        flipped[place] ^= 1 << chance.randrange(8)
        try:
            found = dcap.verify(Evidence(kind, bytes(flipped), evidence.collateral), THEN)
        except AttestationRefused:
            continue
        # Outside of what is signed some bytes say nothing, such as ends of lines of certificates.
        assert place >= SIGNED[kind] and found == claims


@pytest.mark.skipif(
    not (FOLDER / WEAK).exists(),
    reason="HEARSAY_QUOTES names no folder with the quote of a weak processor",
)
def test_a_quote_whose_processor_is_known_to_be_weak_is_refused() -> None:
    then = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    with pytest.raises(AttestationRefused, match="evidence"):
        dcap.verify(recorded("tdx", WEAK), then)


@kinds
def test_a_quote_that_is_cut_off_is_refused(kind: str) -> None:
    evidence = recorded(kind)
    for end in (0, 47, SIGNED[kind], 1000):
        with pytest.raises(AttestationRefused, match="evidence"):
            dcap.verify(Evidence(kind, evidence.document[:end], evidence.collateral), THEN)
