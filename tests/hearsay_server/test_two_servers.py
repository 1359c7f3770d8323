"""Two servers sum what devices split between them, each record once, and nothing of few people."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import grpc
import numpy as np
import pytest
from command import hearsay
from helping import helping
from postgres import Postgres
from prometheus_client import Counter
from serving import connected, create, own_name, serving, tokens_of
from test_web_sdk import WEB, why_missing

from hearsay import Analyst, Client, InvalidInput, create_ledger
from hearsay.asking import Answer, wire
from hearsay.plans.plan import Plan, parse
from hearsay.plans.two_servers import MOST
from hearsay.sealed import hpke, shares
from hearsay.sending.transport import open_calls
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    analyst_pb2,
    analyst_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
    two_servers_pb2,
    two_servers_pb2_grpc,
)
from hearsay_server.helper import held
from hearsay_server.serving.helping import Helping
from hearsay_server.serving.summing import Summing, in_sets
from hearsay_server.storage import retention, sums
from hearsay_server.storage.database import open_folder, open_url
from hearsay_server.storage.sealing_keys import Keys
from hearsay_server.storage.tokens import Tokens
from hearsay_server.surveys import planning, two_servers
from hearsay_server.surveys import survey as surveys
from ldp.testing import SeededCoins
from ldp.two_servers.records import estimate
from ldp.two_servers.shares import join, split, sum_rests, sum_seeds
from support import Calendar, free_port, rows_of, wait_until

Result, Forgot = collector_pb2.Result, collector_pb2.ForgetResponse
LEAST = 100
TOML = """
name = "commute"
period = "P1D"
default_level = "standard"
[levels]
standard = 1.0
[two_servers]
helper_key = "{key}"
helper = "Example Foundation"
least = 100
delta = 1e-6
[[attributes]]
name = "way"
title = "How do you get to work?"
categorical = {{ values = ["bus", "train", "car"] }}
[[attributes]]
name = "minutes"
numeric = {{ low = 0, high = 120, clamp = true }}
"""


@dataclass
class Pair:
    """A server that leads and its helper, with a survey of one test."""

    data: Path
    helper_data: Path
    address: str
    helper: str
    clock: Calendar
    tokens: Tokens
    helper_tokens: Tokens
    survey: str = ""
    http: str = ""
    secrets: dict[str, str] = field(default_factory=dict)

    def token(self, role: str) -> str:
        if role not in self.secrets:
            tokens = self.helper_tokens if role == "leader" else self.tokens
            self.secrets[role] = tokens.create(role)[1]
        return self.secrets[role]

    @property
    def key(self) -> str:
        return held.look(self.helper_data)[0]

    @property
    def today(self) -> str:
        return f"{self.clock.now:%Y-%m-%d}"

    @property
    def over(self) -> str:
        """The day before, of which whatever waits is summed at once."""
        return f"{self.clock.now - timedelta(days=1):%Y-%m-%d}"

    def plan(self) -> Plan:
        with connected(self.address) as channel:
            asked = collector_pb2.GetPlanRequest(survey=self.survey)
            stub = collector_pb2_grpc.CollectorStub(channel)
            return parse(stub.GetPlan(asked, timeout=20).plan)

    def batches(
        self, ways: Sequence[str], first: int = 0, period: str = ""
    ) -> list[collector_pb2.Batch]:
        """Return the batches of devices that answer so; another number, another id."""
        plan, coins = self.plan(), SeededCoins(first)
        two = shares.of(plan)
        made = []
        for number, way in enumerate(ways, first):
            answers = {"way": plan.attributes["way"].domain.encode(way)}
            cells = two.layout.randomize(answers, two.variance, coins)
            id_ = number.to_bytes(16, "big")
            code = shares.seal(
                shares.splitting(plan), period or self.over, id_, *split(cells, two.bits, coins)
            )
            made.append(self.batch(plan, id_, code, period))
        return made

    def batch(self, plan: Plan, id_: bytes, code: bytes, period: str = "") -> collector_pb2.Batch:
        (name,) = plan.recorded
        column = collector_pb2.Column(attribute=name, level="standard", codes=code)
        return collector_pb2.Batch(
            id=id_,
            survey=plan.survey,
            revision=plan.revision,
            period=period or self.over,
            rows=1,
            columns=[column],
        )

    def submit(self, *batches: collector_pb2.Batch) -> list[collector_pb2.Result]:
        results: list[collector_pb2.Result] = []
        with connected(self.address) as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            for begin in range(0, len(batches), 256):
                request = collector_pb2.SubmitRequest(batches=batches[begin : begin + 256])
                results += stub.Submit(request, timeout=20).results
        return results

    def submit_each(self, batches: Sequence[collector_pb2.Batch]) -> None:
        for batch in batches:
            assert self.submit(batch)[0].status == Result.STORED

    def truth(self, batches: Sequence[collector_pb2.Batch]) -> list[int]:
        """Return the exact sum of records, which takes the keys of both servers."""
        plan = self.plan()
        two = shares.of(plan)
        database = open_folder(self.data)
        try:
            leader = Keys(database).of(plan)[0]
        finally:
            database.close()
        with sqlite3.connect(self.helper_data / "shares.db") as connection:
            ((private,),) = connection.execute("SELECT private FROM key")
        helper = hpke.private_key(private)
        seeds, rests = [], []
        for batch in batches:
            code, where = batch.columns[0].codes, (batch.period, batch.id)
            mine, theirs = code[: shares.LEADER_BYTES], code[shares.LEADER_BYTES :]
            seeds.append(shares.opened(shares.splitting(plan), "leader", *where, mine, leader))
            rests.append(shares.opened(shares.splitting(plan), "helper", *where, theirs, helper))
        of = two.layout.dim, two.bits
        return join(sum_seeds(seeds, *of), sum_rests(rests, *of), two.bits).tolist()

    def sums(self) -> list[sums.Sum]:
        database = open_folder(self.data)
        try:
            return sums.read(database, self.survey, lambda _: True)
        finally:
            database.close()

    def totals(self) -> list[list[int]]:
        return [np.frombuffer(each.total, "<i8").tolist() for each in self.sums()]

    def forget(self, *ids: bytes) -> list[int]:
        with connected(self.address) as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            asked = collector_pb2.ForgetRequest(survey=self.survey, period=self.over, ids=ids)
            return list(stub.Forget(asked, timeout=20).results)

    def waiting_at_helper(self) -> int:
        found = held.look(self.helper_data)[1]
        return sum(each.waiting for each in found if each.survey == self.survey)

    @contextlib.contextmanager
    def helper_file(self) -> Iterator[sqlite3.Connection]:
        file = self.helper_data / "shares.db"
        with contextlib.closing(sqlite3.connect(file, timeout=10, isolation_level=None)) as held:
            yield held

    @contextlib.contextmanager
    def as_leader(self) -> Iterator[two_servers_pb2_grpc.HelperStub]:
        """Call the helper as a server that leads may."""
        with connected(self.helper, self.token("leader")) as channel:
            yield two_servers_pb2_grpc.HelperStub(channel)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    data, clock, port = tmp_path_factory.mktemp("two"), Calendar(), free_port()
    helper, leader = data / "helper", data / "leader"
    held.Shares(helper).close()
    helper_tokens = tokens_of(helper)
    secret = helper_tokens.create("leader")[1]
    keys = {"helper": f"127.0.0.1:{port}", "helper_token": secret, "helper_seconds": 0.05}
    keys["http"] = http = f"127.0.0.1:{free_port()}"
    with serving(leader, clock=clock, **keys) as address, helping(helper, address, port, clock):
        names = leader, helper, address, keys["helper"]
        yield Pair(*names, clock, tokens_of(leader), helper_tokens, http=http)


@pytest.fixture(scope="module")
def halted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair whose leader sums nothing by itself: tests call `summing_of(pair).once()`."""
    data, clock, port = tmp_path_factory.mktemp("halted"), Calendar(), free_port()
    helper, leader = data / "helper", data / "leader"
    held.Shares(helper).close()
    helper_tokens = tokens_of(helper)
    secret = helper_tokens.create("leader")[1]
    keys = {"helper": f"127.0.0.1:{port}", "helper_token": secret, "helper_seconds": 1e6}
    with serving(leader, clock=clock, **keys) as address, helping(helper, address, port, clock):
        names = leader, helper, address, keys["helper"]
        yield Pair(*names, clock, tokens_of(leader), helper_tokens)


