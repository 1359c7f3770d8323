"""The SDK against a real server."""

import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from moody import QUICK, Moody
from people import person

from hearsay import Analyst, Caps, Delivery, Reason, Unreachable
from hearsay.sending import packing
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from ldp import Coins
from ldp.errors import InvalidInput, NotReady, PlanRefused
from ldp.testing import SeededCoins
from support import (
    DAILY,
    SURVEY,
    Calendar,
    Server,
    at_once,
    device,
    new_client,
    over_both,
    wait_until,
)

TODAY = datetime.now(UTC).replace(hour=12)
YESTERDAY = TODAY - timedelta(days=1)


def answered(server: Server, level: str, people: int, **answers: object) -> None:
    """Have people who share a device answer "health" at a level, with coins that repeat."""
    with device(server.target, "health", level=level, coins=SeededCoins(people)) as client:
        for number in range(people):
            person(client, str(number), level).record(**answers)
    assert client.counters["stored"] > 0


@over_both
def test_answers_become_statistics(server: Server) -> None:
    for number in range(60):
        coins = SeededCoins(number)
        with device(server.target, "health", level="open", coins=coins) as client:
            assert client.record(smokes="yes", age=30 + number / 2).taken == ("smokes", "age")
        assert client.counters == {"recorded": 1, "stored": 1}
    with Analyst(server.target) as analyst:
        frame = analyst.estimate("health", "smokes").to_frame()
        assert list(frame.columns)[:4] == ["estimate", "standard_error", "low", "high"]
        assert list(frame.index) == ["no", "sometimes", "yes"]
        assert frame.attrs["reports"] == 60
        assert (frame["standard_error"] > 0).all()
        assert abs(frame.loc["yes", "estimate"] - 1) < 4 * frame.loc["yes", "standard_error"]
        mean = analyst.estimate("health", "age", confidence=0.9).to_frame().loc["mean"]
        assert abs(mean["estimate"] - 44.75) < 4 * mean["standard_error"]


@over_both
def test_what_leaves_the_device_can_be_looked_at(server: Server) -> None:
    with device(server.target, "health") as client:
        client.record(smokes="no")
        (report,) = client.outbox().reports
        assert report.rows == 1
        assert [(c.attribute, c.level, len(c.codes)) for c in report.columns] == [
            ("smokes", "strict", 1)
        ]
        assert client.outbox().reports == (report,)  # looking does not change it
        assert client.flush()
        waiting = client.outbox()
        assert not waiting
        (sent,) = waiting.sent
        assert sent.became == "stored"
        assert sent.batch.columns == report.columns
        assert len(sent.batch.id) == 16


def test_a_batchs_size_does_not_depend_on_the_answers(server: Server) -> None:
    sizes = set()
    for smokes, age in (("no", 20), ("yes", 60), ("sometimes", 33.3)):
        with device(server.target, "health") as client:
            client.record(smokes=smokes, age=age)
            sizes.add(client.outbox().reports[0].ByteSize())
    assert len(sizes) == 1


def test_an_attribute_is_randomised_once_per_period(server: Server) -> None:
    server.create(DAILY)
    calendar = Calendar()
    calendar.now = YESTERDAY
    with device(server.target, "daily", clock=calendar) as client:
        assert client.record(smokes="no").taken == ("smokes",)
        assert client.record(smokes="yes", age=30).taken == ("age",)
        assert client.record(smokes="yes").taken == ()
        calendar.now = TODAY
        assert client.record(smokes="yes").taken == ("smokes",)
        calendar.now = YESTERDAY  # a clock set back opens nothing
        assert client.record(smokes="yes", age=30).taken == ()
        assert client.status().reason is Reason.CLOCK
        assert client.counters["spent"] == 2
        assert client.counters["clock"] == 2
        assert client.flush()
        assert [(s.batch.period, s.batch.rows) for s in client.outbox().sent] == [
            (f"{YESTERDAY:%Y-%m-%d}", 2),
            (f"{TODAY:%Y-%m-%d}", 1),
        ]
    assert server.show("daily").status.records == 3


def test_rows_of_a_batch_are_in_random_order(server: Server) -> None:
    server.create(DAILY)
    calendar = Calendar()
    orders = set()
    for _ in range(20):
        with device(server.target, "daily", clock=calendar) as client:
            client.record(smokes="no")
            client.record(age=30)
            assert client.flush()
            (sent,) = client.outbox().sent
            orders.add(tuple(c.present for c in sent.batch.columns))
    assert orders == {(b"\x01", b"\x02"), (b"\x02", b"\x01")}


