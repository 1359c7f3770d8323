"""Rounds whose updates are split between two servers: what models are made of, and who sees it."""

import contextlib
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helping import helping
from numpy.typing import NDArray
from serving import connected, create, serving, tokens_of
from trained import NOW, first_model, vector
from trainers import QUICK, Steps

from hearsay import Client, Reason, create_ledger
from hearsay.federated import Participant, encoding, models, splitting
from hearsay.federated.calls import PART
from hearsay.federated.declaration import Training
from hearsay.federated.parsing import parse
from hearsay.sealed import hpke, shares
from hearsay.sending.transport import open_calls
from hearsay.v1 import admin_pb2, trainer_pb2, training_pb2, two_servers_pb2, two_servers_pb2_grpc
from hearsay_server.helper import held
from hearsay_server.serving.helping import Helping, Part
from hearsay_server.serving.split_rounds import SplitRounds
from hearsay_server.storage import models as stored_models
from hearsay_server.storage import rounds, schema, sums, trainings, updates
from hearsay_server.storage.database import Database, open_folder
from hearsay_server.trainings import figures
from hearsay_server.trainings.training import freeze
from ldp import InvalidInput
from ldp.errors import HearsayError, NotReady
from ldp.testing import SeededCoins
from ldp.two_servers import account, rounding
from ldp.two_servers.shares import expand, join
from ldp.two_servers.shares import parse as read_rest
from support import Calendar, free_port, wait_until

NO_NOISE = 1e5
"""A rho at which noise hides nothing, so that what is computed can be seen."""


def table(key: str, **changed: Any) -> dict[str, Any]:
    split = {"helper_key": key, "rho": NO_NOISE, **changed.pop("two_servers", {})}
    usual = {
        "name": "digits",
        "architecture": "2nn",
        "rounds": 4,
        "round_seconds": 600,
        "updates_per_round": 3,
        "min_updates": 2,
        "participations": 2,
        "separation": 2,
        "max_update_norm": 1.0,
        "local": {"learning_rate": 0.1},
        "two_servers": split,
    }
    return usual | changed


def declared(key: str, dimension: int = 6, **changed: Any) -> bytes:
    """Return the frozen bytes of a training that is split with the helper of a key."""
    return freeze(table(key, **changed), first_model(dimension), "training")


@dataclass
class Pair:
    """A server that leads, its helper, and where both keep things."""

    data: Path
    helper_data: Path
    address: str
    helper: str
    secret: str

    @property
    def key(self) -> str:
        return held.look(self.helper_data)[0]

    @contextlib.contextmanager
    def helping(self) -> Iterator[Helping]:
        calls = open_calls(self.helper, token=self.secret)
        try:
            yield Helping(calls)
        finally:
            calls.close()

    def create(self, data: bytes) -> Training:
        """Upload the first model and create a training at the running server."""
        training = parse(data)
        file = first_model(training.dimension)
        calls = open_calls(self.address)
        try:
            for offset in range(0, len(file), PART):
                part = admin_pb2.UploadModelRequest(
                    model=training.initial,
                    size=len(file),
                    offset=offset,
                    data=file[offset : offset + PART],
                )
                calls.call("Admin/UploadModel", part, admin_pb2.UploadModelResponse, 20)
            asked = admin_pb2.CreateTrainingRequest(training=data)
            calls.call("Admin/CreateTraining", asked, admin_pb2.TrainingStatus, 20)
            show = admin_pb2.ShowTrainingRequest(training=training.name)
            found = calls.call("Admin/ShowTraining", show, admin_pb2.ShowTrainingResponse, 20)
            return parse(found.training)
        finally:
            calls.close()

    def round(self, name: str) -> trainer_pb2.GetRoundResponse:
        with contextlib.closing(open_calls(self.address)) as calls:
            asked = trainer_pb2.GetRoundRequest(training=name)
            return calls.call("Trainer/GetRound", asked, trainer_pb2.GetRoundResponse, 20)

    def model(self, name: str) -> NDArray[np.float32]:
        """Return the newest model."""
        with contextlib.closing(open_calls(self.address)) as calls:
            asked = trainer_pb2.GetModelRequest(training=name, model=self.round(name).model)
            found = calls.call("Trainer/GetModel", asked, trainer_pb2.GetModelResponse, 20)
        return models.to_vector(models.read(found.data))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    data, clock, port = tmp_path_factory.mktemp("two"), Calendar(), free_port()
    helper, leader = data / "helper", data / "leader"
    held.Shares(helper).close()
    secret = tokens_of(helper).create("leader")[1]
    keys = {"helper": f"127.0.0.1:{port}", "helper_token": secret, "helper_seconds": 0.05}
    with serving(leader, **keys) as address, helping(helper, address, port, clock):
        yield Pair(leader, helper, address, keys["helper"], secret)


