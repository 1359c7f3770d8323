import contextlib
import socket
import threading

import pytest

from hearsay import MEMORY, Client, Delivery, Reason
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


class Relay:
    """A way to a server, on which connections can die without anybody being told."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.opened = 0
        self._dead: set[int] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def let_die(self) -> None:
        """Pass nothing on any more on the connections that there are."""
        self._dead.update(range(self.opened))

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._host, self._port))
                for ends in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._pass, args=(self.opened, *ends), daemon=True
                    ).start()
                self.opened += 1

    def _pass(self, number: int, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if number not in self._dead:
                    target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_a_connection_that_died_unnoticed_is_replaced(server: Server) -> None:
    relay = Relay(server.address)
    delivery = Delivery(timeout=0.5, first_wait=0.05, longest_wait=0.1)
    with device(relay.address, "health", level="strict", delivery=delivery) as client:
        client.person("ann").record(smokes="no")
        assert client.flush()
        assert relay.opened == 1
        relay.let_die()
        client.person("bob").record(smokes="no")
        assert client.flush(20)
        assert relay.opened > 1
    relay.close()
    assert server.show("health").status.records == 2


def test_a_server_without_tls_is_not_spoken_to_in_the_clear(server: Server) -> None:
    # This address reaches the same server, but only 127.0.0.0/8 is promised to stay here.
    port = server.address.rpartition(":")[2]
    with Client(f"0.0.0.0:{port}", "health", level="strict", ledger=MEMORY, consent=True) as client:
        assert not client.ready(timeout=1.0)
        assert client.status().reason is Reason.NO_PLAN
    device(f"0.0.0.0:{port}", "health", level="strict", insecure=True).close()