@contextlib.contextmanager
def summing_of(pair: Pair) -> Iterator[Summing]:
    """Yield what a leader that has just started sums with: it remembers nothing of before."""
    database, plan = open_folder(pair.data), pair.plan()
    calls = open_calls(pair.helper, token=pair.token("leader"))
    counted = Counter("records", "", ["became"], registry=None)
    try:
        yield Summing(database, lambda: [plan], Helping(calls), pair.clock, counted)
    finally:
        calls.close()
        database.close()


def declare(pair: Pair, name: str, text: str = TOML) -> None:
    """Register a survey with a helper, for the test that uses the pair."""
    pair.clock.now = Calendar().now
    pair.survey = name
    text = text.format(key=pair.key).replace('"commute"', f'"{name}"')
    create(pair.address, text, pair.token("admin"))


@pytest.fixture
def pair(both: Pair, request: pytest.FixtureRequest) -> Pair:
    declare(both, own_name(request))
    return both


# --- sums -----------------------------------------------------------------------------------------


def test_the_sum_of_both_servers_is_that_of_the_records(pair: Pair) -> None:
    batches = pair.batches(["bus"] * 70 + ["car"] * 30)
    assert {each.status for each in pair.submit(*batches[:99])} == {Result.STORED}
    wait_until(lambda: pair.waiting_at_helper() == 99)
    assert pair.totals() == []  # below the threshold nothing is summed
    assert {each.status for each in pair.submit(*batches)} == {Result.STORED, Result.DUPLICATE}
    wait_until(pair.totals)
    assert pair.totals() == [pair.truth(batches)]
    assert pair.waiting_at_helper() == 0