@contextlib.contextmanager
def app(pair: Pair, folder: Path) -> Iterator[Client]:
    create_ledger(folder / "ledger.db")
    with Client(
        pair.address, "none", epsilon=1.0, ledger=folder / "ledger.db", delivery=QUICK
    ) as client:
        yield client


def people(client: Client, training: Training, changes: Sequence[float], **agreed: Any) -> Any:
    for number, change in enumerate(changes):
        yield Participant(
            client.person(f"person {number}"),
            training.name,
            steps={"2nn": Steps(change)},
            consent=True,
            step_seconds=0.05,
            **agreed,
        )


def test_a_training_is_refused_where_nothing_could_sum_its_updates(
    pair: Pair, tmp_path: Path
) -> None:
    with serving(tmp_path) as address:
        alone = Pair(tmp_path, pair.helper_data, address, pair.helper, pair.secret)
        with pytest.raises(HearsayError, match="start it with --helper HOST:PORT"):
            alone.create(declared(pair.key, name="alone"))
    training = pair.create(declared(pair.key, name="again"))
    with contextlib.closing(open_calls(pair.helper, token=pair.secret)) as calls:
        helping_ = Helping(calls)
        helping_.check_free("again", is_training=True)  # it has not heard of it
        part = Part(training.splitting, round=1)
        helping_.agree(part, [bytes(16)])
        with pytest.raises(HearsayError, match="for ever"):
            helping_.check_free("again", is_training=True)


# --- devices --------------------------------------------------------------------------------------


def test_a_round_of_real_devices_is_their_mean_and_charges_rho(pair: Pair, tmp_path: Path) -> None:
    training = pair.create(declared(pair.key, name="devices", dimension=50))
    with app(pair, tmp_path) as client:
        agreed = {"rho": NO_NOISE, "helper_key": pair.key}
        for each in people(client, training, (0.01, 0.02, 0.06), **agreed):
            progress = each.run_once()
            assert (progress.reason, progress.round) == (Reason.READY, 1), progress
            spent = each.spending()
            assert spent.protection == "two_servers"
            assert spent.rho == float(training.rho) <= NO_NOISE
            assert spent.epsilon == 0
        wait_until(lambda: pair.round("devices").round == 2)
        assert each.run_once().reason is Reason.WAITING  # two rounds apart
    assert np.allclose(pair.model("devices"), 0.03, atol=0.02)
    shown = [one for one in held.look(pair.helper_data)[1] if one.survey == "devices"]
    assert [(one.period, one.waiting, one.summed, one.sums) for one in shown] == [
        ("round 1", 0, 3, 1)
    ]


@pytest.mark.parametrize(
    ("agreed", "words"),
    [
        ({"rho": NO_NOISE}, "give helper_key="),
        ({"rho": NO_NOISE, "helper_key": "ab" * 32}, "names the helper"),
        ({"rho": 1.0, "helper_key": None}, "the app allows rho=1"),
        ({"epsilon": 1.0, "helper_key": None}, "the app allows no such training"),
    ],
)
def test_a_device_takes_part_only_in_what_the_app_agreed_to(
    pair: Pair, tmp_path: Path, agreed: dict[str, Any], words: str
) -> None:
    training = pair.create(declared(pair.key, name="agreed", rounds=3))
    if agreed.get("helper_key", "") is None:
        agreed = agreed | {"helper_key": pair.key}
    with app(pair, tmp_path) as client:
        (one,) = people(client, training, (0.1,), **agreed)
        progress = one.run_once()
        assert progress.reason is Reason.TRAINING_REFUSED
        assert words in progress.detail
        assert one.spending() is None


