"""The way of a device that sends to an attested server alone."""

import secrets
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from google.protobuf.message import Message

from hearsay.attestation import AttestationRefused, Evidence, Policy
from hearsay.attestation.claims import SEALING
from hearsay.sending.transport import Answer, Tls, Transport, Unreachable
from hearsay.trouble import Reason
from hearsay.v1 import attestation_pb2, collector_pb2, shuffler_pb2
from ldp.errors import InvalidInput, needs

_PEM = b"-----BEGIN CERTIFICATE-----"


def key_of(tls: Tls | None, *, sealed: bool) -> bytes:
    """Return the key that the server's evidence must be bound to.

    That is the key of the one certificate in `tls.authorities`: the connection trusts nothing
    else, so it is made with this key. Where records are sealed it is `SEALING`. Raises
    `InvalidInput` where there is no such certificate, or more than one.
    """
    if sealed:
        return SEALING
    what = (
        "attestation binds the server's TLS key: give tls=Tls(authorities=FILE), whose file holds "
        "the server's own certificate and no other"
    )
    if tls is None or tls.authorities is None:
        raise InvalidInput(what)
    with needs("attestation", "attestation"):
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        pem = Path(tls.authorities).read_bytes()
        if pem.count(_PEM) != 1:
            raise InvalidInput(f"{what}; it holds {pem.count(_PEM)}")
        key = x509.load_pem_x509_certificate(pem).public_key()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{what}: {error}") from None
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class Attested:
    """A `Transport` that submits nothing to a server whose evidence the app's policy refuses.

    The server is asked for evidence before the first record of a plan leaves, and again once the
    last evidence is older than the policy's `max_age`. What fails is `Unreachable`, in words that
    name the condition: the records stay queued. Plans are fetched, and requests to forget
    are made, without evidence, unless they are sealed.
    """

    def __init__(
        self,
        server: Transport,
        policy: Policy,
        key: Callable[[], bytes],
        clock: Callable[[], datetime],
    ) -> None:
        """Submit to `server` by a policy. `key` is asked each time: connections read a renewed
        file of their certificate, too."""
        self._server = server
        self._policy = policy
        self._key = key
        self._clock = clock
        self._checked: dict[tuple[bytes, bytes], float] = {}
        """When, by the steady clock, the evidence of a revision and key was last accepted."""

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        return self._server.get_plan(survey, timeout)

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        self._check(batch.survey, batch.revision, timeout)
        return self._server.submit(batch, timeout)

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        return self._server.forget(survey, period, ids, timeout)

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        if isinstance(request, shuffler_pb2.SubmitSealedRequest):
            for record in request.records:
                self._check(record.survey, record.revision, timeout)
        return self._server.call(method, request, kind, timeout)

    def interrupt(self) -> None:
        self._server.interrupt()

    def close(self) -> None:
        self._server.close()

    def after_fork(self, *, usable: bool) -> None:
        self._server.after_fork(usable=usable)

    def _check(self, survey: str, revision: bytes, timeout: float) -> None:
        """Ask for evidence, unless that was done lately; raise `Unreachable` where it fails."""
        now = time.monotonic()
        try:
            key = self._key()
        except InvalidInput as error:
            raise Unreachable(str(error), reason=Reason.TLS) from None
        if now - self._checked.get((revision, key), -float("inf")) < self._policy.max_age:
            return
        nonce = secrets.token_bytes(32)
        request = attestation_pb2.GetEvidenceRequest(survey=survey, nonce=nonce)
        kind = attestation_pb2.GetEvidenceResponse
        try:
            answer = self._server.call("Attestation/GetEvidence", request, kind, timeout)
            self._policy.check(
                Evidence(answer.kind, answer.document, answer.collateral),
                spki=key,
                revision=revision,
                nonce=nonce,
                now=self._clock().timestamp(),
            )
        except InvalidInput as error:  # of the server's refusal, which says why
            words = f"the server gives no evidence of what it runs: {error}"
            raise Unreachable(words, reason=Reason.SERVER_REFUSED) from None
        except AttestationRefused as error:
            raise Unreachable(str(error), reason=Reason.SERVER_REFUSED) from None
        self._checked[revision, key] = now
