"""A server with a survey whose records are sealed, and who may hand them over."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from serving import connected, create, own_name, serving, tokens_of

from hearsay.plans.plan import Plan, parse
from hearsay.sealed import records
from hearsay.v1 import collector_pb2, collector_pb2_grpc, shuffler_pb2, shuffler_pb2_grpc
from hearsay_server.storage.tokens import Tokens
from support import DAILY, Calendar, free_port

SEALED = f"{DAILY}\n[sealing]\nkey_count = 3\n"


@dataclass
class Sealed:
    """A server, its tokens by role, and the survey of one test."""

    data: Path
    address: str
    clock: Calendar
    tokens: Tokens
    http: str
    survey: str = ""
    secrets: dict[str, str] = field(default_factory=dict)

    def token(self, role: str) -> str:
        """Return a token of a role."""
        if role not in self.secrets:
            self.secrets[role] = self.tokens.create(role)[1]
        return self.secrets[role]

    def plan(self) -> Plan:
        """Fetch the plan of the survey, as a shuffler does."""
        with connected(self.address, self.token("shuffler")) as channel:
            asked = collector_pb2.GetPlanRequest(survey=self.survey)
            stub = collector_pb2_grpc.CollectorStub(channel)
            return parse(stub.GetPlan(asked, timeout=20).plan)

    @property
    def today(self) -> str:
        return f"{self.clock.now:%Y-%m-%d}"

    def batch(self, number: int = 0, code: int = 0, **changed: Any) -> shuffler_pb2.Sealed:
        """Return a record of today; another number, another id."""
        column = collector_pb2.Column(attribute="smokes", level="strict", codes=bytes([code]))
        fields: dict[str, Any] = {
            "id": number.to_bytes(16, "big"),
            "survey": self.survey,
            "revision": self.plan().revision,
            "period": self.today,
            "rows": 1,
            "columns": [column],
        }
        return shuffler_pb2.Sealed(batch=collector_pb2.Batch(**(fields | changed)))

    def forget(self, number: int, period: str = "") -> shuffler_pb2.Sealed:
        """Return a request to forget a record."""
        forget = shuffler_pb2.Forget(period=period or self.today, id=number.to_bytes(16, "big"))
        return shuffler_pb2.Sealed(forget=forget)

    def seal(self, *contents: shuffler_pb2.Sealed) -> list[shuffler_pb2.SealedRecord]:
        """Seal contents today."""
        plan = self.plan()
        return [records.seal(plan, self.today, content) for content in contents]

    def submit(
        self, *sealed: shuffler_pb2.SealedRecord, token: str | None = None, mix: bytes = b""
    ) -> list[collector_pb2.Result]:
        """Hand sealed records over in one request, as a shuffler does."""
        with connected(self.address, token or self.token("shuffler")) as channel:
            stub = shuffler_pb2_grpc.SealedCollectorStub(channel)
            request = shuffler_pb2.SubmitSealedRequest(records=sealed, mix=mix)
            return list(stub.SubmitSealed(request, timeout=20).results)


@pytest.fixture(scope="module")
def sealed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    """A server whose clock a test may set; the tests of a module share it."""
    data, clock = tmp_path_factory.mktemp("sealed"), Calendar()
    http = f"127.0.0.1:{free_port()}"
    with serving(data, clock=clock, http=http) as address:
        yield Sealed(data, address, clock, tokens_of(data), http)


@pytest.fixture
def collector(sealed_server: Sealed, request: pytest.FixtureRequest) -> Sealed:
    """A server that stands at noon of today, with a survey of this test's own."""
    sealed_server.clock.now = Calendar().now
    sealed_server.survey = own_name(request)
    text = SEALED.replace('"daily"', f'"{sealed_server.survey}"')
    create(sealed_server.address, text, sealed_server.token("admin"))
    return sealed_server
