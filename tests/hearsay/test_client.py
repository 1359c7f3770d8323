"""The SDK against a real server."""

import signal
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hearsay import Analyst, Client, InvalidInput, Unreachable
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from support import SURVEY, Server

from ldp.testing import SeededCoins

DAILY = SURVEY.replace('title = "A', 'period = "P1D"\ntitle = "A').replace("health", "daily")


class Calendar:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime(2026, 7, 4, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_answers_become_statistics(server: Server) -> None:
    for person in range(60):
        coins = SeededCoins(person)
        with Client(server.address, "health", level="open", coins=coins) as client:
            assert client.record(smokes="yes", age=30 + person / 2) == ("smokes", "age")
        assert client.counters == {"recorded": 1, "spent": 0, "stored": 1}
    with Analyst(server.address) as analyst:
        frame = analyst.estimate("health", "smokes")
        assert list(frame.columns) == ["estimate", "standard_error", "low", "high"]
        assert list(frame.index) == ["no", "sometimes", "yes"]
        assert frame.attrs["reports"] == 60
        assert frame.loc["yes", "low"] <= 1 <= frame.loc["yes", "high"]
        assert (frame["standard_error"] > 0).all()
        assert abs(frame.loc["yes", "estimate"] - 1) < 4 * frame.loc["yes", "standard_error"]
        mean = analyst.estimate("health", "age", confidence=0.9).loc["mean"]
        assert abs(mean["estimate"] - 44.75) < 4 * mean["standard_error"]


def test_what_leaves_the_device_can_be_looked_at(server: Server) -> None:
    with Client(server.address, "health", level="strict") as client:
        client.record(smokes="no")
        (batch,) = client.outbox()
        assert batch.rows == 1
        assert [(c.attribute, c.level, len(c.codes)) for c in batch.columns] == [
            ("smokes", "strict", 1)
        ]
        assert client.outbox() == (batch,)  # looking does not change it
    assert client.outbox() == ()


def test_a_batchs_size_does_not_depend_on_the_answers(server: Server) -> None:
    sizes = set()
    for smokes, age in (("no", 20), ("yes", 60), ("sometimes", 33.3)):
        with Client(server.address, "health", level="strict") as client:
            client.record(smokes=smokes, age=age)
            sizes.add(client.outbox()[0].ByteSize())
    assert len(sizes) == 1


def test_an_attribute_is_randomised_once_per_period(server: Server) -> None:
    server.create(DAILY)
    calendar = Calendar()
    with Client(server.address, "daily", level="strict", clock=calendar) as client:
        assert client.record(smokes="no") == ("smokes",)
        assert client.record(smokes="yes", age=30) == ("age",)
        assert client.record(smokes="yes") == ()
        calendar.now = datetime(2026, 7, 5, tzinfo=UTC)
        assert client.record(smokes="yes") == ("smokes",)
        calendar.now = datetime(2026, 7, 4, tzinfo=UTC)  # a clock set back opens nothing
        assert client.record(smokes="yes", age=30) == ()
        assert client.counters["spent"] == 4
        assert [(b.period, b.rows) for b in client.outbox()] == [
            ("2026-07-04", 2),
            ("2026-07-05", 1),
        ]
        assert client.flush()
    assert server.show("daily").status.records == 3


def test_rows_of_a_batch_are_in_random_order(server: Server) -> None:
    server.create(DAILY)
    calendar = Calendar()
    orders = set()
    for _ in range(20):
        with Client(server.address, "daily", level="strict", clock=calendar) as client:
            client.record(smokes="no")
            client.record(age=30)
            orders.add(tuple(c.present for c in client.outbox()[0].columns))
    assert orders == {(b"\x01", b"\x02"), (b"\x02", b"\x01")}


def test_withheld_answers_are_not_sent(server: Server) -> None:
    with Client(server.address, "health", level="strict") as client:
        assert client.record(smokes=None, age=25) == ("age",)
        assert [c.attribute for c in client.outbox()[0].columns] == ["age"]
        assert client.record() == ()


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
    with Client(server.address, "health", level="strict") as client:
        good: dict[str, object] = {"smokes": "no", "age": 30}
        with pytest.raises(InvalidInput, match=f"^{message}$"):
            client.record(**{**good, **answers})
        assert client.outbox() == ()
        assert client.record(**good) == ("smokes", "age")


def test_a_closed_client_records_nothing(server: Server) -> None:
    client = Client(server.address, "health", level="strict")
    assert client.close()
    assert client.close()
    with pytest.raises(InvalidInput, match="this client is closed"):
        client.record(smokes="no")


def test_a_level_above_the_users_cap_is_refused(server: Server) -> None:
    Client(server.address, "health", level="strict", max_epsilon=1.0).close()
    with pytest.raises(InvalidInput, match=r"'open' spends epsilon 4 .* cap of 2"):
        Client(server.address, "health", level="open", max_epsilon=2.0)
    with pytest.raises(InvalidInput, match="above the user's cap of nan"):
        Client(server.address, "health", level="strict", max_epsilon=float("nan"))


def test_an_unknown_survey_or_level_is_refused(server: Server) -> None:
    with pytest.raises(InvalidInput, match="there is no survey 'wealth' here"):
        Client(server.address, "wealth", level="strict")
    with pytest.raises(InvalidInput, match="level must be one of strict, open, got 'lax'"):
        Client(server.address, "health", level="lax")


def test_no_server_is_an_error_at_the_start_and_none_later(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(server.address, "health", level="strict")
    server.stop()
    with pytest.raises(Unreachable):
        Client(server.address, "health", level="strict", timeout=0.5)
    client.record(smokes="no")
    assert not client.flush(timeout=0.5)
    assert "stays queued" in caplog.text
    (waiting,) = client.outbox()
    server.start()
    assert client.flush(timeout=20)
    assert client.counters["stored"] == 1
    assert client.outbox() == ()
    # The same id and bytes went: sending them once more is a duplicate.
    with server.channel() as channel:
        request = collector_pb2.SubmitRequest(batches=[waiting])
        (result,) = collector_pb2_grpc.CollectorStub(channel).Submit(request).results
    assert result.status == collector_pb2.Result.DUPLICATE
    client.close()


def test_a_server_that_lost_the_answer_counts_a_retry_once(server: Server) -> None:
    client = Client(server.address, "health", level="strict")
    client.record(smokes="no", age=40)
    (batch,) = client.outbox()
    with server.channel() as channel:
        request = collector_pb2.SubmitRequest(batches=[batch])
        collector_pb2_grpc.CollectorStub(channel).Submit(request)  # answered, but not to us
    assert client.close()
    assert client.counters["duplicate"] == 1
    assert server.show("health").status.records == 1


def test_a_refused_batch_is_dropped_counted_and_logged(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.create(DAILY)
    calendar = Calendar()
    calendar.now = datetime(2999, 1, 1, tzinfo=UTC)
    with Client(server.address, "daily", level="strict", clock=calendar) as client:
        client.record(smokes="no")
        assert client.flush()
        assert client.counters["refused"] == 1
    assert "BAD_PERIOD: the period '2999-01-01' has not begun yet" in caplog.text


def test_threads_share_a_client(server: Server) -> None:
    server.create(DAILY)
    client = Client(server.address, "daily", level="strict", clock=Calendar())
    taken = []

    def work() -> None:
        taken.extend(client.record(smokes="no", age=30))
        client.flush()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.close()
    assert sorted(taken) == ["age", "smokes"]
    assert server.show("daily").status.records == 1


def test_analysts_are_told_what_is_wrong(server: Server) -> None:
    with Analyst(server.address) as analyst:
        with pytest.raises(InvalidInput, match="no survey 'wealth' here"):
            analyst.estimate("wealth", "smokes")
        with pytest.raises(InvalidInput, match="'health' has no attribute 'drinks'; it has smokes"):
            analyst.estimate("health", "drinks")
        with pytest.raises(InvalidInput, match="no such reports of 'smokes' yet"):
            analyst.estimate("health", "smokes")
        with pytest.raises(InvalidInput, match="level must be one of strict, open, got 'lax'"):
            analyst.estimate("health", "smokes", levels=["lax"])
        Client(server.address, "health", level="strict").close()
        with Client(server.address, "health", level="strict") as client:
            client.record(smokes="no")
        with pytest.raises(InvalidInput, match="confidence must lie strictly between 0 and 1"):
            analyst.estimate("health", "smokes", confidence=95)
    server.stop(signal.SIGKILL)
    with Analyst(server.address, timeout=0.5) as analyst, pytest.raises(Unreachable):
        analyst.estimate("health", "smokes")


def test_levels_can_be_looked_at_one_by_one(server: Server, tmp_path: Path) -> None:
    for level in ("strict", "open", "open"):
        with Client(server.address, "health", level=level) as client:
            client.record(smokes="no")
    with Analyst(server.address) as analyst:
        assert analyst.estimate("health", "smokes").attrs["reports"] == 3
        assert analyst.estimate("health", "smokes", levels=["open"]).attrs["reports"] == 2
        answer = analyst.query("health", "smokes")
        assert [(c.level, c.reports) for c in answer.cohorts] == [("open", 2), ("strict", 1)]
