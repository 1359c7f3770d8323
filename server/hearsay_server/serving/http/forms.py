"""The forms of messages over HTTP: Connect in binary and JSON, and gRPC-Web.

A form is named by its content type. In four of them messages are put into envelopes: a byte of
flags, the length in four bytes, the message.
"""

import asyncio
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import grpc
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from hearsay_server.serving.status import Ended, unreadable

_Request = TypeVar("_Request", bound=Message)

_HEAD = 5
"""Bytes of an envelope before its message."""

_END = {"connect": 0x02, "grpc-web": 0x80}
"""The flag of the envelope that ends a stream, by protocol."""

_EXACT = 1 << 53
"""Beyond it JavaScript and others round an integer that is not written as a string."""

_AT_ONCE = 1 << 14
"""Bytes of an answer that are turned into JSON between other calls; larger ones in a thread."""


@dataclass(frozen=True)
class Form:
    """How a content type writes messages, and the end of a call."""

    content_type: str
    protocol: str
    is_json: bool
    has_envelopes: bool

    def takes(self, streams: bool) -> bool:
        """Tell whether a method that streams its answers, or does not, can be called in it."""
        return self.protocol == "grpc-web" or streams == self.has_envelopes

    async def read(self, body: bytes, kind: type[_Request]) -> _Request:
        """Return the only message of a request's body; raise `Ended` where it is not of `kind`."""
        if self.has_envelopes:
            if len(body) < _HEAD or body[0] or int.from_bytes(body[1:_HEAD]) != len(body) - _HEAD:
                detail = (
                    "the body must be one envelope, not compressed: a byte 0, the message's length "
                    "in four bytes, the most significant first, and the message"
                )
                raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
            body = body[_HEAD:]
        if self.is_json:
            if len(body) <= _AT_ONCE:
                return _from_json(body, kind)
            return await asyncio.to_thread(_from_json, body, kind)
        try:
            return kind.FromString(body)
        except DecodeError:
            raise unreadable() from None

    async def write(self, answer: Any, kind: type[Message]) -> bytes:
        """Return an answer, of `kind` or its bytes, as it is sent."""
        if self.is_json:
            small = len(answer) if isinstance(answer, bytes) else answer.ByteSize()
            if small <= _AT_ONCE:
                data = _to_json(answer, kind)
            else:
                data = await asyncio.to_thread(_to_json, answer, kind)
        else:
            data = answer if isinstance(answer, bytes) else answer.SerializeToString()
        return _envelope(0, data) if self.has_envelopes else data

    def end(self, error: Ended | None) -> bytes:
        """Return the envelope that ends a stream of answers."""
        flag = _END[self.protocol]
        if self.protocol == "grpc-web":
            code = (error.code if error else grpc.StatusCode.OK).value[0]
            lines = [f"grpc-status: {code}"]
            if error:
                lines.append(f"grpc-message: {quote(str(error), safe=' !#$&()*+,/:;<=>?@[]')}")
                lines += [f"{name}: {value}" for name, value in retry(error)]
            return _envelope(flag, "".join(f"{line}\r\n" for line in lines).encode())
        told: dict[str, Any] = {}
        if error:
            told["error"] = error_of(error)
            told["metadata"] = {name: [value] for name, value in retry(error)}
        return _envelope(flag, json.dumps(told).encode())


FORMS = {
    form.content_type: form
    for form in (
        Form("application/proto", "connect", is_json=False, has_envelopes=False),
        Form("application/json", "connect", is_json=True, has_envelopes=False),
        Form("application/connect+proto", "connect", is_json=False, has_envelopes=True),
        Form("application/connect+json", "connect", is_json=True, has_envelopes=True),
        Form("application/grpc-web", "grpc-web", is_json=False, has_envelopes=True),
        Form("application/grpc-web+proto", "grpc-web", is_json=False, has_envelopes=True),
    )
}


def error_of(error: Ended) -> dict[str, str]:
    """Return an error as Connect writes it."""
    code = error.code.name.lower().replace("cancelled", "canceled")
    return {"code": code, "message": str(error)}


def retry(error: Ended) -> Iterable[tuple[str, str]]:
    """Return the headers, or trailers, that say when a call may come again."""
    if error.retry_after is None:
        return ()
    return (
        ("retry-after-ms", str(math.ceil(1000 * error.retry_after))),
        ("retry-after", str(math.ceil(error.retry_after))),
    )


def _envelope(flag: int, data: bytes) -> bytes:
    return bytes((flag,)) + len(data).to_bytes(4) + data


def _to_json(answer: Any, kind: type[Message]) -> bytes:
    message = kind.FromString(answer) if isinstance(answer, bytes) else answer
    return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()


_MOST_COMMAS = 8192
"""Commas of a body of JSON: each value that they part takes some ten microseconds to read."""


class _Unfit(ValueError):
    """JSON that is well formed and that we refuse; its text may be told to the caller."""


def _from_json(body: bytes, kind: type[_Request]) -> _Request:
    try:
        if body.count(b",") > _MOST_COMMAS:
            raise _Unfit(f"JSON has at most {_MOST_COMMAS} commas here: send several requests")
        tree = json.loads(
            body.decode(), parse_int=_whole, parse_float=_Number, object_pairs_hook=_once
        )
        if isinstance(tree, dict):
            return json_format.ParseDict(tree, kind())
        detail = "the body must be an object in JSON"
    except _Unfit as error:
        detail = str(error)
    except json_format.ParseError as error:
        detail = f"the JSON is no {kind.DESCRIPTOR.full_name}{_where(str(error))}"
    except (ValueError, RecursionError):
        detail = "the body must be JSON in UTF-8, and not nested deeply"
    raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)


def _where(fault: str) -> str:
    """Return where a field is, from an error of protobuf's; the values that it quotes stay out."""
    path = ".".join(re.findall(r"Failed to parse (\w+) field", fault))
    known = re.search(r"Available Fields\(except extensions\): \"\[(.*)\]\"", fault)
    fields = known[1].replace("'", "") if known else ""
    return (f" in {path}" if path else "") + (f": its fields are {fields}" if fields else "")


def _whole(text: str) -> int:
    if len(text) > len(str(-_EXACT)) or abs(int(text)) > _EXACT:
        raise _Unfit("an integer beyond 2^53 must be a string in JSON")
    return int(text)


class _Number(float):
    """A number with a fraction or an exponent; beyond 2^53 it is rounded, so it is no integer."""

    def is_integer(self) -> bool:
        return abs(self) < _EXACT and super().is_integer()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Unfit("each name in an object of JSON must be there once")
    return found
