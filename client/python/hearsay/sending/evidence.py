"""Ask a server for evidence of the code that it runs, and hold it against the app's policy."""

import secrets
from collections.abc import Callable
from datetime import datetime

from hearsay.attestation import AttestationRefused, Evidence, Policy
from hearsay.sending.transport import Transport, Unreachable
from hearsay.trouble import Reason
from hearsay.v1 import attestation_pb2
from ldp.errors import InvalidInput


def ask(
    server: Transport,
    policy: Policy,
    clock: Callable[[], datetime],
    *,
    survey: str,
    revision: bytes,
    key: bytes,
    timeout: float,
) -> None:
    """Return once the server has given evidence that a survey's records go to `key` by the plan of
    this revision; raise `Unreachable`, in words that name the condition, where it has not."""
    nonce = secrets.token_bytes(32)
    request = attestation_pb2.GetEvidenceRequest(survey=survey, nonce=nonce)
    kind = attestation_pb2.GetEvidenceResponse
    try:
        answer = server.call("Attestation/GetEvidence", request, kind, timeout)
        policy.check(
            Evidence(answer.kind, answer.document, answer.collateral),
            spki=key,
            revision=revision,
            nonce=nonce,
            now=clock().timestamp(),
        )
    except InvalidInput as error:  # of the server's refusal, which says why
        words = f"the server gives no evidence of what it runs: {error}"
        raise Unreachable(words, reason=Reason.SERVER_REFUSED) from None
    except AttestationRefused as error:
        raise Unreachable(str(error), reason=Reason.SERVER_REFUSED) from None
