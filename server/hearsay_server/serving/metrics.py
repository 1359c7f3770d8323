"""Metrics for a Prometheus server to scrape. No metric is about one device or one address."""

import contextlib
import math
from collections.abc import Iterator, Sequence

import prometheus_client as prometheus

from hearsay.v1.collector_pb2 import Reason
from hearsay.v1.trainer_pb2 import Refusal
from hearsay_server.build import revision, version
from ldp.errors import ServerFailed

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_CALL_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

KINDS = ("analysis", "export")
"""Kinds of analysts' questions, each with limits of its own."""


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        """Make all of them, at zero."""
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        build = prometheus.Info("hearsay_build", "What runs.", registry=self.registry)
        build.info({"version": version(), "revision": revision()})
        self.received = self._counter("batches_received", "Batches that arrived.")
        self.batches = self._counter("batches", "Batches by what became of them.", "outcome")
        self.refused = self._counter(
            "batches_refused", "Batches refused, or told to come again, by reason.", "reason"
        )
        self.rows = self._counter("rows_stored", "Rows of the batches that are stored.")
        self.commit = self._histogram(
            "commit_seconds",
            "Time that a durable commit took, the decoding of its batches included.",
            _SECONDS,
        )
        self.commit_failures = self._counter("commit_failures", "Commits that failed.")
        self.queue_batches = self._gauge("queue_batches", "Batches that wait for the disk.")
        self.queue_bytes = self._gauge("queue_bytes", "Bytes of the batches that wait.")
        self.tally_lag = self._gauge(
            "tally_lag_seconds",
            "Time for which the first of the batches that wait is not in the tallies.",
        )
        self.open_calls = self._gauge("open_calls", "Calls under way.")
        self.call_seconds = self._histogram(
            "call_seconds", "Time that a call took, by method.", _CALL_SECONDS, "method"
        )
        self.questions_running = self._gauge(
            "questions_running", "Analysts' questions being answered.", "kind"
        )
        self.questions_waiting = self._gauge(
            "questions_waiting", "Analysts' questions that wait for others to end.", "kind"
        )
        self.question_seconds = self._histogram(
            "question_seconds", "Time that a question took to answer.", _CALL_SECONDS, "kind"
        )
        self.questions_killed = self._counter(
            "questions_killed", "Questions ended by a limit of one question.", "limit"
        )
        self.denied = self._counter(
            "auth_failures", "Calls without the token that they need.", "reason"
        )
        self.limited = self._counter(
            "limited", "Calls turned away by a limit, to come again.", "limit"
        )
        self.updates = self._counter(
            "updates", "Updates of trainings by what became of them.", "outcome"
        )
        self.updates_refused = self._counter("updates_refused", "Updates refused.", "reason")
        self.rounds = self._counter("rounds", "Rounds of trainings that are over.", "outcome")
        self.aggregation_seconds = self._histogram(
            "aggregation_seconds",
            "Time that it took to make a model of a round's updates.",
            _CALL_SECONDS,
        )
        self.aggregation_failures = self._counter(
            "aggregation_failures", "Rounds that could not be aggregated, at each attempt."
        )
        self.trainings_failing = self._gauge(
            "trainings_failing", "Trainings whose newest round could not be aggregated so far."
        )
        self.ready = self._gauge("ready", "1 while the database can be written, else 0.")
        self.no_descriptor = self._counter(
            "no_descriptor", "Looks, one a second, that found no descriptor left to open."
        )
        self.certificate_end = self._gauge(
            "certificate_end_seconds",
            "When the certificate in use ends, in seconds since 1970; NaN without TLS.",
        )
        self.certificate_end.set(math.nan)
        for reason in ("missing", "unknown", "expired", "revoked", "wrong_role"):
            self.denied.labels(reason)
        for limit in ("calls", "upload", "rate", "queue", *KINDS, "forget", "parts"):
            self.limited.labels(limit)
        for kind in KINDS:
            for metric in (self.questions_running, self.questions_waiting, self.question_seconds):
                metric.labels(kind)
        for limit in ("processor", "memory"):
            self.questions_killed.labels(limit)
        for outcome in ("stored", "duplicate", "refused", "retry"):
            self.batches.labels(outcome)
            self.updates.labels(outcome)
        for outcome in ("aggregated", "dropped"):
            self.rounds.labels(outcome)
        # A series that begins at 1 has not increased: an alert would miss the first refusal.
        for name in Reason.keys()[1:]:
            self.refused.labels(name)
        for name in Refusal.keys()[1:]:
            self.updates_refused.labels(name)

    def _counter(self, name: str, what: str, *labels: str) -> prometheus.Counter:
        return prometheus.Counter(f"hearsay_{name}", what, labels, registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> prometheus.Gauge:
        return prometheus.Gauge(f"hearsay_{name}", what, labels, registry=self.registry)

    def _histogram(
        self, name: str, what: str, seconds: Sequence[float], *labels: str
    ) -> prometheus.Histogram:
        return prometheus.Histogram(
            f"hearsay_{name}", what, labels, buckets=seconds, registry=self.registry
        )


@contextlib.contextmanager
def exposed(metrics: Metrics, address: str) -> Iterator[int | None]:
    """Serve /metrics at "HOST:PORT", or "PORT" of loopback, in the context; yield the port.

    An empty address serves nothing and yields None. Raises `ServerFailed` where the address
    cannot be bound.
    """
    if not address:
        yield None
        return
    host, _, port = address.rpartition(":")
    try:
        server, thread = prometheus.start_http_server(
            int(port), host.strip("[]") or "127.0.0.1", metrics.registry
        )
    except (OSError, ValueError, OverflowError) as error:
        raise ServerFailed(f"cannot serve metrics at {address!r}: {error}") from None
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
