"""A server that lies: it passes calls to an honest one, and changes what that answers."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import Message

from hearsay.v1 import admin_pb2, analyst_pb2, answer_pb2, collector_pb2, trainer_pb2

Change = Callable[[Any], Iterable[Message] | None]
"""What becomes of the messages that an honest server answers a call with: other ones. None, where
they were changed in place."""

_MODULES = (admin_pb2, analyst_pb2, answer_pb2, collector_pb2, trainer_pb2)


class Liar:
    """What a lying server does with the calls of each method, such as "ShowSurvey"."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.changes: dict[str, Change] = {}
        self.heard: dict[tuple[str, bytes], list[bytes]] = {}
        """What the honest server answered, by method and request: it is asked once."""
        self.refusals: dict[str, tuple[grpc.StatusCode, str]] = {}
        """Errors to answer with, by method; "" for all of them."""

    @contextlib.contextmanager
    def saying(self, method: str, change: Change) -> Iterator[None]:
        """Lie about one method while the context lasts."""
        self.changes[method] = change
        try:
            yield
        finally:
            del self.changes[method]

    @contextlib.contextmanager
    def refusing(self, words: str, code: Any = grpc.StatusCode.INVALID_ARGUMENT) -> Iterator[None]:
        """Answer all calls with an error of these words while the context lasts."""
        self.refusals[""] = code, words
        try:
            yield
        finally:
            del self.refusals[""]


@contextlib.contextmanager
def lying(honest: str) -> Iterator[Liar]:
    """Serve what the server at an address answers, changed as the yielded `Liar` says."""
    with grpc.insecure_channel(honest) as channel, ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads)
        liar = Liar(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.add_generic_rpc_handlers((_Passing(channel, liar),))
        server.start()
        try:
            yield liar
        finally:
            server.stop(None).wait()


class _Passing(grpc.GenericRpcHandler):
    """Takes any call of our services, as a stream of answers: a unary one has one of them."""

    def __init__(self, channel: grpc.Channel, liar: Liar) -> None:
        self._channel = channel
        self._liar = liar

    def service(self, details: Any) -> Any:
        service, _, method = details.method.removeprefix("/hearsay.v1.").partition("/")
        (found,) = [
            module.DESCRIPTOR.services_by_name[service].methods_by_name[method]
            for module in _MODULES
            if service in module.DESCRIPTOR.services_by_name
        ]
        kind = next(
            getattr(module, found.output_type.name)
            for module in _MODULES
            if hasattr(module, found.output_type.name)
        )

        def handle(request: bytes, context: Any) -> Iterator[bytes]:
            if refusal := self._liar.refusals.get(method, self._liar.refusals.get("")):
                context.abort(*refusal)
            heard = self._liar.heard.get((method, request))
            if heard is None:
                call = self._channel.unary_stream(details.method)
                try:
                    heard = list(call(request, metadata=details.invocation_metadata, timeout=60))
                except grpc.RpcError as error:
                    context.abort(error.code(), error.details())
                self._liar.heard[method, request] = heard
            answers: list[Any] = [kind.FromString(data) for data in heard]
            change = self._liar.changes.get(method)
            changed = change(answers) if change is not None else None
            for message in answers if changed is None else changed:
                yield message.SerializeToString()

        return grpc.unary_stream_rpc_method_handler(handle)
