"""Records are sealed and opened as protos/conformance/sealed.json says, and as nothing else."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.bindings._rust import openssl
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from vectors import hpke as reference

from hearsay import InvalidInput
from hearsay.plans.plan import parse
from hearsay.plans.sealing import Sealing
from hearsay.sealed import hpke, keys, records
from hearsay.v1 import plan_pb2, shuffler_pb2

VECTORS: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "protos" / "conformance" / "sealed.json").read_text()
)


def note(case: Mapping[str, Any]) -> str:
    return str(case["note"])


def bytes_of(case: Mapping[str, Any], name: str) -> bytes:
    return bytes.fromhex(case[name])


@pytest.mark.parametrize("case", VECTORS["hpke"], ids=note)
def test_the_suite_is_that_of_rfc_9180(case: Mapping[str, Any]) -> None:
    """The RFC's vectors have associated data, which this project never has: the package's own
    function takes it."""
    message, info, aad = (bytes_of(case, name) for name in ("message", "info", "aad"))
    private = hpke.private_key(bytes_of(case, "private"))
    sealed = bytes_of(case, "sealed")
    assert openssl.hpke._decrypt_with_aad(hpke._suite(), sealed, private, info, aad) == message
    assert len(sealed) - len(message) == hpke.OVERHEAD_BYTES
    public, ephemeral = bytes_of(case, "public"), bytes_of(case, "ephemeral")
    assert reference.sealed(message, public, info, ephemeral, aad) == sealed
    if not aad:
        assert hpke.decrypted(sealed, private, info) == message


def test_what_is_sealed_is_what_the_reference_seals_with_the_same_ephemeral_key() -> None:
    private, public = hpke.new_pair()
    sealed = hpke.encrypted(b"message", public, b"info")
    assert hpke.decrypted(sealed, hpke.private_key(private), b"info") == b"message"
    ephemeral = X25519PrivateKey.generate().private_bytes_raw()
    again = reference.sealed(b"message", public, b"info", ephemeral)
    assert hpke.decrypted(again, hpke.private_key(private), b"info") == b"message"


@pytest.mark.parametrize("case", VECTORS["plans"], ids=note)
def test_plans_with_sealing_are_accepted_and_refused(case: Mapping[str, Any]) -> None:
    data = bytes_of(case, "plan")
    if not case["accepted"]:
        with pytest.raises(InvalidInput, match="sealing"):
            parse(data)
        return
    sealing = parse(data).sealing
    assert sealing is not None
    assert sealing.size == case["size"]
    assert keys.fingerprint(sealing) == case["fingerprint"]


def test_a_period_has_the_last_key_whose_turn_came_before_it_began() -> None:
    for case in VECTORS["periods"]:
        plan = parse(bytes_of(case, "plan"))
        for period, place in case["keys"]:
            assert records.sealing_of(plan).key(plan.period, period) == place


@pytest.mark.parametrize("case", VECTORS["records"], ids=note)
def test_records_are_opened_as_the_vectors_say(case: Mapping[str, Any]) -> None:
    plan = parse(bytes_of(case, "plan"))
    record = shuffler_pb2.SealedRecord.FromString(bytes_of(case, "record"))
    private = hpke.private_key(bytes_of(case, "private"))
    content = records.opened(plan, record, private)
    assert content.SerializeToString() == bytes_of(case, "content")
    padded, info = bytes_of(case, "padded"), bytes_of(case, "info")
    assert records.pad(bytes_of(case, "content"), records.sealing_of(plan).size) == padded
    assert records.info(plan.survey, plan.revision, record.period) == info
    public = records.sealing_of(plan).publics[record.key]
    assert reference.sealed(padded, public, info, bytes_of(case, "ephemeral")) == record.sealed
    assert records.opened(plan, records.seal(plan, record.period, content), private) == content


@pytest.mark.parametrize("case", VECTORS["refused"], ids=note)
def test_no_record_is_opened_that_the_sdk_does_not_seal(case: Mapping[str, Any]) -> None:
    plan = parse(bytes_of(case, "plan"))
    record = shuffler_pb2.SealedRecord.FromString(bytes_of(case, "record"))
    with pytest.raises(InvalidInput):
        records.opened(plan, record, hpke.private_key(bytes_of(case, "private")))


def test_no_bit_of_a_sealed_record_may_change_and_no_other_key_opens_it() -> None:
    case = VECTORS["records"][0]
    plan = parse(bytes_of(case, "plan"))
    record = shuffler_pb2.SealedRecord.FromString(bytes_of(case, "record"))
    private = hpke.private_key(bytes_of(case, "private"))
    sealed = record.sealed
    for bit in range(0, 8 * len(sealed), 7):  # every byte, and each of its bits somewhere
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        record.sealed = bytes(changed)
        with pytest.raises(InvalidInput, match="cannot be opened"):
            records.opened(plan, record, private)
    record.sealed = sealed
    other = hpke.private_key(hpke.new_pair()[0])
    with pytest.raises(InvalidInput, match="cannot be opened"):
        records.opened(plan, record, other)


def test_all_sealed_records_of_a_survey_have_one_size() -> None:
    plan = parse(bytes_of(VECTORS["records"][0], "plan"))
    contents = [bytes_of(case, "content") for case in VECTORS["records"]]
    assert len({len(content) for content in contents}) > 1
    sealed = [records.seal(plan, "2026-08-03", shuffler_pb2.Sealed.FromString(c)) for c in contents]
    (size,) = {record.ByteSize() for record in sealed}
    assert {len(record.sealed) for record in sealed} == {256 + 48}
    assert len({record.sealed for record in sealed}) == len(sealed)
    assert size > 256


def test_a_record_that_does_not_fit_is_refused_before_it_is_sealed() -> None:
    assert records.unpad(records.pad(b"x" * 252, 256), 256) == b"x" * 252
    with pytest.raises(InvalidInput, match="253 bytes does not fit the survey's 256"):
        records.pad(b"x" * 253, 256)


def test_the_key_config_is_that_of_rfc_9458() -> None:
    """Section 3.1: the key's id, the KEM, the key, the length of the list of suites, one suite."""
    config = keys.key_config(7, bytes(range(32)))
    assert config.hex() == "07" + "0020" + bytes(range(32)).hex() + "0004" + "0001" + "0001"
    assert keys.list_of([config] * 2).hex().count("0029") == 2  # 41 bytes each