def test_a_server_cannot_drop_the_helper_from_what_an_app_expects(
    pair: Pair, tmp_path: Path
) -> None:
    wire = training_pb2.Training.FromString(declared(pair.key, name="dropped"))
    wire.central.mechanism, wire.central.noise_multiplier_millionths = "tree", 1_000_000
    wire.encoding.kind = "float32"
    training = pair.create(wire.SerializeToString(deterministic=True))
    with app(pair, tmp_path) as client:
        (one,) = people(client, training, (0.1,), rho=NO_NOISE, helper_key=pair.key)
        assert "does not split updates" in one.run_once().detail
        with pytest.raises(InvalidInput, match="give step_seconds="):
            Participant(client, "dropped", steps={"2nn": Steps(0.1)}, rho=1.0, helper_key="ab" * 32)
        with pytest.raises(InvalidInput, match="64 hexadecimal digits"):
            Participant(client, "dropped", steps={"2nn": Steps(0.1)}, rho=1.0, helper_key="ab")


def test_the_same_training_again_keeps_its_key(pair: Pair) -> None:
    data = declared(pair.key, name="again")
    assert pair.create(data).revision == pair.create(data).revision != parse(data).revision
    assert not parse(data).split.leader_key


# --- sums -----------------------------------------------------------------------------------------


class Leader:
    """A database of the server that leads, whose rounds a test moves on; and its helper."""

    def __init__(self, pair: Pair, database: Database, helper: Helping, data: bytes) -> None:
        self.pair, self.database, self.helper = pair, database, helper
        # The running server has the training as well: the helper fetches it from there.
        self.training = pair.create(data)
        self.private = self._copied()

    def _copied(self) -> bytes:
        """Create the same training here, with the key that it has at the running server."""
        with (
            contextlib.closing(open_folder(self.pair.data)) as other,
            other.reading() as connection,
        ):
            found = connection.execute(schema.seeds.select()).all()
        private = {row.training: bytes(row.seed) for row in found}[self.training.name]
        file = first_model(self.training.dimension)
        stored_models.put(self.database, self.training.initial, len(file), 0, file, NOW)
        wire = training_pb2.Training.FromString(self._declared())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hpke, "new_pair", lambda: (private, wire.two_servers.leader_key))
            trainings.create(self.database, self._declared(), NOW)
        return private

    def _declared(self) -> bytes:
        with contextlib.closing(open_folder(self.pair.data)) as other:
            found = trainings.declared(other, self.training.name)
        assert found is not None
        return found

    def send(self, *numbers: int, spoilt: int | None = None) -> list[bytes]:
        """Count updates of devices to the newest round; return their payloads."""
        newest = rounds.newest(self.database, self.training.name)
        sent = []
        for number in numbers:
            id_ = number.to_bytes(16, "big")
            update = vector(number, self.training.dimension)
            payload = encoding.encode(self.training, update, SeededCoins(number), newest.round, id_)
            if number == spoilt:
                payload = payload[:-1] + bytes([payload[-1] ^ 1])
            part = updates.Part(
                id=id_,
                training=self.training.name,
                revision=self.training.revision,
                round=newest.round,
                model=newest.model,
                size=len(payload),
                data=payload,
            )
            assert isinstance(updates.look(self.database, part, NOW), updates.Place)
            updates.count(self.database, part, NOW)
            sent.append(payload)
        return sent

    def work(self) -> rounds.Work:
        newest = rounds.newest(self.database, self.training.name)
        found = rounds.work(self.database, self.training, newest.round)
        assert found is not None
        return found

    def total(self, go_on: Any = lambda: None) -> NDArray[np.float64] | None:
        return SplitRounds(self.database, self.helper).total(self.work(), go_on)

    def truth(self, numbers: Sequence[int], payloads: Sequence[bytes]) -> NDArray[np.float64]:
        """Return what updates sum up to, which takes the keys of both servers."""
        with sqlite3.connect(self.pair.helper_data / "shares.db") as connection:
            ((helpers,),) = connection.execute("SELECT private FROM key")
        by = self.training.splitting
        keys = {"leader": hpke.private_key(self.private), "helper": hpke.private_key(helpers)}
        newest = rounds.newest(self.database, self.training.name)
        whole = np.zeros(by.dim, np.int64)
        for number, payload in zip(numbers, payloads, strict=True):
            where = shares.round_name(newest.round), number.to_bytes(16, "big")
            mine, theirs = payload[: shares.LEADER_BYTES], payload[shares.LEADER_BYTES :]
            seed = shares.opened(by, "leader", *where, mine, keys["leader"])
            rest = shares.opened(by, "helper", *where, theirs, keys["helper"])
            whole += join(expand(seed, by.dim, by.bits), read_rest(rest, by.dim, by.bits), by.bits)
        return splitting.decode_sum(self.training, whole)

    def at_helper(self) -> list[held.Held]:
        found = held.look(self.pair.helper_data)[1]
        return [each for each in found if each.survey == self.training.name]