def test_each_record_is_in_one_sum_whatever_comes_later(pair: Pair) -> None:
    first, second = pair.batches(["bus"] * 100), pair.batches(["car"] * 150, first=1000)
    pair.submit(*first)
    wait_until(pair.totals)
    pair.submit(*first, *second)  # the first ones again
    wait_until(lambda: len(pair.totals()) == 2)
    assert [each.records for each in pair.sums()] in ([100, 150], [150, 100])
    assert sorted(pair.totals()) == sorted([pair.truth(first), pair.truth(second)])


def test_periods_are_summed_apart(pair: Pair) -> None:
    earlier = f"{pair.clock.now - timedelta(days=2):%Y-%m-%d}"
    old = pair.batches(["bus"] * 100, period=earlier)
    pair.submit(*old, *pair.batches(["car"] * 60, first=500))
    wait_until(pair.totals)
    (only,) = pair.sums()
    assert (only.period, only.records) == (earlier, 100)


def test_a_period_is_summed_once_it_is_over_with_all_that_came(pair: Pair) -> None:
    """Whoever is left out of a period's sums has spent epsilon for nothing."""
    batches = pair.batches(["bus"] * 199, period=pair.today)
    pair.submit(*batches[:100])
    wait_until(lambda: pair.waiting_at_helper() == 100)
    pair.submit(*batches[100:])
    wait_until(lambda: pair.waiting_at_helper() == 199)
    assert not pair.sums()
    day, next_day = pair.today, pair.clock.now + timedelta(days=1)
    pair.clock.now = next_day
    wait_until(pair.totals)
    assert pair.totals() == [pair.truth(batches)]
    late = pair.batches(["car"] * 100, first=1000, period=day)
    pair.submit(*late[:99])
    wait_until(lambda: pair.waiting_at_helper() == 99)
    pair.submit(*late)
    wait_until(lambda: len(pair.totals()) == 2)
    assert [each.records for each in pair.sums()] in ([199, 100], [100, 199])


def test_a_survey_without_periods_sums_what_has_gathered(halted: Pair) -> None:
    declare(halted, "once", TOML.replace('period = "P1D"', ""))
    batches = halted.batches(["bus"] * 230, period="once")
    with summing_of(halted) as leader:
        for first, last in ((0, 120), (120, 219), (219, 230)):
            halted.submit(*batches[first:last])
            leader.once()
    assert sorted(each.records for each in halted.sums()) == [110, 120]


def test_shares_that_the_helper_lost_before_a_period_ends_are_in_its_one_sum(halted: Pair) -> None:
    declare(halted, "lost_some")
    batches = halted.batches(["bus"] * 220, period=halted.today)
    halted.submit(*batches)
    with summing_of(halted) as leader, halted.helper_file() as file:
        leader.once()
        some = [batch.id for batch in batches[:70]]
        file.executemany("DELETE FROM shares WHERE id = ?", [(id_,) for id_ in some])
        assert halted.waiting_at_helper() == 150
        halted.clock.pass_days(1)
        leader.once()
    assert [each.records for each in halted.sums()] == [220]
    assert halted.totals() == [halted.truth(batches)]


def test_retention_leaves_what_waits_to_be_summed(halted: Pair) -> None:
    declare(halted, "kept_long", TOML.replace('"P1D"', '"P1M"'))
    period = f"{halted.clock.now:%Y-%m}"
    halted.submit(*halted.batches(["bus"] * 5, period=period))
    with contextlib.closing(open_folder(halted.data)) as database:
        retention.drop_some(database, 10**6)
        assert sums.waiting(database, "kept_long") == {period: 5}
        retention.close_survey(database, "kept_long")
        retention.drop_some(database, 10**6)
        assert sums.waiting(database, "kept_long") == {}