def test_withheld_answers_are_not_sent(server: Server) -> None:
    with device(server.target, "health") as client:
        assert client.record(smokes=None, age=25).taken == ("age",)
        assert [c.attribute for c in client.outbox().reports[0].columns] == ["age"]
        assert client.record().taken == ()


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"drinks": "no"}, "'health' has no attribute 'drinks'; it has smokes, age"),
        ({"smokes": "maybe"}, "smokes must be one of no, sometimes, yes, got another str"),
        ({"age": 61}, r"age must lie in \[20, 60\], got one outside"),
        ({"age": float("nan")}, "age must be finite, got nan or an infinity"),
    ],
)
def test_a_bad_answer_is_refused_before_anything_is_spent(
    server: Server, answers: dict[str, object], message: str
) -> None:
    with device(server.target, "health") as client:
        good: dict[str, object] = {"smokes": "no", "age": 30}
        with pytest.raises(InvalidInput, match=f"^{message}$"):
            client.record(**{**good, **answers})
        assert not client.outbox()
        assert client.record(**good).taken == ("smokes", "age")


def test_a_grant_that_another_process_noted_first_drops_nothing(
    server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        device(server.target, "health", ledger=file) as first,
        device(server.target, "health", ledger=file) as second,
    ):
        assert person(first, "ann").record(smokes="no")
        # The second looks before the first has noted, and writes after it has recorded.
        monkeypatch.setattr(second._device.consent, "_is_noted", lambda person: False)
        second.person("ann", level="strict").grant()
        assert len(first.outbox().reports) == 1


def test_a_closed_client_records_nothing(server: Server) -> None:
    client = device(server.target, "health")
    assert client.close()
    assert client.close()
    with pytest.raises(InvalidInput, match="this client is closed"):
        client.record(smokes="no")


def test_a_level_above_what_the_app_or_a_cap_allows_is_refused(server: Server) -> None:
    device(server.target, "health", epsilon=1.0).close()
    with pytest.raises(
        PlanRefused, match="'health' would spend epsilon 4, and the app allows epsilon=2"
    ):
        device(server.target, "health", level="open", epsilon=2.0)
    device(server.target, "health", caps=Caps(attribute={"age": 0.5})).close()
    with pytest.raises(PlanRefused, match=r"'strict' spends epsilon 0.5 on 'age', .* cap of 0.4"):
        device(server.target, "health", caps=Caps(attribute={"age": 0.4}))
    with pytest.raises(InvalidInput, match="the cap life must be finite and >= 0, got nan"):
        Caps(life=float("nan"))


def test_an_attribute_may_have_a_level_of_its_own(server: Server) -> None:
    open_ = {"age": "open"}
    with device(server.target, "health", levels=open_) as client:
        assert client.record_epsilon == 0.5 + 2.0
        client.record(smokes="no", age=30)
        (report,) = client.outbox().reports
        assert [(c.attribute, c.level) for c in report.columns] == [
            ("smokes", "strict"),
            ("age", "open"),
        ]
    assert client.counters["stored"] == 1
    with pytest.raises(PlanRefused, match=r"would spend epsilon 2\.5, .* allows epsilon=2$"):
        device(server.target, "health", levels=open_, epsilon=2.0)
    with pytest.raises(PlanRefused, match="'health' has no attribute 'drinks'"):
        device(server.target, "health", levels={"drinks": "open"})
    with pytest.raises(PlanRefused, match="level must be one of strict, open, got 'lax'"):
        device(server.target, "health", levels={"age": "lax"})


def test_what_is_spent_for_life_stays_under_its_cap(server: Server) -> None:
    server.create(DAILY)
    calendar = Calendar()
    with device(server.target, "daily", caps=Caps(life=1.5), clock=calendar) as client:
        calendar.now = YESTERDAY
        assert client.record(smokes="no", age=30).taken == ("smokes", "age")  # 0.5 each
        calendar.now = TODAY
        assert client.record(smokes="no", age=30).taken == ("smokes",)
        calendar.now = TODAY + timedelta(days=1)
        assert client.record(smokes="no", age=30).taken == ()
        assert client.counters["spent"] == 3
        smokes, age = client.spendings()
        assert (smokes.reports, smokes.life, smokes.left, smokes.answered) == (2, 1.0, 0.0, False)
        assert (age.reports, age.life, age.epsilon) == (1, 0.5, 0.5)


