"""`hearsay health`, which imports no more than it needs: probes run it again and again."""

import contextlib
from typing import Annotated

import typer
from grpc_health.v1 import health_pb2

from hearsay.checking.calls import CheckedCalls
from hearsay.sending.over_grpc import GrpcCalls
from hearsay.sending.transport import is_url
from hearsay_server.commands import connect
from hearsay_server.printing import say
from hearsay_server.serving.status import LIVE
from ldp.errors import InvalidInput


def health(
    context: typer.Context,
    target: Annotated[str, typer.Option(help="The server, as HOST:PORT.")] = "127.0.0.1:50051",
    live: Annotated[
        bool, typer.Option("--live", help="Ask only whether the process answers.")
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Forgo TLS for a host that is not loopback.")
    ] = False,
) -> None:
    """Ask a server whether it can take reports; exit with 1 where it cannot."""
    if is_url(target):
        raise InvalidInput("health is asked over gRPC, at HOST:PORT; over HTTP ask for /readyz")
    calls = CheckedCalls(GrpcCalls(target, tls=connect.tls(context), insecure=insecure))
    with contextlib.closing(calls):
        request = health_pb2.HealthCheckRequest(service=LIVE if live else "")
        kind = health_pb2.HealthCheckResponse
        status = calls.call("/grpc.health.v1.Health/Check", request, kind, 5.0).status
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    say(name)
    if status != health_pb2.HealthCheckResponse.SERVING:
        raise typer.Exit(1)
