"""A device splits its record between two servers that it was told of, and with nobody else."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import one_question, plan_of

from hearsay import Caps, Client, InvalidInput, Reason, create_ledger
from hearsay.plans.plan import message, parse
from hearsay.plans.two_servers import MOST, UNIT
from hearsay.recording import ledger_file
from hearsay.recording.account import Account
from hearsay.recording.trainings import combined
from hearsay.sealed import hpke, shares
from hearsay.testing import RecordingTransport
from hearsay.v1 import collector_pb2, plan_pb2
from hearsay_server.surveys import sealing
from hearsay_server.surveys import survey as surveys
from ldp.testing import SeededCoins
from ldp.two_servers import account
from ldp.two_servers.records import Layout, estimate
from ldp.two_servers.shares import join, sum_rests, sum_seeds

HELPER_PRIVATE = bytes(range(32))
HELPER = hpke.private_key(HELPER_PRIVATE).public_key().public_bytes_raw()

TOML = f"""
name = "commute"
period = "P1D"
default_level = "standard"
[levels]
standard = 1.0
[two_servers]
helper_key = "{HELPER.hex()}"
helper = "Example Foundation"
least = 100
delta = 1e-6
[[attributes]]
name = "way"
categorical = {{ values = ["bus", "train", "car"] }}
[[attributes]]
name = "minutes"
numeric = {{ low = 0, high = 120, clamp = true }}
"""
NOW = datetime(2026, 8, 3, 12, tzinfo=UTC)


def registered(toml: str = TOML) -> sealing.Registered:
    return sealing.with_keys(surveys.resolve(surveys.from_toml(toml, "survey")), 0)


class Servers(RecordingTransport):
    """Both servers in one: what devices submit is opened with both keys."""

    def __init__(self, made: sealing.Registered) -> None:
        super().__init__(made.plan)
        self._leader = hpke.private_key(made.privates[0])
        self.server_time = int(NOW.timestamp())

    @property
    def records(self) -> dict[bytes, collector_pb2.Batch]:
        """What came, by id: every retry sends the same bytes."""
        found: dict[bytes, collector_pb2.Batch] = {}
        for batch in self.batches:
            assert found.setdefault(batch.id, batch) == batch
        return found

    def opened(self) -> tuple[list[bytes], list[bytes]]:
        helper, by = hpke.private_key(HELPER_PRIVATE), shares.splitting(self.plan)
        seeds, rests = [], []
        for batch in self.records.values():
            code = batch.columns[0].codes
            where = batch.period, batch.id
            leaders, helpers = code[: shares.LEADER_BYTES], code[shares.LEADER_BYTES :]
            seeds.append(shares.opened(by, "leader", *where, leaders, self._leader))
            rests.append(shares.opened(by, "helper", *where, helpers, helper))
        return seeds, rests

    def total(self) -> np.ndarray:
        two = shares.of(self.plan)
        seeds, rests = self.opened()
        dim, bits = two.layout.dim, two.bits
        return join(sum_seeds(seeds, dim, bits), sum_rests(rests, dim, bits), bits)


def client(servers: Servers, ledger: Path, **options: object) -> Client:
    if not ledger.exists():
        create_ledger(ledger)
    given: dict[str, object] = {
        "survey": "commute",
        "epsilon": 1.0,
        "ledger": ledger,
        "consent": True,
        "clock": lambda: NOW,
        "helper_key": HELPER.hex(),
    }
    device = Client(servers, **{**given, **options})  # type: ignore[arg-type]
    device.wait_ready(5)
    return device


def test_what_devices_send_sums_up_to_their_answers_and_the_noise(tmp_path: Path) -> None:
    servers = Servers(registered())
    ways = ["bus"] * 60 + ["car"] * 40
    with client(servers, tmp_path / "ledger") as device:
        for number, way in enumerate(ways):
            person = device.person(f"person {number}")
            person.grant()
            assert person.record(way=way, minutes=30.0)
        assert device.flush()
    two = shares.of(servers.plan)
    assert len(servers.records) == 100
    total = servers.total()
    scale, noise = two.layout.scale, np.sqrt(100 * float(two.variance))
    exact = [60 * scale, 0, 40 * scale, 25 * scale, 75 * scale]
    assert np.all(np.abs(total - exact) < 6 * noise + 6 * scale * 5)  # 5: rounding of numbers
    assert not np.array_equal(total, exact)
    way, minutes = estimate(two.layout, total, 100, two.variance)
    assert way.values == pytest.approx([0.6, 0, 0.4], abs=6 * float(way.errors.max()))
    assert minutes.values == pytest.approx([-0.5], abs=6 * float(minutes.errors.max()))


def test_the_noise_that_a_device_adds_is_that_of_the_plan(tmp_path: Path) -> None:
    """Without an answer's cells what is left is the device's own noise."""
    servers = Servers(registered())
    two = shares.of(servers.plan)
    coins = SeededCoins(7)
    with client(servers, tmp_path / "ledger", coins=coins) as device:
        for number in range(400):
            person = device.person(f"person {number}")
            person.grant()
            person.record(way="train")
        assert device.flush()
    seeds, rests = servers.opened()
    dim, bits = two.layout.dim, two.bits
    cells = np.array(
        [
            join(sum_seeds([a], dim, bits), sum_rests([b], dim, bits), bits)
            for a, b in zip(seeds, rests, strict=True)
        ]
    ) - np.array([0, two.layout.scale, 0, 0, 0])
    variance = float(two.variance)
    assert np.mean(cells**2) == pytest.approx(variance, rel=6 * np.sqrt(2 / cells.size))
    assert abs(np.mean(cells)) < 6 * np.sqrt(variance / cells.size)


def test_a_record_is_charged_once_with_all_of_epsilon_and_taken_once(tmp_path: Path) -> None:
    servers = Servers(registered())
    with client(servers, tmp_path / "ledger", caps=Caps(life=1.5)) as device:
        first = device.record(way="bus", minutes=10)
        assert first.taken == ("way", "minutes")
        again = device.record(minutes=20)
        assert again.dropped == {"minutes": "spent"}
        assert [(each.attribute, each.life, each.left) for each in device.spendings()] == [
            ("way", 1.0, 0.5),
            ("minutes", 1.0, 0.5),
        ]
        assert device.flush()
    later = {"clock": lambda: NOW + timedelta(days=1), "caps": Caps(life=1.5)}
    with client(servers, tmp_path / "ledger", **later) as device:
        assert device.record(way="bus").dropped == {"way": "spent"}
    assert len(servers.records) == 1


def test_the_ledger_adds_up_deltas_and_tells_split_records_apart(tmp_path: Path) -> None:
    """What needs an honest server and a delta must not be told as what holds against everybody."""
    servers = Servers(registered(TOML.replace("delta = 1e-6", "delta = 1e-5")))
    ledger = tmp_path / "ledger"
    for day in range(2):
        days = timedelta(days=day)
        servers.server_time = int((NOW + days).timestamp())
        with client(servers, ledger, delta=1e-5, clock=lambda days=days: NOW + days) as device:
            assert device.record(way="bus")
            way, minutes = device.spendings()
    assert (way.life, way.split, way.composed, minutes.split) == (2, 2, 0, 2)
    assert way.delta == pytest.approx(2e-5)
    (survey,) = (found := ledger_file.read(ledger)).surveys
    for split in (survey.split, found.split):
        assert split.epsilon == 2
        assert split.delta == pytest.approx(2e-5)
    assert (found.composed, set(survey.composed.values())) == (0, {0})

    start, end = TOML.index("[two_servers]"), TOML.index("[[attributes]]")
    local = RecordingTransport(
        registered(TOML[:start].replace("commute", "travel") + TOML[end:]).plan
    )
    other = {"survey": "travel", "epsilon": 1.0, "helper_key": None}
    with client(local, ledger, **other) as device:  # type: ignore[arg-type]
        assert device.record(way="bus")
        (way, _) = device.spendings()
        assert (way.life, way.split, way.delta) == (0.5, 0, 0)
    found = ledger_file.read(ledger)
    assert found.composed == way.composed == pytest.approx(0.5, rel=1e-3)
    assert found.split.epsilon == 2
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        ((stored,),) = connection.execute("SELECT account FROM accounts")
    assert combined(Account(stored, ""), [], 1e-6) == pytest.approx(0.5, rel=1e-3)


def test_an_app_bounds_delta_unless_it_names_the_exact_plan(tmp_path: Path) -> None:
    """A server that chose the plan could else promise epsilon at any delta up to 1e-4."""
    made = registered(TOML.replace("delta = 1e-6", "delta = 1e-5"))
    revision = parse(made.plan).revision.hex()
    accepted: list[dict[str, object]] = [{"delta": 1e-5}, {"revision": revision}]
    refused: list[dict[str, object]] = [
        {},
        {"delta": 9e-6},
        {"delta": 9e-6, "revision": revision},
    ]
    for number, options in enumerate(accepted + refused):
        with client(Servers(made), tmp_path / f"{number}", **options) as device:
            if options in accepted:
                assert device.record(way="bus")
            else:
                assert device.status().reason is Reason.PLAN_REFUSED
                assert "pass delta=1e-05" in device.status().detail
    for delta in (0.0, 1.0, float("nan")):
        with pytest.raises(InvalidInput, match="delta must lie in"):
            client(Servers(made), tmp_path / "none", delta=delta)


def test_an_answer_outside_the_domain_leaves_like_any_other(tmp_path: Path) -> None:
    servers = Servers(registered())
    with client(servers, tmp_path / "ledger") as device:
        recorded = device.record(way="rocket", minutes=float("nan"))
        assert recorded.invalid == ("way", "minutes")
        assert device.flush()
    (record,) = servers.records.values()
    assert record.rows == 1
    assert len(record.columns[0].codes) == (32 + 48) + (5 * 4 + 48)


def test_what_memos_of_another_survey_cost_is_not_seen_in_split_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(layout: Layout, answers: Mapping[str, object], *rest: Any) -> Any:
        given.append(dict(answers))
        return plain(layout, answers, *rest)

    given, plain = list[dict[str, object]](), Layout.randomize
    monkeypatch.setattr(Layout, "randomize", seen)
    memos = plan_of(one_question(["a", "b", "c", "d"], 0.5, memo=1, mechanism="krr"))
    caps, sizes = Caps(life=2.5), []
    for answers in ("aaaa", "abcd"):
        servers, other, moment = Servers(registered()), RecordingTransport(memos), [NOW]
        ledger = tmp_path / answers
        options: dict[str, Any] = {"caps": caps, "clock": lambda moment=moment: moment[0]}
        with client(servers, ledger, **options) as device:
            asked = {"survey": "survey", "level": "standard", "may_tell_changes": ["answer"]}
            options |= {"helper_key": None, "epsilon": 0.5}
            with client(other, ledger, **asked, **options) as memoising:  # type: ignore[arg-type]
                for answer in answers:
                    other.server_time = servers.server_time = int(moment[0].timestamp())
                    memoising.trust_clock()
                    assert memoising.record(answer=answer).taken == ("answer",)
                    moment[0] += timedelta(days=1)
            servers.server_time = int(moment[0].timestamp())
            device.trust_clock()
            assert device.record(way="bus", minutes=30).taken == ("way", "minutes")
            assert device.flush()
        sizes += [record.ByteSize() for record in servers.records.values()]
    assert sizes == [sizes[0]] * 2
    # Four memos leave no epsilon for the record, which is empty then; one leaves enough.
    assert [len(each) for each in given] == [2, 0]


def test_no_file_of_the_device_has_an_unsealed_share(tmp_path: Path) -> None:
    servers = Servers(registered())
    with client(servers, tmp_path / "ledger") as device:
        device.record(way="bus", minutes=10)
        assert device.flush()
        seeds, rests = servers.opened()
        kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        (record,) = servers.records.values()
        assert (
            record.columns[0].codes in kept
        )  # the sealed share is remembered: this search finds things
        assert seeds[0] not in kept
        assert rests[0] not in kept
        outbox = device.outbox()
    assert [each.batch.id for each in outbox.sent] == [record.id]


def test_what_waits_survives_the_process_with_its_id(tmp_path: Path) -> None:
    servers = Servers(registered())
    with client(servers, tmp_path / "ledger") as device:
        servers.server_time += 1
        device.record(way="bus")
        device._device.sender.stop()
        with contextlib.closing(sqlite3.connect(tmp_path / "ledger")) as connection:
            (waiting,) = connection.execute("SELECT count(*) FROM reports").fetchone()
    with client(servers, tmp_path / "ledger") as device:
        assert device.flush()
    assert waiting + len(servers.records) >= 1
    assert len(servers.records) == 1


def test_what_waits_keeps_its_id_while_the_app_asks_for_another_plan(tmp_path: Path) -> None:
    servers = Servers(registered())
    with client(servers, tmp_path / "ledger") as device:
        for name in ("ann", "bob"):
            person = device.person(name)
            person.grant()
            person.record(way="bus")
        device._device.sender.stop()
        kept = {each.id for each in device.outbox().reports}
    before = len(servers.batches)
    other = client(servers, tmp_path / "ledger", revision="ab" * 32)
    assert not other.flush(timeout=0.3) or before == 2
    other.close(timeout=0)
    assert len(servers.batches) == before
    with client(servers, tmp_path / "ledger") as device:
        assert device.flush()
    assert servers.records.keys() >= kept
    assert len(servers.records) == 2
    assert all(each.rows == 1 for each in servers.records.values())


def test_forgetting_asks_for_the_id_of_the_record(tmp_path: Path) -> None:
    servers = Servers(registered())
    servers.answers += [collector_pb2.Result(status=collector_pb2.Result.RETRY)] * 50
    with client(servers, tmp_path / "ledger") as device:
        device.record(way="bus")
        device.flush(timeout=0.5)
        (id_,) = servers.records
        device.revoke(forget=True)
        device.flush(timeout=2)
        assert servers.forgotten == [id_]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"helper_key": None}, "helper_key= is none"),
        ({"helper_key": "00" * 31 + "09"}, "give the key as the helper's operator tells it"),
        ({"epsilon": 0.5}, "would spend epsilon 1"),
    ],
)
def test_a_plan_with_another_helper_is_refused(
    tmp_path: Path, options: Mapping[str, object], why: str
) -> None:
    """The attack: a server that is both of its two servers would see every record."""
    servers = Servers(registered())
    with client(servers, tmp_path / "ledger", **options) as device:
        assert device.status().reason is Reason.PLAN_REFUSED
        assert why in device.status().detail
        assert not device.record(way="bus")
    assert not servers.records


def test_a_plan_without_two_servers_is_refused_where_the_app_names_a_helper(
    tmp_path: Path,
) -> None:
    start, end = TOML.index("[two_servers]"), TOML.index("[[attributes]]")
    made = registered(TOML[:start] + TOML[end:])
    with client(RecordingTransport(made.plan), tmp_path / "ledger") as device:  # type: ignore[arg-type]
        assert "leave helper_key= out" in device.status().detail


def test_a_malformed_helper_key_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
        client(Servers(registered()), tmp_path / "ledger", helper_key="abc")


def changed(**fields: object) -> bytes:
    plan = message(registered().plan)
    for name, value in fields.items():
        setattr(plan.survey.two_servers, name, value)
    return bytes(plan.SerializeToString(deterministic=True))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"variance": 1}, "but the noise gives"),
        ({"colluding": 99}, "but the noise gives"),
        ({"scale": 65}, "but the noise gives"),
        ({"delta": 1e-9}, "but the noise gives"),
        ({"least": 99}, "least must be 100"),
        ({"least": MOST + 1}, "least must be 100"),
        ({"colluding": 100}, "colluding must be below least"),
        ({"delta": 0.01}, "delta must lie in"),
        ({"delta": float("nan")}, "delta must lie in"),
        ({"bits": 8}, "bits must be 16, 32 or 64"),
        ({"variance": 0}, "must have a variance in"),
        ({"helper_key": b"short"}, "helper_key is an X25519 key"),
        ({"leader_key": HELPER}, "both servers have one key"),
    ],
)
def test_a_device_checks_what_the_server_says_of_the_noise(
    fields: Mapping[str, object], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse(changed(**fields))


def test_a_plan_that_sums_fewer_records_than_its_noise_is_for_is_refused() -> None:
    plan = message(registered(TOML.replace("least = 100", "least = 1000")).plan)
    plan.survey.two_servers.least = 990
    with pytest.raises(InvalidInput, match="but the noise gives"):
        parse(bytes(plan.SerializeToString(deterministic=True)))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('name = "way"', 'name = "way"\nmechanism = "krr"', "neither mechanism nor weight"),
        ('name = "way"', 'name = "way"\nmemo = 1', "neither memo nor cap"),
        ('"car"] }', '"car"], sensitive = ["car"] }', "protected alike"),
        ("clamp = true", "step = 1", "numeric by low, high and clamp alone"),
        ("standard = 1.0", "standard = 1.0\nopen = 2.0", "there is one level, got 2"),
        ('period = "P1D"', 'period = "P1D"\npanels = 4', "leave panels out"),
        ('period = "P1D"', 'period = "P1D"\nviews = [["way", "minutes"]]', "leave views out"),
        ('period = "P1D"', 'period = "P1D"\nbudget = "sample"', "budget is split"),
        ("least = 100", "least = 100\nbits = 16", "need bits = 32"),
        ("least = 100", "least = 100\nscale = 1\nbits = 16", "need bits = 32"),
        ("least = 100", "least = 100\nscale = 32768", "need bits = 64"),
        ("least = 100", "least = 100\nscale = 40000\nbits = 32", "need bits = 64"),
        ("least = 100", "least = 100\nvariance = 7", "leave them out"),
        ("delta = 1e-6", "", "delta must lie in"),
        (f'helper_key = "{HELPER.hex()}"', 'helper_key = "xy"', "must be hexadecimal digits"),
        (f'helper_key = "{HELPER.hex()}"', "", "helper_key is an X25519 key of 32 bytes, got 0"),
        ("[[attributes]]", "[sealing]\n[[attributes]]", "leave sealing out"),
        ("[[attributes]]", "[page]\npublic = true\n[[attributes]]", "no page yet"),
    ],
)
def test_a_survey_that_cannot_be_says_why(old: str, new: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        surveys.resolve(surveys.from_toml(TOML.replace(old, new, 1), "survey"))


def test_the_noise_is_the_least_that_keeps_the_level() -> None:
    two = shares.of(parse(registered().plan))
    assert account.epsilon_of(two.rho, two.delta) <= 1
    honest = account.honest_variance(two.variance - Fraction(1, UNIT), two.least, two.colluding)
    less = account.rho(*two.layout.distances, honest)
    assert less > account.largest_rho(1.0, two.delta)
    assert account.epsilon_of(less * Fraction(10001, 10000), two.delta) > 1


def test_registering_again_is_the_same_survey() -> None:
    mine, theirs = registered().plan, registered().plan
    assert mine != theirs
    assert sealing.without_keys(mine) == sealing.without_keys(theirs)


def test_shares_are_opened_by_their_server_as_they_were_sealed_and_by_nothing_else() -> None:
    made = registered()
    by, other_plan = (shares.splitting(parse(each.plan)) for each in (made, registered()))
    keys = {
        "leader": hpke.private_key(made.privates[0]),
        "helper": hpke.private_key(HELPER_PRIVATE),
    }
    id_, day = bytes(16), "2026-08-03"
    code = shares.seal(by, day, id_, bytes(32), bytes(20))
    sealed = {"leader": code[: shares.LEADER_BYTES], "helper": code[shares.LEADER_BYTES :]}
    sizes = {"leader": 32, "helper": 20}
    other = {"leader": "helper", "helper": "leader"}
    for role in ("leader", "helper"):
        mine = sealed[role]
        assert shares.opened(by, role, day, id_, mine, keys[role]) == bytes(sizes[role])
        flipped = mine[:-1] + bytes([mine[-1] ^ 1])
        for wrong in (
            (by, role, "2026-08-04", id_, mine, keys[role]),
            (by, role, day, bytes(15) + b"\1", mine, keys[role]),
            (by, role, day, id_, flipped, keys[role]),
            (by, role, day, id_, mine, keys[other[role]]),
            (other_plan, role, day, id_, mine, keys[role]),
        ):
            with pytest.raises(InvalidInput, match="cannot be opened"):
                shares.opened(*wrong)
        with pytest.raises(InvalidInput, match="bytes, got"):
            shares.opened(by, role, day, id_, mine[:-1], keys[role])


def used(names: Sequence[str]) -> plan_pb2.Plan:
    plan = message(registered().plan)
    plan.levels[0].mechanisms.add(name=names[0])
    return plan


def test_a_plan_that_randomises_as_well_is_refused() -> None:
    with pytest.raises(InvalidInput, match="leave mechanisms out"):
        parse(used(["krr"]).SerializeToString(deterministic=True))