def test_a_sampled_record_reports_what_was_drawn_whatever_the_answers(server: Server) -> None:
    server.create(DAILY.replace('title = "A', 'budget = "sample"\ntitle = "A'))
    seen = set()
    for number in range(30):
        coins = SeededCoins(number)
        with device(server.target, "daily", coins=coins, clock=Calendar()) as client:
            first = client.record(smokes="no").taken + client.record(age=30).taken
            assert len(first) == 1
            assert client.record(smokes="yes", age=20).taken == ()  # the other is not drawn either
            assert client.counters["idle"] == 2
            seen |= set(first)
    assert seen == {"smokes", "age"}


def test_nothing_is_revealed_that_the_app_did_not_allow(server: Server) -> None:
    server.create(
        SURVEY.replace("health", "delicate")
        .replace('mechanism = "krr"', "")
        .replace('"sometimes", "yes"]', '"sometimes", "yes"]\nsensitive = ["yes"]')
    )
    with pytest.raises(
        PlanRefused, match=r"a report of 'smokes' may reveal no or sometimes; .*may_reveal="
    ):
        device(server.target, "delicate")
    with pytest.raises(PlanRefused, match="a report of 'smokes' may reveal sometimes; "):
        device(server.target, "delicate", may_reveal={"smokes": ["no", "yes"]})
    with pytest.raises(PlanRefused, match="'delicate' has no attribute 'drinks'"):
        device(server.target, "delicate", may_reveal={"drinks": ["no"]})
    ordinary = {"smokes": ["no", "sometimes"]}
    with device(
        server.target, "delicate", level="open", may_reveal=ordinary, coins=SeededCoins(1)
    ) as client:
        for number in range(200):
            answer = ("no", "yes", "no", "no")[number % 4]
            person(client, str(number), "open").record(smokes=answer)
    with Analyst(server.target) as analyst:
        frame = analyst.estimate("delicate", "smokes").to_frame()
        truth = [0.75, 0.0, 0.25]
        assert (abs(frame["estimate"] - truth) <= 4 * frame["standard_error"]).all()
        assert frame.attrs["method"] == "mle"


def test_levels_that_differ_are_not_pooled_in_silence(server: Server) -> None:
    answered(server, "strict", 120, smokes="no")
    answered(server, "open", 120, smokes="yes")
    with Analyst(server.target) as analyst:
        frame = analyst.estimate("health", "smokes").to_frame()
        assert frame.attrs["method"] == "stratified"
        assert frame.attrs["homogeneity"] < 0.01
        assert frame.loc["yes", "low"] < 0.5 < frame.loc["yes", "high"]
        assert frame.loc["yes", "alike"] > 0.6  # the open ones, who say more, are heard more
        assert 0 < frame.attrs["detectable_difference"] < 1
        with pytest.warns(UserWarning, match="the levels differ"):
            pooled = analyst.estimate("health", "smokes", method="mle").to_frame()
        assert pooled["estimate"].to_list() == frame["alike"].to_list()
        one = analyst.estimate("health", "smokes", levels=["open"]).to_frame()
        assert one.attrs["homogeneity"] is None
        assert one.attrs["warning"] == ""
        with pytest.raises(InvalidInput, match=r"method must be one of mle, gls, .* got 'magic'"):
            analyst.estimate("health", "smokes", method="magic").to_frame()


def test_an_analyst_may_choose_how_levels_are_pooled(server: Server) -> None:
    for level in ("strict", "open"):
        answered(server, level, 30, smokes="no", age=40)
    with Analyst(server.target) as analyst:
        for method in ("mle", "gls", "inverse_variance", "scalar"):
            frame = analyst.estimate("health", "smokes", method=method).to_frame()
            assert frame.attrs["method"] == method
            assert abs(frame.loc["no", "estimate"] - 1) < 4 * frame.loc["no", "standard_error"]


@over_both
def test_an_unknown_survey_or_level_is_refused(server: Server) -> None:
    with pytest.raises(InvalidInput, match="there is no survey 'wealth' here"):
        device(server.target, "wealth")
    with pytest.raises(PlanRefused, match="level must be one of strict, open, got 'lax'"):
        device(server.target, "health", level="lax")