@pytest.fixture
def leader(pair: Pair, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Leader]:
    name = f"t{os.urandom(4).hex()}"
    with contextlib.closing(open_folder(tmp_path / "leads")) as database, pair.helping() as helper:
        yield Leader(pair, database, helper, declared(pair.key, name=name))


def test_the_sum_is_that_of_the_devices_integers_and_only_once(leader: Leader) -> None:
    sent = leader.send(1, 2, 3)
    first = leader.total()
    assert first is not None
    assert np.array_equal(first, leader.truth((1, 2, 3), sent))
    assert np.allclose(first, sum(vector(n) for n in (1, 2, 3)), atol=0.2)
    again = leader.total()  # as another process would, after a kill
    assert again is not None
    assert np.array_equal(first, again)
    assert [(one.summed, one.sums) for one in leader.at_helper()] == [(3, 1)]


class Killed(Exception):
    """The process ends here."""


def test_a_leader_that_dies_anywhere_makes_one_sum_of_one_set(leader: Leader) -> None:
    sent = leader.send(1, 2, 3)
    for steps in range(4):

        def go_on(left: list[int] = [steps]) -> None:  # noqa: B006  # counted down
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        with contextlib.suppress(Killed):
            leader.total(go_on)
    found = leader.total()
    assert found is not None
    assert np.array_equal(found, leader.truth((1, 2, 3), sent))
    assert [(one.summed, one.sums) for one in leader.at_helper()] == [(3, 1)]


def test_a_claimed_set_stays_whatever_comes_later(leader: Leader) -> None:
    leader.send(1, 2, 3)
    part = Part(leader.training.splitting, round=1)
    few = [number.to_bytes(16, "big") for number in (1, 2)]
    own = bytes(part.by.rest_bytes)
    leader.total()
    # Another set of the same round, as a leader would need to learn of device 3 alone.
    with pytest.raises(NotReady, match="another sum"):
        leader.helper.total(part, b"".join(few), own)
    with leader.database.changing() as connection:
        connection.execute(schema.sums.delete())
    sums.claim_round(leader.database, leader.training.name, part.bound, few, own)
    sums.claim_round(leader.database, leader.training.name, part.bound, few[:1], own)
    (kept,) = sums.claimed(leader.database, leader.training.name)
    assert kept.ids == b"".join(few)
    with pytest.raises(NotReady, match="another sum"):
        leader.total()


def test_the_helper_sums_no_set_below_the_threshold_and_no_round_that_is_none(
    leader: Leader,
) -> None:
    sent = leader.send(1, 2, 3)
    ids = [number.to_bytes(16, "big") for number in (1, 2, 3)]
    part = Part(leader.training.splitting, round=1)
    theirs = [(id_, code[shares.LEADER_BYTES :]) for id_, code in zip(ids, sent, strict=True)]
    leader.helper.take(part, theirs)
    with pytest.raises(NotReady, match="a sum is of 2 records or more, got 1"):
        leader.helper.total(part, ids[0], bytes(part.by.rest_bytes))
    for wrong in (
        Part(part.by, round=5),
        Part(part.by, period="2026-07-04", round=1),
        Part(part.by, round=2),  # another round's shares do not open
    ):
        (_, found), *_ = leader.helper.take(wrong, theirs)
        assert found.status == found.REFUSED
    with connected(leader.pair.helper, leader.pair.secret) as channel:
        stub = two_servers_pb2_grpc.HelperStub(channel)
        asked = two_servers_pb2.TakeSharesRequest(
            survey=leader.training.name, revision=bytes(32), round=1
        )
        asked.shares.add(id=ids[0], sealed=theirs[0][1])
        (found,) = stub.TakeShares(asked, timeout=20).results
        assert found.status == found.RETRY


def test_a_spoilt_update_is_left_out_and_too_few_drop_the_round(leader: Leader) -> None:
    sent = leader.send(1, 2, 3, spoilt=2)
    found = leader.total()
    assert found is not None
    good = [sent[0], sent[2]]
    assert np.array_equal(found, leader.truth((1, 3), good))


def test_a_round_with_too_few_good_updates_has_no_sum(leader: Leader) -> None:
    leader.send(1, 2, 3, spoilt=2)
    real = leader.helper.agree

    def forgets(part: Part, ids: Sequence[bytes]) -> set[bytes]:
        return set(list(real(part, ids))[:1])

    leader.helper.agree = forgets  # type: ignore[method-assign]
    work = leader.work()
    assert leader.total() is None
    assert rounds.drop(leader.database, leader.training, work.round, NOW)
    assert not rounds.drop(leader.database, leader.training, work.round, NOW)
    newest = rounds.newest(leader.database, leader.training.name)
    assert (newest.round, newest.state, newest.model) == (2, "open", leader.training.initial)