def test_the_fingerprint_stands_for_the_keys_and_for_their_turns() -> None:
    """Keys of other turns are another key for some period: people must see it."""
    schedule = Sealing(1000, 256, 30, 2, (bytes(32), b"\1" * 32), (-86_400, 1_764_547_200))
    turns = b"".join(
        since.to_bytes(8, "big", signed=True) + public
        for since, public in zip(schedule.since, schedule.publics, strict=True)
    )
    digest = hashlib.sha256(b"hearsay/v1/sealing\0" + turns).hexdigest()
    found = keys.fingerprint(schedule)
    assert found.replace(" ", "") == digest[:32]
    assert [len(group) for group in found.split(" ")] == [4] * 8
    later = replace(schedule, since=(-86_400, 1_764_547_201))
    assert keys.fingerprint(later) != found
    assert keys.fingerprint(replace(schedule, least=2000)) == found


def test_a_plan_without_keys_seals_nothing() -> None:
    message = plan_pb2.Plan.FromString(bytes_of(VECTORS["records"][0], "plan"))
    message.survey.sealing.ClearField("keys")
    plan = parse(message.SerializeToString(deterministic=True))
    with pytest.raises(InvalidInput, match="not registered"):
        records.check(plan)
    message.survey.ClearField("sealing")
    plain = parse(message.SerializeToString(deterministic=True))
    with pytest.raises(InvalidInput, match="are not sealed"):
        records.check(plain)


def test_a_key_with_which_everybody_could_open_records_is_refused() -> None:
    message = plan_pb2.Plan.FromString(bytes_of(VECTORS["records"][0], "plan"))
    records.check(parse(message.SerializeToString(deterministic=True)))
    for weak in (bytes(32), b"\1" + bytes(31)):  # of order 1 and 4
        message.survey.sealing.keys[2].public = weak
        with pytest.raises(InvalidInput, match=r"key 2: .* is no X25519 key"):
            records.check(parse(message.SerializeToString(deterministic=True)))


def test_without_the_package_the_error_names_the_extra() -> None:
    script = """
import sys
sys.modules["cryptography"] = None
from hearsay.sealed import hpke
try:
    hpke.new_pair()
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "MissingExtra sealing records needs cryptography" in done.stdout, done.stderr
    assert "hearsay-ldp[sealed]" in done.stdout