@pytest.mark.parametrize(
    ("records", "least", "sizes"),
    [
        (99, 100, []),
        (0, 100, []),
        (199, 100, [199]),
        (MOST, 100, [MOST]),
        (MOST + 1, 100, [MOST // 2, MOST // 2 + 1]),
        (200_000, 50_000, [50_000] * 4),
        (100_000, 60_000, [MOST]),  # and 34,464 wait
        (150_000, 60_000, [MOST, MOST]),
        (196_607, MOST, [MOST, MOST]),
    ],
)
def test_sets_are_as_few_and_as_equal_as_they_can_be(
    records: int, least: int, sizes: list[int]
) -> None:
    ids = [number.to_bytes(16, "big") for number in range(records)]
    sets = in_sets(ids, least)
    assert [len(some) for some in sets] == sizes
    assert [id_ for some in sets for id_ in some] == ids[: sum(sizes)]


def test_real_devices_are_summed_and_told(pair: Pair, tmp_path: Path) -> None:
    create_ledger(tmp_path / "ledger")
    with Client(
        pair.address,
        survey=pair.survey,
        epsilon=1.0,
        ledger=tmp_path / "ledger",
        consent=True,
        clock=lambda: pair.clock.now,
        helper_key=pair.key,
    ) as device:
        assert device.wait_ready()
        for number in range(120):
            person = device.person(f"person {number}")
            person.grant()
            assert person.record(way="bus" if number % 3 else "train", minutes=30)
        assert device.flush()
    pair.clock.pass_days(1)
    wait_until(pair.totals)
    told, minutes = answered(pair), answered(pair, "minutes")
    with Analyst(pair.address, token=pair.token("analyst")) as analyst:
        table = analyst.estimate(pair.survey, "way").to_frame()
        foretold = analyst.forecast(pair.survey, "way", goal=0.001)
    assert foretold.figures["rate"] is None  # what waits for the next sum is not known
    errors = foretold.to_frame()
    assert errors["with_twice"].tolist() == pytest.approx(
        (table["standard_error"] / 2**0.5).tolist()
    )
    assert table["estimate"].tolist() == [row.estimate for row in rows_of(told)]
    summed_up = sum(each.records for each in pair.sums())
    assert told.reports == minutes.reports == summed_up >= LEAST
    (bus, *_), (mean,) = rows_of(told), rows_of(minutes)
    assert bus.estimate == pytest.approx(2 / 3, abs=6 * bus.standard_error)
    assert mean.estimate == pytest.approx(30, abs=6 * mean.standard_error)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
def test_records_that_a_browser_splits_are_summed_and_told(pair: Pair) -> None:
    people, moment = 120, int(1000 * pair.clock.now.timestamp())
    script = Path(__file__).with_name("web_split.mjs")
    done = subprocess.run(
        [
            *("node", script, WEB / "dist" / "index.js", f"http://{pair.http}"),
            *(pair.key, pair.survey, str(moment), str(people)),
        ],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ready"] and told["sent"], told
    assert told["counters"]["stored"] == people
    assert "helperKey is none" in told["refused"]
    pair.clock.pass_days(1)
    wait_until(pair.totals)
    way, minutes = answered(pair), answered(pair, "minutes")
    assert LEAST <= way.reports <= people
    assert len(set(told["ids"])) == len(told["ids"]) == 100  # the outbox remembers the last 100
    (bus, *_), (mean,) = rows_of(way), rows_of(minutes)
    assert bus.estimate == pytest.approx(2 / 3, abs=6 * bus.standard_error)
    assert mean.estimate == pytest.approx(30, abs=6 * mean.standard_error)


def answered(pair: Pair, attribute: str = "way", **fields: object) -> Answer:
    with connected(pair.address, pair.token("analyst")) as channel:
        stub = analyst_pb2_grpc.AnswersStub(channel)
        request = analyst_pb2.EstimateRequest(
            survey=pair.survey,
            attribute=attribute,
            **fields,  # type: ignore[arg-type]
        )
        return wire.from_message(stub.Estimate(request, timeout=20))


def test_an_estimate_is_that_of_the_sum_with_its_error(pair: Pair) -> None:
    batches = pair.batches(["bus"] * 200 + ["car"] * 300)
    pair.submit(*batches)
    wait_until(lambda: sum(each.records for each in pair.sums()) == 500)
    answer = answered(pair)
    two = shares.of(pair.plan())
    (mine, _) = estimate(two.layout, pair.truth(batches), 500, two.variance)
    assert [row.label for row in rows_of(answer)] == ["bus", "train", "car"]
    assert [row.estimate for row in rows_of(answer)] == mine.values.tolist()
    assert [row.standard_error for row in rows_of(answer)] == mine.errors.tolist()
    assert (answer.reports, answer.method) == (500, "two servers")
    assert not answer.warning
    for row, share in zip(rows_of(answer), (0.4, 0, 0.6), strict=True):
        assert row.low <= share <= row.high  # 95% each; the coins are seeded
        assert abs(row.estimate - share) < 6 * row.standard_error
    wide = answered(pair, simultaneous=True)
    assert rows_of(wide)[0].low < rows_of(answer)[0].low


def test_what_sums_cannot_tell_is_refused_in_words(pair: Pair) -> None:
    with pytest.raises(grpc.RpcError) as none_yet:
        answered(pair)
    assert none_yet.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "one is made of 100 records" in none_yet.value.details()
    with pytest.raises(grpc.RpcError) as refused:
        answered(pair, top=2, selection=analyst_pb2.Selection(levels=["standard"]))
    assert "leave out top, levels" in refused.value.details()
    with connected(pair.address, pair.token("analyst")) as channel:
        stub = analyst_pb2_grpc.AnswersStub(channel)
        with pytest.raises(grpc.RpcError, match="summed by two servers"):
            list(stub.ExportRows(analyst_pb2.ExportRowsRequest(survey=pair.survey), timeout=20))
        with pytest.raises(grpc.RpcError, match="summed by two servers"):
            stub.Mixing(analyst_pb2.MixingRequest(survey=pair.survey), timeout=20)
        with pytest.raises(grpc.RpcError, match="summed by two servers"):
            stub.Crosstab(analyst_pb2.CrosstabRequest(survey=pair.survey), timeout=20)


@pytest.mark.parametrize(("cell", "votes"), [(0, 5000), (1, -5000)])
def test_a_count_that_no_answers_make_is_told(pair: Pair, cell: int, votes: int) -> None:
    """A device may add any number: what is impossible is seen, and nothing smaller."""
    plan = pair.plan()
    two, coins = shares.of(plan), SeededCoins(5)
    cells = np.zeros(two.layout.dim, np.int64)
    cells[cell] = votes * two.layout.scale
    code = shares.seal(
        shares.splitting(plan), pair.over, b"\xff" * 16, *split(cells, two.bits, coins)
    )
    pair.submit(*pair.batches(["bus"] * 100), pair.batch(plan, b"\xff" * 16, code))
    wait_until(lambda: sum(each.records for each in pair.sums()) == 101)
    assert "devices have added what they may not" in answered(pair).warning


# --- attacks on the helper ------------------------------------------------------------------------


def ids_of(batches: Sequence[collector_pb2.Batch]) -> bytes:
    return b"".join(batch.id for batch in batches)


def hand_over(pair: Pair, batches: Sequence[collector_pb2.Batch]) -> list[collector_pb2.Result]:
    with pair.as_leader() as helper:
        request = two_servers_pb2.TakeSharesRequest(
            survey=pair.survey,
            revision=pair.plan().revision,
            period=pair.over,
            shares=[
                two_servers_pb2.Share(
                    id=each.id, sealed=each.columns[0].codes[shares.LEADER_BYTES :]
                )
                for each in batches
            ],
        )
        return list(helper.TakeShares(request, timeout=20).results)


def summed(pair: Pair, ids: bytes) -> bytes:
    with pair.as_leader() as helper:
        request = two_servers_pb2.SumRequest(survey=pair.survey, period=pair.over, ids=ids)
        return bytes(helper.Sum(request, timeout=20).sum)


def test_a_leader_cannot_learn_of_one_person_by_the_difference_of_two_sums(pair: Pair) -> None:
    batches = pair.batches(["bus"] * 101)
    assert {each.status for each in hand_over(pair, batches)} == {Result.STORED}
    whole = summed(pair, ids_of(batches))
    for attack in (
        ids_of(batches[1:]),  # all but one of a set that was summed
        ids_of(batches[:100]),
    ):
        with pytest.raises(grpc.RpcError, match="it is in another sum") as refused:
            summed(pair, attack)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert summed(pair, ids_of(batches)) == whole  # the same set, the same answer
    # A share that comes again is no new one, so it makes no second sum possible.
    assert {each.status for each in hand_over(pair, batches)} == {Result.DUPLICATE}
    with pytest.raises(grpc.RpcError, match="it is in another sum"):
        summed(pair, ids_of(batches[1:]))


@pytest.mark.parametrize(
    ("choose", "why"),
    [
        (lambda ids: ids[: 99 * 16], "a sum is of 100 records or more, got 99"),
        (lambda ids: ids[:16] * 100, "must rise, each once"),
        (lambda ids: ids[16:] + ids[:16], "must rise, each once"),
        (lambda ids: ids[:-16] + b"\xff" * 16, "it never came"),
        (lambda ids: ids[:-1], "ids have 16 bytes each"),
    ],
    ids=["too few", "one a hundred times", "unsorted", "unknown", "cut off"],
)
def test_a_set_that_is_none_is_not_summed(pair: Pair, choose: object, why: str) -> None:
    batches = pair.batches(["bus"] * 100)
    hand_over(pair, batches)
    with pytest.raises(grpc.RpcError, match=why):
        summed(pair, choose(ids_of(batches)))  # type: ignore[operator]
    assert pair.waiting_at_helper() == 100  # nothing is lost


def test_the_helper_takes_no_share_of_another_record_period_or_plan(pair: Pair) -> None:
    plan = pair.plan()
    good, other = pair.batches(["bus", "car"])
    tampered = bytearray(good.columns[0].codes)
    tampered[-1] ^= 1
    wrong = [
        pair.batch(plan, good.id, other.columns[0].codes),
        pair.batch(plan, good.id, bytes(tampered)),
        pair.batch(plan, good.id, good.columns[0].codes[:-1]),
        pair.batches(["bus"], period="2026-01-01")[0],
    ]
    results = hand_over(pair, wrong)
    assert [(each.status, each.reason) for each in results] == [
        (Result.REFUSED, collector_pb2.BAD_SEALED)
    ] * len(wrong)
    with pair.as_leader() as helper:
        request = two_servers_pb2.TakeSharesRequest(
            survey=pair.survey,
            revision=bytes(32),
            period=pair.over,
            shares=[two_servers_pb2.Share(id=good.id, sealed=good.columns[0].codes)],
        )
        (result,) = helper.TakeShares(request, timeout=20).results
    assert result.reason == collector_pb2.UNKNOWN_REVISION
    assert pair.waiting_at_helper() == 0


def test_only_a_leader_may_call_the_helper(pair: Pair) -> None:
    device = pair.helper_tokens.create("device")[1]
    request = two_servers_pb2.SumRequest(survey=pair.survey, period=pair.over)
    for token, code in (
        (None, grpc.StatusCode.UNAUTHENTICATED),
        (device, grpc.StatusCode.PERMISSION_DENIED),
    ):
        with connected(pair.helper, token) as channel, pytest.raises(grpc.RpcError) as refused:
            two_servers_pb2_grpc.HelperStub(channel).Sum(request, timeout=20)
        assert refused.value.code() is code


def test_a_survey_with_the_key_of_another_helper_is_not_helped(pair: Pair) -> None:
    mine = pair.survey
    pair.survey = f"{mine}_2"
    other = hpke.new_pair()[1].hex()
    text = TOML.format(key=other).replace('"commute"', f'"{pair.survey}"')
    create(pair.address, text, pair.token("admin"))
    (result,) = hand_over(pair, pair.batches(["bus"]))
    assert result.status == Result.RETRY
    assert f"its helper has the key {other}" in result.detail


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_share_that_nobody_can_open_is_dropped_and_spoils_no_sum(pair: Pair) -> None:
    plan, good = pair.plan(), pair.batches(["bus"] * 100)
    size = len(good[0].columns[0].codes)
    first = good[0].columns[0].codes
    bad = [
        pair.batch(plan, b"\xff" * 16, bytes(size)),
        pair.batch(plan, b"\xfe" * 16, bytes(80) + first[80:]),
        pair.batch(plan, b"\xfd" * 16, first[:80] + bytes(size - 80)),
    ]
    pair.submit(*bad, *good)
    wait_until(pair.totals)
    assert pair.totals() == [pair.truth(good)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"codes": b"short"}, collector_pb2.BAD_CODES),
        ({"attribute": "way"}, collector_pb2.BAD_COLUMN),
        ({"level": "other"}, collector_pb2.BAD_COLUMN),
        ({"map": "other"}, collector_pb2.BAD_COLUMN),
    ],
)
def test_a_batch_that_is_no_record_of_shares_is_refused(
    pair: Pair, change: dict[str, object], reason: int
) -> None:
    (batch,) = pair.batches(["bus"])
    for name, value in change.items():
        setattr(batch.columns[0], name, value)
    (result,) = pair.submit(batch)
    assert (result.status, result.reason) == (Result.REFUSED, reason)