def test_a_server_without_a_helper_says_so(leader: Leader) -> None:
    leader.send(1, 2, 3)
    with pytest.raises(InvalidInput, match="start it with --helper"):
        SplitRounds(leader.database, None).total(leader.work(), lambda: None)


def test_the_end_of_a_training_deletes_its_key_and_its_sums(leader: Leader) -> None:
    leader.send(1, 2, 3)
    leader.total()
    trainings.close(leader.database, leader.training.name, NOW)
    with leader.database.reading() as connection:
        assert not connection.execute(schema.sums.select()).all()
        assert not connection.execute(schema.seeds.select()).all()


# --- the account ----------------------------------------------------------------------------------

KEY = "5f" * 32


@pytest.mark.parametrize(
    ("changed", "split"),
    [
        ({}, {"rho": 1.0}),
        ({"participations": 1, "separation": 1}, {"rho": 0.1, "colluding": 40}),
        ({"max_update_norm": 0.01}, {"rho": 3.5, "bits": 64}),
    ],
)
def test_rho_is_that_of_the_honest_devices_noise_and_is_kept(
    changed: dict[str, Any], split: dict[str, Any]
) -> None:
    sizes = {"updates_per_round": 200, "min_updates": 100, "two_servers": split}
    training = parse(declared(KEY, dimension=500, **sizes, **changed))
    noise = training.split
    norms = rounding.norm_bounds(training.max_update_norm, noise.scale, 512)
    honest = noise.variance * (100 - noise.colluding)
    exact = training.participations * account.rho(*norms, honest)
    assert exact <= training.rho <= exact + Fraction(1, 10**9)
    assert 0.999 * split["rho"] < float(training.rho) <= split["rho"]
    # A vector of integers keeps to these norms, whatever the update was.
    for seed in range(20):
        wild = np.random.default_rng(seed).standard_cauchy(500)
        drawn = rounding.encode_update(
            wild, training.max_update_norm, noise.scale, np.ones(512), SeededCoins(seed)
        )
        assert np.abs(drawn).sum() <= norms[0]
        assert (drawn**2).sum() <= norms[1]


def test_the_published_bound_that_rho_rests_on_holds_against_the_exact_divergence() -> None:
    training = parse(
        declared(
            KEY,
            **{"updates_per_round": 40, "min_updates": 20},
            two_servers={"rho": 0.5, "scale": 4.0},
        )
    )
    honest = training.split.variance * 20
    each = training.rho / training.participations
    for order in (2, 3, 8, 32):
        assert account.exact(order, training.norms[1], honest) <= order * each


def test_an_epsilon_is_of_integer_orders() -> None:
    training = parse(
        declared(KEY, updates_per_round=200, min_updates=100, two_servers={"rho": 0.5})
    )
    spent = figures.spent_epsilon(training, 4, 1e-6)
    assert spent == account.epsilon_of(training.rho, 1e-6)
    assert figures.spent_rho(training, 2) == training.rho / 2
    # Gaussian noise of the same rho has a smaller one, and zCDP's plain conversion a larger.
    plain = float(training.rho) + 2 * math.sqrt(float(training.rho) * math.log(1e6))
    assert figures.epsilon_of(training.rho, 1e-6) < spent < plain


def test_the_sum_is_unbiased_and_its_noise_is_the_devices() -> None:
    training = parse(
        declared(KEY, dimension=60, updates_per_round=50, min_updates=50, two_servers={"rho": 8.0})
    )
    moves = [vector(number, 60) for number in range(50)]
    exact = np.sum(moves, axis=0)
    errors = []
    for trial in range(60):
        coins = SeededCoins(trial)
        integers = sum(splitting.randomized(training, move, coins) for move in moves)
        errors.append(splitting.decode_sum(training, integers) - exact)
    found = np.array(errors)
    per_cell = math.sqrt(50 * float(training.split.variance)) / training.split.scale
    rounded = math.sqrt(50 * 0.25) / training.split.scale
    expected = math.hypot(per_cell, rounded)
    assert np.abs(found.mean(0)).max() < 5 * expected / math.sqrt(60)
    assert found.std() == pytest.approx(expected, rel=0.1)


