"""Vectors of sealed records: HPKE, padding, the key of a period, plans, and what is refused."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from hearsay.plans.plan import parse
from hearsay.plans.sealing import least_size
from hearsay.sealed import hpke as library
from hearsay.sealed import keys, records
from hearsay.v1 import collector_pb2, plan_pb2, shuffler_pb2
from ldp import InvalidInput
from vectors import hpke
from vectors.plans import plain, rich

Case = dict[str, Any]
Change = Callable[[plan_pb2.Plan], object]

_DAY = 24 * 3600
_FIRST = 1_783_123_200  # 2026-07-04
_PRIVATES = tuple(hashlib.sha256(f"key {place}".encode()).digest() for place in range(3))
_EPHEMERAL = hashlib.sha256(b"ephemeral").digest()

_RFC_9180 = {
    "note": "RFC 9180, A.1.1, sequence number 0",
    "private": "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
    "public": "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
    "ephemeral": "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
    "info": "4f6465206f6e2061204772656369616e2055726e",
    "aad": "436f756e742d30",
    "message": "4265617574792069732074727574682c20747275746820626561757479",
    "sealed": "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
    "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9"
    "6d8770ac83d07bea87e13c512a",
}


def sealed() -> dict[str, list[Case]]:
    """Return sealed.json."""
    return {
        "hpke": [_RFC_9180, *map(_agreed, (b"", b"a message"))],
        "plans": [_judged(*each) for each in _plans()],
        "periods": list(_periods()),
        "records": list(_records()),
        "refused": list(_refused()),
    }


def _public(place: int) -> bytes:
    own = library.private_key(_PRIVATES[place])
    return own.public_key().public_bytes_raw()


def _agreed(message: bytes) -> Case:
    """Return what the reference seals and the library opens."""
    info = b"what it is bound to"
    data = hpke.sealed(message, _public(0), info, _EPHEMERAL)
    assert library.decrypted(data, library.private_key(_PRIVATES[0]), info) == message
    return {
        "note": f"{len(message)} bytes",
        "private": _PRIVATES[0].hex(),
        "public": _public(0).hex(),
        "ephemeral": _EPHEMERAL.hex(),
        "info": info.hex(),
        "aad": "",
        "message": message.hex(),
        "sealed": data.hex(),
    }


# --- plans --------------------------------------------------------------------------------------


def _plan(unit: str = "P1D", change: Change = lambda plan: None) -> bytes:
    """Return a plan of two attributes, whose records are sealed to one of three keys."""
    plan = plain()
    plan.survey.period = unit
    return _with_sealing(plan, change)


def _with_sealing(plan: plan_pb2.Plan, change: Change = lambda plan: None) -> bytes:
    parsed = parse(plan.SerializeToString(deterministic=True))
    sealing = plan.survey.sealing
    sealing.least, sealing.rotate_days, sealing.key_count = 1000, 30, 3
    for place in range(3):
        sealing.keys.add(public=_public(place), since=_FIRST + 30 * _DAY * place)
    questions, levels = parsed.questions, parsed.levels.values()
    sealing.size = least_size(plan.survey, questions, levels, parsed.properties)
    change(plan)
    return plan.SerializeToString(deterministic=True)


def _set(**fields: int) -> Change:
    def change(plan: plan_pb2.Plan) -> None:
        for name, value in fields.items():
            setattr(plan.survey.sealing, name, value)

    return change


def _key(place: int, **fields: object) -> Change:
    def change(plan: plan_pb2.Plan) -> None:
        for name, value in fields.items():
            setattr(plan.survey.sealing.keys[place], name, value)

    return change


def _only_one(plan: plan_pb2.Plan) -> None:
    del plan.survey.sealing.keys[1:]


def _many(plan: plan_pb2.Plan) -> None:
    for more in range(253):
        public = hashlib.sha256(f"more {more}".encode()).digest()
        plan.survey.sealing.keys.add(public=public, since=2 * _FIRST + more)


_FITS = 140
"""The bytes of a property's value with which a record and its length have 256 bytes."""


