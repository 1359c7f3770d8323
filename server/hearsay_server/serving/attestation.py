"""The Attestation service: evidence of the code that runs, for devices that ask for it."""

import asyncio
import logging

import grpc

from hearsay.attestation.claims import SEALING, binding
from hearsay.plans.plan import Plan
from hearsay.v1 import attestation_pb2, attestation_pb2_grpc
from hearsay_server.clock import Clock, system
from hearsay_server.serving.attesters import Attester
from hearsay_server.serving.status import MENDED, Ended
from hearsay_server.serving.tls import Certificates
from hearsay_server.storage import sealing_keys
from hearsay_server.storage.store import Store
from ldp import InvalidInput

_log = logging.getLogger("hearsay.server")


class Attestation(attestation_pb2_grpc.AttestationServicer):
    """The Attestation service."""

    def __init__(
        self,
        store: Store,
        attester: Attester | None,
        certificates: Certificates | None,
        clock: Clock = system,
    ) -> None:
        self._plans = store.plans
        self._keys = sealing_keys.Keys(store.database)
        self._attester = attester
        self._certificates = certificates
        self._clock = clock
        self._one = asyncio.Lock()  # platforms answer one question at a time

    async def GetEvidence(  # noqa: N802
        self, request: attestation_pb2.GetEvidenceRequest, context: object
    ) -> attestation_pb2.GetEvidenceResponse:
        if self._attester is None:
            detail = "this server makes no evidence: its operator did not set attestation"
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, detail)
        plan = await asyncio.to_thread(self._plans.find, request.survey)
        if plan is None:
            raise Ended(grpc.StatusCode.NOT_FOUND, f"there is no survey {request.survey!r} here")
        if plan.sealing is None and self._certificates is None:
            detail = (
                "there is no key to bind evidence to: the server has no TLS, and the records of "
                f"{request.survey!r} are not sealed"
            )
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, detail)
        if plan.sealing is not None:
            await self._check_keys(plan)
        try:
            certificates = self._certificates if plan.sealing is None else None
            key = SEALING if certificates is None else certificates.public_key()
            bound = binding(key, plan.revision, request.nonce)
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        try:
            async with self._one:
                made = await asyncio.to_thread(self._attester.evidence, bound)
        except Exception as error:  # of a platform, or of the service of its collateral
            _log.exception("no evidence could be made")
            detail = f"no evidence could be made: {type(error).__name__}"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error
        return attestation_pb2.GetEvidenceResponse(
            kind=made.kind, document=made.document, collateral=made.collateral
        )

    async def _check_keys(self, plan: Plan) -> None:
        """End the call unless this server can open what is sealed by a plan: the plan alone may
        have been made elsewhere, and its private keys be with somebody else."""
        now = self._clock()
        lacking = await asyncio.to_thread(sealing_keys.lacking, self._keys, plan, now)
        if lacking:
            detail = (
                f"this server does not have all private sealing keys of {plan.survey!r}: those at "
                f"{lacking} are missing or others"
            )
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, detail)
