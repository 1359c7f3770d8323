"""The way of a device that sends to an attested server alone, without a shuffler."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from google.protobuf.message import Message

from hearsay.attestation import Policy
from hearsay.sending import evidence
from hearsay.sending.transport import Answer, Tls, Transport, Unreachable
from hearsay.sending.uptime import uptime
from hearsay.trouble import Reason
from hearsay.v1 import collector_pb2
from ldp.errors import InvalidInput, needs

_PEM = b"-----BEGIN CERTIFICATE-----"


def pinned(tls: Tls | None) -> tuple[Tls, bytes]:
    """Read the one certificate of `tls.authorities`; return a `Tls` of its bytes, and its key.

    A connection by that `Tls` trusts nothing else, whatever its file holds later, so it is made
    with this key. Raises `InvalidInput` where there is no such certificate, or more than one.
    """
    what = (
        "attestation binds the server's TLS key: give tls=Tls(authorities=FILE), whose file holds "
        "the server's own certificate and no other"
    )
    if tls is None or tls.authorities is None:
        raise InvalidInput(what)
    with needs("attestation", "attestation"):
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    given = tls.authorities
    try:
        pem = given if isinstance(given, bytes) else Path(given).read_bytes()
        if pem.count(_PEM) != 1:
            raise InvalidInput(f"{what}; it holds {pem.count(_PEM)}")
        certificate = x509.load_pem_x509_certificate(pem)
        key = certificate.public_key()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{what}: {error}") from None
    # This certificate alone, written anew: the file may have other things around it.
    alone = replace(tls, authorities=certificate.public_bytes(Encoding.PEM))
    return alone, key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class Attested:
    """A `Transport` that submits nothing to a server whose evidence the app's policy refuses.

    The server is asked for evidence before the first record of a plan leaves, and again once the
    last evidence is older than the policy's `max_age`. What fails is `Unreachable`, in words that
    name the condition: the records stay queued. Plans are fetched, and requests to forget
    are made, without evidence.

    The file of the server's certificate is read at each call, once for the connection and for the
    key that the evidence must be of. Where the certificate is another one, nothing goes over the
    connections of the last one any more, and evidence is asked for on a new one.
    """

    def __init__(
        self,
        connect: Callable[[Tls], Transport],
        tls: Tls | None,
        policy: Policy,
        clock: Callable[[], datetime],
    ) -> None:
        """Submit by a policy to the server that `connect` reaches. Raises `InvalidInput` where
        `tls` does not name its certificate, and as `connect`."""
        self._connect = connect
        self._files = tls
        self._policy = policy
        self._clock = clock
        self._usable = True
        self._tls, self._key = pinned(tls)
        self._server = connect(self._tls)
        self._checked: dict[bytes, float] = {}
        """When, by the steady clock, the evidence for a revision was last accepted."""

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        self._renew()
        return self._server.get_plan(survey, timeout)

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        self._renew()
        self._check(batch.survey, batch.revision, timeout)
        return self._server.submit(batch, timeout)

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        self._renew()
        return self._server.forget(survey, period, ids, timeout)

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        self._renew()
        return self._server.call(method, request, kind, timeout)

    def interrupt(self) -> None:
        self._server.interrupt()

    def close(self) -> None:
        self._server.close()

    def after_fork(self, *, usable: bool) -> None:
        self._usable = usable
        self._server.after_fork(usable=usable)

    def _renew(self) -> None:
        """Take another way to the server where the file has another certificate."""
        try:
            tls, key = pinned(self._files)
            if tls == self._tls:
                return
            server = self._connect(tls)
        except InvalidInput as error:
            raise Unreachable(str(error), reason=Reason.TLS) from None
        if not self._usable:
            server.after_fork(usable=False)
        self._server.close()
        self._server, self._tls, self._key, self._checked = server, tls, key, {}

    def _check(self, survey: str, revision: bytes, timeout: float) -> None:
        """Ask for evidence, unless that was done lately; raise `Unreachable` where it fails."""
        now = uptime()
        if now - self._checked.get(revision, -float("inf")) < self._policy.max_age:
            return
        evidence.ask(
            self._server,
            self._policy,
            self._clock,
            survey=survey,
            revision=revision,
            key=self._key,
            timeout=timeout,
        )
        self._checked[revision] = now