def _long(length: int, size: int = 0) -> bytes:
    """Return a plan whose largest record has a property's value of so many bytes, and a size of its
    own where one is given."""
    plan = plain()
    plan.survey.properties.add(name="told", values=["short", "v" * length])
    return _with_sealing(plan, _set(size=size) if size else lambda plan: None)


def _plans() -> Iterator[tuple[str, bytes, bool]]:
    """Yield notes, plans, and whether they are accepted."""
    yield "sealed records", _plan(), True
    yield "sealed records of all that a plan may have", _with_sealing(rich()), True
    yield "sealed records, once", _plan(""), True
    yield "a larger size", _plan(change=_set(size=512)), True
    yield "a size of 2 MiB", _plan(change=_set(size=1 << 21)), True
    yield (
        "one key",
        _plan(change=lambda plan: plan.survey.sealing.keys.__delitem__(slice(1, 3))),
        True,
    )
    yield "keys before 1970", _plan(change=_key(0, since=-5)), True
    yield "a threshold of 999", _plan(change=_set(least=999)), False
    yield "no threshold", _plan(change=_set(least=0)), False
    yield "no size", _plan(change=_set(size=0)), False
    yield "a size between", _plan(change=_set(size=300)), False
    yield "a size above 2 MiB", _plan(change=_set(size=(1 << 21) + 256)), False
    yield "records of 256 bytes with their length", _long(_FITS), True
    yield "the same in 512 bytes", _long(_FITS, 512), True
    yield "records of a byte more", _long(_FITS + 1), True
    yield "the same in 256 bytes", _long(_FITS + 1, 256), False
    yield "no rotation", _plan(change=_set(rotate_days=0)), False
    yield "keys for 367 days", _plan(change=_set(rotate_days=367)), False
    yield "a key count of 0", _plan(change=_set(key_count=0)), False
    yield "a key count of 256", _plan(change=_set(key_count=256)), False
    yield "256 keys", _plan(change=_many), False
    yield "a key of 31 bytes", _plan(change=_key(1, public=bytes(31))), False
    yield "a key twice", _plan(change=_key(1, public=_public(0))), False
    yield "keys at one time", _plan(change=_key(1, since=_FIRST)), False
    yield "keys in the wrong order", _plan(change=_key(1, since=_FIRST - 1)), False


def _judged(note: str, data: bytes, accepted: bool) -> Case:
    case: Case = {"note": note, "plan": data.hex(), "accepted": accepted}
    try:
        sealing = parse(data).sealing
    except InvalidInput:
        assert not accepted, note
        return case
    assert accepted and sealing is not None, note
    return case | {"size": sealing.size, "fingerprint": keys.fingerprint(sealing)}


def _periods() -> Iterator[Case]:
    for unit, names in (
        (
            "P1D",
            ("1969-12-31", "2026-07-03", "2026-07-04", "2026-08-02", "2026-08-03", "2099-01-01"),
        ),
        ("PT1H", ("2026-08-02T23", "2026-08-03T00")),
        (
            "P1W",
            ("2026-W31", "2026-W32"),
        ),  # the second begins on August 3rd
        ("P1M", ("2026-07", "2026-08", "2026-09", "2026-10")),
        ("P1Y", ("2026", "2027")),
        ("", ("once",)),
    ):
        data = _plan(unit)
        sealing = parse(data).sealing
        assert sealing is not None
        turns = [[name, sealing.key(unit, name)] for name in names]
        yield {"plan": data.hex(), "keys": turns}


# --- records ------------------------------------------------------------------------------------

_PERIOD = "2026-08-03"


def _batch(**changed: object) -> shuffler_pb2.Sealed:
    fields: dict[str, Any] = {
        "id": bytes(range(16)),
        "survey": "plain",
        "revision": parse(_plan()).revision,
        "period": _PERIOD,
        "rows": 1,
        "columns": [collector_pb2.Column(attribute="smokes", level="strict", codes=b"\2")],
    }
    return shuffler_pb2.Sealed(batch=collector_pb2.Batch(**(fields | changed)))


def _forget() -> shuffler_pb2.Sealed:
    return shuffler_pb2.Sealed(forget={"period": "2026-08-01", "id": bytes(range(16))})