def test_what_was_forgotten_is_in_no_sum_and_what_was_summed_stays(pair: Pair) -> None:
    batches = pair.batches(["bus"] * 110)
    pair.submit(*batches[:99])
    assert pair.forget(batches[0].id) == [Forgot.FORGOTTEN]
    pair.submit(*batches)
    wait_until(pair.totals)
    assert pair.totals() == [pair.truth(batches[1:])]
    assert pair.forget(batches[1].id, batches[0].id) == [Forgot.SUMMED, Forgot.FORGOTTEN]


def test_shares_that_the_helper_lost_are_handed_over_again(pair: Pair) -> None:
    batches = pair.batches(["bus"] * 120)
    pair.submit(*batches[:90])
    wait_until(lambda: pair.waiting_at_helper() == 90)
    with sqlite3.connect(pair.helper_data / "shares.db", timeout=10) as connection:
        connection.execute("DELETE FROM shares WHERE survey = ?", (pair.survey,))
    pair.submit(*batches[90:])
    wait_until(pair.totals)
    wait_until(lambda: pair.waiting_at_helper() in (0, 90, 120) and bool(pair.totals()))
    assert sum(each.records for each in pair.sums()) >= LEAST
    done = pair.sums()[0].records
    assert done == 120
    assert pair.totals() == [pair.truth(batches)]


