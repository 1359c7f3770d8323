"""The way of a record that is split between two servers: both shares go to the one that leads."""

from hearsay.sending.transport import Transport, malformed
from hearsay.v1 import two_servers_pb2


def submit(
    transport: Transport, record: two_servers_pb2.SharedRecord, timeout: float
) -> two_servers_pb2.SubmitSharesResponse:
    """Submit a record to the leader; return a response with its one result.

    Raises as `Transport.call`.
    """
    request = two_servers_pb2.SubmitSharesRequest(records=[record])
    answer = transport.call(
        "Leader/SubmitShares", request, two_servers_pb2.SubmitSharesResponse, timeout
    )
    if len(answer.results) != 1:
        raise malformed("the server", f"one record of shares with {len(answer.results)} results")
    return answer
