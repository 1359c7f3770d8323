import pytest

from hearsay import MEMORY, Client, Reason
from hearsay.transport import is_loopback
from support import Server, device


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/run/hearsay.sock", True),
        ("10.0.0.1:1", False),
        ("0.0.0.0:1", False),
        ("localhost.example.org:1", False),
        ("127.0.0.1.example.org:1", False),
        ("hearsay.example.org:443", False),
        ("", False),
    ],
)
def test_only_this_machine_is_loopback(target: str, expected: bool) -> None:
    assert is_loopback(target) is expected


def test_a_server_without_tls_is_not_spoken_to_in_the_clear(server: Server) -> None:
    # This address reaches the same server, but only 127.0.0.0/8 is promised to stay here.
    port = server.address.rpartition(":")[2]
    with Client(f"0.0.0.0:{port}", "health", level="strict", ledger=MEMORY, consent=True) as client:
        assert not client.ready(timeout=1.0)
        assert client.status().reason is Reason.NO_PLAN
    device(f"0.0.0.0:{port}", "health", level="strict", insecure=True).close()