def test_a_set_that_the_helper_cannot_sum_holds_up_no_other(halted: Pair) -> None:
    """As where the helper's file was put back from a copy that is older than a set."""
    declare(halted, "put_back")
    lost, good = halted.batches(["bus"] * 100), halted.batches(["car"] * 120, first=1000)
    with summing_of(halted) as leader, halted.helper_file() as file:
        halted.submit(*lost)
        file.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON sums BEGIN SELECT RAISE(ABORT, ''); END"
        )
        leader.once()  # claims the set, and gets no sum
        file.execute("DROP TRIGGER broken")
        kept = file.execute("SELECT * FROM shares WHERE survey = ?", (halted.survey,)).fetchall()
        file.execute("DELETE FROM shares WHERE survey = ?", (halted.survey,))
        halted.submit(*good)
        leader.once()
        assert halted.totals() == [halted.truth(good)]
        file.executemany("INSERT INTO shares VALUES (?, ?, ?, ?)", kept)
        leader.once()  # it asked again for what it claimed
    assert sorted(halted.totals()) == sorted([halted.truth(good), halted.truth(lost)])


def test_too_few_records_of_a_closed_period_hold_up_no_later_one(halted: Pair) -> None:
    declare(halted, "left_over")
    halted.submit(*halted.batches(["bus"] * 30))
    with summing_of(halted) as leader:
        leader.once()
    halted.clock.pass_days(70)
    later = halted.batches(["car"] * 100, first=1000)
    halted.submit(*later)
    with summing_of(halted) as leader:  # it does not know what an earlier process handed over
        leader.once()
    assert halted.totals() == [halted.truth(later)]