def _record(padded: bytes, **changed: object) -> shuffler_pb2.SealedRecord:
    """Return a record with any padded content, as the reference seals it."""
    plan = parse(_plan())
    bound = records.info(plan.survey, plan.revision, _PERIOD)
    fields: dict[str, Any] = {
        "survey": plan.survey,
        "revision": plan.revision,
        "period": _PERIOD,
        "key": 1,
        "sealed": hpke.sealed(padded, _public(1), bound, _EPHEMERAL),
    }
    return shuffler_pb2.SealedRecord(**(fields | changed))


def _records() -> Iterator[Case]:
    plan = parse(_plan())
    for note, content in (("a batch", _batch()), ("a request to forget", _forget())):
        padded = records.pad(content.SerializeToString(), 256)
        record = _record(padded)
        assert records.opened(plan, record, library.private_key(_PRIVATES[1])) == content
        yield {
            "note": note,
            "plan": _plan().hex(),
            "private": _PRIVATES[1].hex(),
            "ephemeral": _EPHEMERAL.hex(),
            "content": content.SerializeToString().hex(),
            "padded": padded.hex(),
            "info": records.info(plan.survey, plan.revision, _PERIOD).hex(),
            "record": record.SerializeToString(deterministic=True).hex(),
        }


def _refused() -> Iterator[Case]:
    """Yield records that must not be opened, with the private half of the key that they name."""
    plan = parse(_plan())
    good = records.pad(_batch().SerializeToString(), 256)
    whole = _record(good).sealed
    other = records.info(plan.survey, plan.revision, "2026-08-04")
    for note, record, place in (
        ("one bit of the encapsulated key changed", _record(good, sealed=_flipped(whole, 0)), 1),
        ("one bit of the ciphertext changed", _record(good, sealed=_flipped(whole, 100)), 1),
        ("one bit of the tag changed", _record(good, sealed=_flipped(whole, len(whole) - 1)), 1),
        ("cut off", _record(good, sealed=whole[:-1]), 1),
        ("a byte more", _record(good, sealed=whole + b"\0"), 1),
        ("empty", _record(good, sealed=b""), 1),
        ("another period in the clear", _record(good, period="2026-08-04"), 1),
        (
            "sealed for another period",
            _record(good, sealed=hpke.sealed(good, _public(1), other, _EPHEMERAL)),
            1,
        ),
        ("a period of another unit", _record(good, period="2026-W32"), 1),
        ("another survey in the clear", _record(good, survey="other"), 1),
        ("another revision in the clear", _record(good, revision=bytes(32)), 1),
        ("a key that the period does not have", _record(good, key=0), 0),
        ("a key that the plan does not have", _record(good, key=3), 1),
        ("a zero after the padding's end is not zero", _record(good[:-1] + b"\1"), 1),
        ("a length beyond the end", _record(b"\0\0\1\0" + good[4:]), 1),
        ("a length of 4 GiB", _record(b"\xff\xff\xff\xff" + good[4:]), 1),
        ("a padding of another size", _record(good + bytes(256)), 1),
        ("no message", _record(bytes(256)), 1),
        ("no protobuf", _record(records.pad(b"\xff" * 9, 256)), 1),
        ("two rows inside", _record(_padded(_batch(rows=2))), 1),
        ("no row inside", _record(_padded(_batch(rows=0))), 1),
        ("another survey inside", _record(_padded(_batch(survey="other"))), 1),
        ("another revision inside", _record(_padded(_batch(revision=bytes(32)))), 1),
        ("another period inside", _record(_padded(_batch(period="2026-08-04"))), 1),
    ):
        try:
            records.opened(plan, record, library.private_key(_PRIVATES[place]))
        except InvalidInput:
            data = record.SerializeToString(deterministic=True)
            private = _PRIVATES[place].hex()
            yield {"note": note, "plan": _plan().hex(), "private": private, "record": data.hex()}
        else:
            raise AssertionError(f"{note} is accepted")


def _padded(content: shuffler_pb2.Sealed) -> bytes:
    return records.pad(content.SerializeToString(), 256)


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