@over_both
def test_no_server_is_no_error_and_nothing_is_lost(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = device(server.target, "health", delivery=QUICK)
    server.stop()
    other = new_client(server.target, "health")
    assert not other.wait_ready(timeout=0.5)
    wait_until(lambda: other.status().reason is Reason.UNREACHABLE)
    nobody = f"no server answers at {server.target}"
    assert (other.status().detail, other.status().transport) == (nobody, nobody)
    recorded = other.record(smokes="no")
    assert (recorded.taken, recorded.dropped) == ((), {"smokes": "unreachable"})
    assert other.counters == {"unreachable": 1}
    other.close(0)
    client.record(smokes="no")
    assert not client.flush(timeout=0.5)
    assert f"nothing was delivered, and it will be tried again: {nobody}" in caplog.text
    assert client.delivery.last_error == nobody
    assert client.delivery.last_success is None
    (waiting,) = client.outbox().batches
    server.start()
    assert client.flush(timeout=20)
    assert client.counters["stored"] == 1
    assert not client.outbox()
    # The same id and bytes went: sending them once more is a duplicate.
    with server.channel() as channel:
        request = collector_pb2.SubmitRequest(batches=[waiting])
        (result,) = collector_pb2_grpc.CollectorStub(channel).Submit(request).results
    assert result.status == collector_pb2.Result.DUPLICATE
    client.close()


@over_both
def test_a_server_that_lost_the_answer_counts_a_retry_once(server: Server) -> None:
    client = device(server.target, "health")
    client.record(smokes="no", age=40)
    sender = client._device.sender
    pause = object()
    sender.pause(pause, 10)
    assert sender.is_quiet
    revision = client.plan.revision
    packing.pack(client._device.store, "health", revision, Coins(), rows=512, size=1 << 20)
    (batch,) = client.outbox().batches
    with server.channel() as channel:
        request = collector_pb2.SubmitRequest(batches=[batch])
        collector_pb2_grpc.CollectorStub(channel).Submit(request)  # answered, but not to us
    sender.resume(pause)
    assert client.close()
    assert client.counters["duplicate"] == 1
    assert server.show("health").status.records == 1


@over_both
def test_a_refused_batch_is_dropped_counted_and_logged(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.create(DAILY)
    calendar = Calendar()
    calendar.now = datetime(1999, 1, 1, tzinfo=UTC)
    with device(server.target, "daily", clock=calendar) as client:
        client.record(smokes="no")
        assert client.flush()
        assert client.counters["period_closed"] == 1
    assert "the period '1999-01-01'" in caplog.text


@over_both
def test_what_may_be_taken_later_stays_queued(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = device(server.target, "health", delivery=QUICK)
    client.record(smokes="no")
    right, server.folder = server.folder, tmp_path / "wrong"
    server.stop()
    server.start()  # with the wrong folder: it knows no survey
    server.wait_until_healthy()
    while "there is no survey 'health' here" not in caplog.text:
        assert not client.flush(timeout=1)
    server.stop()
    server.folder = right
    server.start()
    assert client.flush(timeout=20)
    assert client.counters["stored"] == 1
    client.close()


def answer(*statuses: int) -> collector_pb2.SubmitResponse:
    results = [collector_pb2.Result(status=status, reason=99) for status in statuses]  # type: ignore[arg-type]
    return collector_pb2.SubmitResponse(results=results)


@over_both
def test_answers_of_no_known_kind_neither_raise_nor_end_a_batch(
    moody: tuple[Moody, str],
) -> None:
    servicer, address = moody
    # No result, too many, none that says anything, one of a later version; then a refusal.
    servicer.answers = [answer(), answer(1, 1), answer(0), answer(77), answer(3)]
    with device(address, "health", delivery=QUICK) as client:
        client.record(smokes="no")
        assert client.flush(timeout=20)
        assert servicer.answers == []
        assert client.counters["refused"] == 1


@over_both
def test_one_batch_without_an_answer_does_not_hold_up_the_next(
    moody: tuple[Moody, str], server: Server
) -> None:
    servicer, address = moody
    server.create(DAILY)
    servicer.plan = server.show("daily").plan
    servicer.answers = [answer(77), answer(1), answer(1)]
    calendar = Calendar()
    patient = Delivery(batch_age=3600.0, first_wait=0.05)
    with device(address, "daily", clock=calendar, delivery=patient) as client:
        calendar.now = YESTERDAY
        client.record(smokes="no")
        calendar.now = TODAY
        client.record(smokes="no")
        assert client.flush(timeout=20)
        assert client.counters["stored"] == 2
    assert servicer.answers == []


def test_a_plan_of_another_survey_is_refused(moody: tuple[Moody, str]) -> None:
    _, address = moody
    with pytest.raises(PlanRefused, match="asked for the survey 'wealth', got 'health'"):
        device(address, "wealth")


def test_a_plan_can_be_pinned(server: Server) -> None:
    revision = server.show("health").status.revision.hex()
    device(server.target, "health", revision=revision).close()
    with pytest.raises(
        PlanRefused, match=f"expected revision '{'ab' * 32}' of 'health', .* {revision}"
    ):
        device(server.target, "health", revision="ab" * 32)


def test_what_is_lost_at_the_close_is_said(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = device(server.target, "health")
    client.record(smokes="no")
    server.stop()
    assert not client.close(timeout=0.1)
    assert not client.close()
    wait_until(lambda: "1 reports that it had in memory are lost" in caplog.text)
    begin = time.monotonic()
    assert not client.flush(timeout=20)  # there is no connection left to wait for
    assert time.monotonic() - begin < 10


@over_both
def test_a_flush_waits_for_another_one_no_longer_than_it_was_told(server: Server) -> None:
    client = device(server.target, "health", delivery=QUICK)
    client.record(smokes="no")
    server.stop()
    other = threading.Thread(target=client.flush, kwargs={"timeout": 20})
    other.start()
    begin = time.monotonic()
    assert not client.flush(timeout=0.1)
    assert time.monotonic() - begin < 10
    server.start()
    other.join()
    assert client.close()
    assert client.counters["stored"] == 1


def test_an_attribute_may_have_any_name(server: Server) -> None:
    server.create(SURVEY.replace('"health"', '"selves"').replace('"smokes"', '"self"'))
    with device(server.target, "selves") as client:
        assert client.record(**{"self": "no"}).taken == ("self",)


def test_seeded_simulations_do_not_share_batch_ids(server: Server) -> None:
    for _ in range(2):
        coins = SeededCoins(1)
        with device(server.target, "health", coins=coins) as client:
            client.record(smokes="no")
        assert client.counters["stored"] == 1


@over_both
def test_a_proxy_of_the_environment_does_not_see_loopback(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with device(server.target, "health") as client:
        client.record(smokes="no")
    assert client.counters["stored"] == 1


def test_threads_share_a_client(server: Server) -> None:
    server.create(DAILY)
    client = device(server.target, "daily", clock=Calendar())
    taken = []

    def work() -> None:
        taken.extend(client.record(smokes="no", age=30).taken)
        client.flush()

    at_once(*[work] * 8)
    assert client.close()
    assert sorted(taken) == ["age", "smokes"]
    assert server.show("daily").status.records == 1


@over_both
def test_a_client_that_is_dropped_ends_its_thread_and_leaves_what_waits(
    server: Server, file: Path
) -> None:
    client = device(server.target, "health", ledger=file)
    client.record(smokes="no")
    thread = client._device.sender._thread
    assert thread is not None
    del client
    thread.join(20)
    assert not thread.is_alive()
    assert not Path(f"{file}-wal").exists()  # closed, and moved into the file
    with device(server.target, "health", ledger=file) as client:
        assert client.flush()
    assert server.show("health").status.records == 1


def test_what_a_dropped_client_had_in_memory_is_lost_and_said(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = device(server.target, "health")
    client.record(smokes="no")
    thread = client._device.sender._thread
    assert thread is not None
    del client
    thread.join(20)
    assert "1 reports that it had in memory are lost" in caplog.text


@over_both
def test_analysts_are_told_what_is_wrong(server: Server) -> None:
    with Analyst(server.target) as analyst:
        with pytest.raises(InvalidInput, match="no survey 'wealth' here"):
            analyst.estimate("wealth", "smokes").to_frame()
        with pytest.raises(InvalidInput, match="'health' has no attribute 'drinks'; it has smokes"):
            analyst.estimate("health", "drinks").to_frame()
        with pytest.raises(NotReady, match="no such reports of 'smokes' yet"):
            analyst.estimate("health", "smokes").to_frame()
        with pytest.raises(InvalidInput, match="level must be one of strict, open, got 'lax'"):
            analyst.estimate("health", "smokes", levels=["lax"]).to_frame()
        device(server.target, "health").close()
        with device(server.target, "health") as client:
            client.record(smokes="no")
        with pytest.raises(InvalidInput, match="confidence must lie strictly between 0 and 1"):
            analyst.estimate("health", "smokes", confidence=95).to_frame()
    server.stop(signal.SIGKILL)
    with Analyst(server.target, timeout=0.5) as analyst, pytest.raises(Unreachable):
        analyst.estimate("health", "smokes").to_frame()


def test_levels_can_be_looked_at_one_by_one(server: Server, tmp_path: Path) -> None:
    for level in ("strict", "open", "open"):
        with device(server.target, "health", level=level) as client:
            client.record(smokes="no")
    with Analyst(server.target) as analyst:
        assert analyst.estimate("health", "smokes").to_frame().attrs["reports"] == 3
        assert (
            analyst.estimate("health", "smokes", levels=["open"]).to_frame().attrs["reports"] == 2
        )
        answer = analyst.estimate("health", "smokes")
        assert [(c.level, c.reports) for c in answer.cohorts] == [("open", 2), ("strict", 1)]