@pytest.mark.slow
def test_records_of_many_cells_are_handed_over_in_messages_that_are_taken(halted: Pair) -> None:
    values = ", ".join(f'"{value}"' for value in range(9000))
    declare(halted, "many_cells", TOML.replace('"bus", "train", "car"', values))
    batches = halted.batches(["7"] * 130)
    halted.submit_each(batches)
    with summing_of(halted) as leader:
        leader.once()
    assert halted.totals() == [halted.truth(batches)]


def test_deleting_the_survey_deletes_its_sums_and_its_key(pair: Pair) -> None:
    pair.submit(*pair.batches(["bus"] * 100))
    wait_until(pair.totals)
    with connected(pair.address, pair.token("admin")) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        status = admin.ShowSurvey(admin_pb2.ShowSurveyRequest(survey=pair.survey), timeout=20)
        assert status.status.records == 100
        admin.DeleteSurvey(admin_pb2.DeleteSurveyRequest(survey=pair.survey), timeout=20)
    wait_until(lambda: hearsay("retention", "--data", pair.data).returncode == 0)
    wait_until(lambda: not pair.sums())


def test_a_name_that_the_helper_keeps_is_not_registered_again(pair: Pair) -> None:
    """It would take no share of the new plan, and devices would be charged for nothing."""
    pair.submit(*pair.batches(["bus"] * 100))
    wait_until(pair.totals)
    declare(pair, pair.survey)  # as it is: nothing changes
    with connected(pair.address, pair.token("admin")) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        admin.DeleteSurvey(admin_pb2.DeleteSurveyRequest(survey=pair.survey), timeout=20)
    with pytest.raises(grpc.RpcError) as refused:
        declare(pair, pair.survey)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "sums no records of another one: choose another name" in refused.value.details()
    with connected(pair.address, pair.token("admin")) as channel:
        listed = admin_pb2_grpc.AdminStub(channel).ListSurveys(admin_pb2.ListSurveysRequest())
    assert pair.survey not in [each.survey for each in listed.surveys]


def test_a_survey_is_registered_while_its_helper_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = {"helper": f"127.0.0.1:{free_port()}", "helper_token": "x" * 43}
    with serving(tmp_path, clock=Calendar(), **away) as address:
        text = TOML.format(key=hpke.new_pair()[1].hex())
        create(address, text, tokens_of(tmp_path).create("admin")[1])
    assert "the helper cannot be asked whether it keeps an earlier plan" in caplog.text


def test_a_survey_is_refused_by_a_server_without_a_helper(tmp_path: Path) -> None:
    with serving(tmp_path, clock=Calendar()) as address:
        text, token = TOML.format(key=hpke.new_pair()[1].hex()), tokens_of(tmp_path).create("admin")
        with pytest.raises(grpc.RpcError, match="start it with --helper HOST:PORT"):
            create(address, text, token[1])


def test_the_helpers_operator_sees_what_it_holds(pair: Pair) -> None:
    pair.submit(*pair.batches(["bus"] * 30))
    wait_until(lambda: pair.waiting_at_helper() == 30)
    shown = hearsay("helper", "show", "--data", pair.helper_data, COLUMNS="80")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert pair.key in shown.stdout
    assert "a sum is of 100 records or more" in shown.stdout
    made = hearsay("helper", "key", "--data", pair.data / "another")
    assert len(made.stdout.strip()) == 64
    assert hearsay("helper", "key", "--data", pair.data / "another").stdout == made.stdout


def test_a_helper_waits_for_its_turn(tmp_path: Path) -> None:
    kept = held.Shares(tmp_path)
    with pytest.raises(InvalidInput, match="another helper has"):
        held.Shares(tmp_path)
    kept.close()
    with pytest.raises(InvalidInput, match="no helper's data"):
        held.look(tmp_path / "elsewhere")