REFUSED = {
    "a rule that reads single updates": (
        {"aggregation": {"rule": "median"}},
        "nobody can read single updates",
    ),
    "an encoding": ({"encoding": {"kind": "float32"}}, "leave it out with two_servers"),
    "no rho": ({"two_servers": {"rho": None}}, "rho, of the whole training, must be a number > 0"),
    "a key that is none": ({"two_servers": {"helper_key": "5f"}}, "64 hexadecimal digits"),
    "too few devices": ({"min_updates": 1}, "min_updates: expected 2 to"),
    "all collude": ({"two_servers": {"colluding": 1}}, "two_servers.colluding: expected 0 to"),
    "no modulus": ({"two_servers": {"bits": 20}}, "bits must be 16, 32 or 64, got 20"),
    "sums that wrap": (
        {"two_servers": {"bits": 16, "scale": 1e5}},
        "declare more bits or a smaller scale",
    ),
    "noise without end": ({"two_servers": {"rho": 1e-9}}, "two_servers.variance: expected 1 to"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused(case: str) -> None:
    changed, words = REFUSED[case]
    with pytest.raises(InvalidInput) as refused:
        declared(KEY, **changed)
    assert words in str(refused.value)


def test_a_share_is_no_larger_than_a_call_to_the_helper_takes() -> None:
    wire = training_pb2.Training.FromString(declared(KEY))
    wire.dimension = (1 << 19) + 1
    with pytest.raises(InvalidInput, match="has 4,194,304 at 32 bits"):
        parse(wire.SerializeToString(deterministic=True))


def test_both_servers_may_not_be_one() -> None:
    wire = training_pb2.Training.FromString(declared(KEY))
    wire.two_servers.leader_key = wire.two_servers.helper_key
    with pytest.raises(InvalidInput, match="both servers have one key"):
        parse(wire.SerializeToString(deterministic=True))


SURVEY = """
name = "{name}"
default_level = "standard"
{period}
[levels]
standard = 1.0
[two_servers]
helper_key = "{key}"
least = 100
delta = 1e-6
[[attributes]]
name = "way"
categorical = {{ values = ["a", "b", "c", "d", "e", "f", "g", "h"] }}
"""


@pytest.mark.parametrize("period", ["", 'period = "P1D"'])
def test_a_survey_with_the_name_of_a_training_does_not_sum_its_updates(
    pair: Pair, tmp_path: Path, period: str
) -> None:
    """The thresholds of both differ, and so does the noise that is enough."""
    name = f"t{os.urandom(4).hex()}"
    data = declared(pair.key, name=name, updates_per_round=200, min_updates=150)
    with contextlib.closing(open_folder(tmp_path / "leads")) as database, pair.helping() as helper:
        leader = Leader(pair, database, helper, data)
        numbers = range(1, 121)
        theirs = [
            (number.to_bytes(16, "big"), code[shares.LEADER_BYTES :])
            for number, code in zip(numbers, leader.send(*numbers), strict=True)
        ]
        updates_ = Part(leader.training.splitting, round=1)
        assert {each.status for _, each in helper.take(updates_, theirs)} == {1}
        with contextlib.closing(open_calls(pair.address)) as calls:
            gone = admin_pb2.DeleteTrainingRequest(training=name)
            calls.call("Admin/DeleteTraining", gone, admin_pb2.DeleteTrainingResponse, 20)
        create(pair.address, SURVEY.format(name=name, key=pair.key, period=period))
        # Of eight cells of 32 bits, as the updates are, and summed from a hundred on.
        survey = Part(leader.training.splitting, period=shares.round_name(1))
        ids = [id_ for id_, _ in theirs]
        with pytest.raises(NotReady, match="period"):
            helper.agree(survey, ids)
        with pytest.raises(NotReady, match="period"):
            helper.total(survey, b"".join(ids), bytes(survey.by.rest_bytes))
        with pytest.raises(NotReady, match="150 records or more"):
            helper.total(updates_, b"".join(ids), bytes(survey.by.rest_bytes))


def test_an_id_of_another_length_is_refused_and_spoils_no_set(leader: Leader) -> None:
    (code,) = leader.send(1)
    part = Part(leader.training.splitting, round=1)
    ((_, found),) = leader.helper.take(part, [(b"short", code[shares.LEADER_BYTES :])])
    assert found.status == found.REFUSED
    assert "an id has 16 bytes, got 5" in found.detail
