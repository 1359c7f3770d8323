"""Admission of calls by service and token, and the caller of the call under way."""

import asyncio
import logging
import time
from contextvars import ContextVar
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from hearsay_server.serving.status import Ended
from hearsay_server.storage.tokens import Token, Tokens, hashed

_log = logging.getLogger("hearsay.server")

ROLES = {
    "hearsay.v1.Collector": "device",
    "hearsay.v1.Trainer": "device",
    "hearsay.v1.Shuffler": "device",
    "hearsay.v1.Attestation": "device",
    "hearsay.v1.SealedCollector": "shuffler",
    "hearsay.v1.Helper": "leader",
    "hearsay.v1.Answers": "analyst",
    "hearsay.v1.Admin": "admin",
}
"""The role that each service is for."""

ALSO = {
    "hearsay.v1.Collector/GetPlan": "shuffler",
    "hearsay.v1.Admin/ListSurveys": "analyst",
    "hearsay.v1.Admin/ShowSurvey": "analyst",
    "hearsay.v1.Admin/Metrics": "analyst",
    "hearsay.v1.Trainer/GetModel": "admin",
    "hearsay.v1.Admin/Planner": "analyst",
}
"""Another role that may call a method, besides the role of its service."""

OPERATED = ("shuffler", "leader")
"""Roles of processes of another operator: they need a token even where none was ever made."""

EVERYBODY = {health.SERVICE_NAME, reflection.SERVICE_NAME}
"""Services open to all. Services in neither map need an admin token."""

OPERATORS = "hearsay.v1.Admin/Pages"
ANALYSTS = "hearsay.v1.Answers/Pages"
PLANNERS = "hearsay.v1.Admin/Planner"
"""Admit to pages, as a method would."""

Proof = str | bytes | None
"""What a call comes with: a token; the hash of one, which a session is for; or nothing."""

_FRESH = 1.0
"""Seconds for which a token that was looked up is trusted: a revocation takes as long."""

_ENDED = {"expired": "has expired", "revoked": "was revoked"}

_REMEMBERED = 1 << 16
"""Most tokens whose last look-up is remembered."""

_caller: ContextVar[str] = ContextVar("hearsay_caller", default="")


def caller() -> str:
    """Return the id of the token that the call under way was made with; "" for none."""
    return _caller.get()


def called_by(token: str) -> None:
    """Set the id of the token that the call under way was made with."""
    _caller.set(token)


def bearer(header: str) -> str | None:
    """Return the token of the value of an `authorization` header, None for another scheme."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


class Denied(Ended):
    """A call is not let in."""

    def __init__(self, code: grpc.StatusCode, detail: str, reason: str) -> None:
        super().__init__(code, detail)
        self.reason = reason


@dataclass(frozen=True)
class _Look:
    token: Token | None
    until: float


class Policy:
    """Decide by a call's service and token whether it may be made."""

    def __init__(self, tokens: Tokens, *, loopback: bool, require_device_token: bool) -> None:
        """Require tokens: always off loopback, and on it as soon as one was ever made."""
        self._tokens = tokens
        self._required = not loopback or tokens.any()  # known before the first call comes
        self._require_device_token = require_device_token
        self._looks: dict[bytes, _Look] = {}  # by hash: a secret is not kept, even in memory
        self._recording: dict[bytes, asyncio.Task[None]] = {}
        self._checked = -_FRESH

    async def admit(self, method: str, proof: Proof) -> str:
        """Return the id of the caller's token, "" for none; raise `Denied`.

        `method` is "service/name", `proof` what the call came with.
        """
        service = method.partition("/")[0]
        if service in EVERYBODY:
            return ""
        role = ROLES.get(service, "admin")
        asked = await self.asks()
        needed = (
            self._require_device_token
            if role == "device"
            else asked or role in ("shuffler", "leader")
        )
        if not needed and (proof is None or not asked):
            return ""
        if proof is None:
            detail = f"{service} needs `authorization: Bearer TOKEN` with a token of role {role}"
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, detail, "missing")
        token = await self.working(proof)
        if token.role not in (role, ALSO.get(method)):
            detail = f"{service} needs a token of role {role}, this one is of role {token.role}"
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, detail, "wrong_role")
        return token.id

    async def working(self, proof: str | bytes) -> Token:
        """Return the record of a token that works; raise `Denied` for another one."""
        token = await self._find(proof if isinstance(proof, bytes) else hashed(proof))
        if token is None:
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, "the token is not known", "unknown")
        if (state := token.state(self._tokens.clock())) != "works":
            detail = f"the token {token.id} {_ENDED[state]}: ask the operator for another one"
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, detail, state)
        return token

    async def asks(self) -> bool:
        """Tell whether tokens are required at all."""
        now = time.monotonic()
        if not self._required and now - self._checked >= _FRESH:
            self._checked = now
            self._required = await asyncio.to_thread(self._tokens.any)
        return self._required

    async def _find(self, hash_: bytes) -> Token | None:
        now = time.monotonic()
        look = self._looks.get(hash_)
        if look is None or look.until <= now:
            if len(self._looks) >= _REMEMBERED:
                self._looks.clear()
            look = _Look(await asyncio.to_thread(self._tokens.find, hash_), now + _FRESH)
            self._looks[hash_] = look
            if look.token is not None and look.token.use_is_due(self._tokens.clock()):
                self._record_use(hash_)
        return look.token

    def _record_use(self, hash_: bytes) -> None:
        """Record the use of a token in the background: no call waits for the disk."""
        if hash_ not in self._recording:
            task = asyncio.create_task(asyncio.to_thread(self._tokens.use, hash_))
            self._recording[hash_] = task
            task.add_done_callback(lambda _: self._recorded(hash_))

    def _recorded(self, hash_: bytes) -> None:
        task = self._recording.pop(hash_)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the use of a token could not be recorded", exc_info=error)