def test_commands_show_a_survey_and_a_device_that_splits(pair: Pair, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    create_ledger(ledger)
    with Client(
        pair.address,
        survey=pair.survey,
        epsilon=1.0,
        ledger=ledger,
        consent=True,
        clock=lambda: pair.clock.now,
        helper_key=pair.key,
    ) as device:
        assert device.wait_ready()
        assert device.record(way="bus")
        assert device.flush()
    shown = hearsay("device", "show", ledger, COLUMNS="80")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "holds while one of the two is honest" in " ".join(shown.stdout.split())
    assert "two sealed" in shown.stdout
    words = " ".join(shown.stdout.split())
    assert "but for a probability" not in words  # nothing was reported that holds against everybody
    assert words.count("records split between two servers: epsilon 1 at delta 1e-06") == 2
    told = hearsay(
        *("survey", "show", pair.survey, "--target", pair.address),
        *("--token", pair.token("admin")),
        COLUMNS="80",
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert pair.key in told.stdout
    assert "100 summed at least" in told.stdout
    verified = hearsay("verify", "--data", pair.data)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_what_explains_single_answers_says_that_sums_have_none(tmp_path: Path) -> None:
    text = TOML.format(key=hpke.new_pair()[1].hex())
    with pytest.raises(InvalidInput, match="its records are summed by two servers"):
        planning.planned([("commute.toml", text.encode())], 1000)
    file = tmp_path / "commute.toml"
    file.write_text(text)
    priced = hearsay("plan", "--prices", "--survey", file)
    assert priced.returncode == 1
    assert "its records are summed by two servers" in priced.stderr
    told = hearsay("survey", "explain", file, COLUMNS="80")
    assert (told.returncode, told.stderr) == (0, "")
    assert "Both servers together see each record" in " ".join(told.stdout.split())
    assert "which devices check. By the exact divergence it is 0.99999" in " ".join(
        told.stdout.split()
    )
    few = hearsay("survey", "explain", file, "--users", 99, COLUMNS="80")
    assert (few.returncode, few.stderr) == (0, "")
    assert "No sum can be made of 99 users" in few.stdout
    assert "local noise" in told.stdout
    assert "local noise" not in few.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80


THREE = """
name = "three"
[levels]
standard = 1.0
[two_servers]
helper_key = "{key}"
delta = 1e-6
least = {least}
""" + "".join(
    f'[[attributes]]\nname = "{name}"\ncategorical = {{{{ values = ["1", "2", "3", "4"] }}}}\n'
    for name in "abc"
)


def without_sampling(people: int, least: int) -> tuple[str, str]:
    """Return the errors of a share by two servers and by local noise, noise alone."""
    text = THREE.format(key=hpke.new_pair()[1].hex(), least=least)
    plan = parse(surveys.resolve(surveys.from_toml(text, "three")))
    sampling = 0.25 * 0.75 / people
    two, local = two_servers.errors(plan, 1.0, people)["a"]
    return decimal(math.sqrt(two**2 - sampling)), decimal(math.sqrt(local**2 - sampling))


def decimal(value: float) -> str:
    """Return a number with two digits that count."""
    return f"{value:.{1 - math.floor(math.log10(value))}f}"


def test_what_two_servers_gain_is_what_the_code_computes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "two-servers.md").read_text()
    _, _, table = page.partition("| people | two servers, `least` 1,000 |")
    rows = [
        [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        for line in table.partition("\n\n")[0].splitlines()[2:]
    ]
    assert [int(row[0]) for row in rows] == [1_000, 10_000, 100_000, 1_000_000]
    for people, usual, best, least, local in rows:
        count = int(people)
        assert int(least) == count // -(-count // MOST)
        ids = [number.to_bytes(16, "big") for number in range(count)]
        assert sum(map(len, in_sets(ids, int(least)))) == count  # nobody is left out
        assert without_sampling(count, 1000) == (usual, local)
        assert without_sampling(count, int(least)) == (best, local)
        assert float(best) <= float(usual) < math.sqrt(0.25 * 0.75 / count)


def test_a_server_with_postgresql_leads(tmp_path: Path, postgres: Postgres) -> None:
    url, clock, port = postgres.create(), Calendar(), free_port()
    helper = tmp_path / "helper"
    held.Shares(helper).close()
    secret = tokens_of(helper).create("leader")[1]
    keys = {"helper": f"127.0.0.1:{port}", "helper_token": secret, "helper_seconds": 0.05}
    with (
        serving(tmp_path / "unused", clock=clock, database=url, **keys) as address,
        helping(helper, address, port, clock),
    ):
        database = open_url(url)
        pair = Pair(
            helper, helper, address, keys["helper"], clock, Tokens(database), tokens_of(helper)
        )
        pair.survey = "commute"
        create(address, TOML.format(key=pair.key))
        batches = pair.batches(["bus"] * 130)
        assert {each.status for each in pair.submit(*batches)} == {Result.STORED}
        assert pair.forget(batches[0].id) in ([Forgot.FORGOTTEN], [Forgot.SUMMED])
        pair.submit(*pair.batches(["car"] * 100, first=1000))

        def told() -> int:
            return sum(each.records for each in sums.read(database, "commute", lambda _: True))

        wait_until(lambda: told() >= 229)
        answer = answered(pair)
        assert answer.reports == told()
        bus = rows_of(answer)[0]
        assert abs(bus.estimate - 130 / 230) < 6 * bus.standard_error
        database.close()
