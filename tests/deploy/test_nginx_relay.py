"""What a shuffler learns through a real nginx with `deploy/nginx/relay.conf`."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import hearsay
from proxied import Nginx
from relaying import Relay, relaying
from sealing import Sealed, collector, sealed_server
from shuffling import Shuffler, shuffling

from hearsay.sending.relayed import RelayedTransport
from hearsay.sending.transport import Tls, Unreachable
from hearsay.v1 import collector_pb2, shuffler_pb2
from support import free_port

__all__ = ["collector", "sealed_server"]

GATEWAY = "https://mix.example.org/.well-known/ohttp-gateway"
FEW = {"rate=10r/s": "rate=1r/m", "burst=50": "burst=2"}
"""One call, two more at once, and then one a minute."""


def relay_before(folder: Path, gateway: str, **replaced: str) -> Nginx:
    own = {GATEWAY: gateway, "/etc/ssl/certs/ca-certificates.crt": f"{folder}/ca.pem"}
    return Nginx(folder, "relay.conf", "listen 443", own | replaced)


def test_nginx_reads_the_configuration(tmp_path: Path) -> None:
    checked = relay_before(tmp_path / "nginx", "https://localhost:1/gateway").check()
    assert checked.returncode == 0, checked.stderr


@pytest.fixture
def way(
    collector: Sealed, tmp_path: Path
) -> Iterator[tuple[RelayedTransport, Relay, Shuffler, Nginx]]:
    """A device's way through nginx, what stands behind nginx and notes what comes, and the rest."""
    folder, door = tmp_path / "shuffler", f"127.0.0.1:{free_port()}"
    with shuffling(folder, collector, http=door, ohttp=True) as shuffler, relaying(door) as behind:
        proxy = relay_before(tmp_path / "nginx", behind.url, **FEW)
        key = hearsay("shuffler", "key", "--data", folder).stdout.strip()
        tls = Tls(proxy.authority.file)
        with proxy.running():
            device = RelayedTransport(
                f"https://{proxy.address}/mix", f"http://{door}", key, tls=tls, token="secret"
            )
            yield device, behind, shuffler, proxy
            device.close()


def test_a_device_is_heard_and_stays_unknown(
    collector: Sealed, way: tuple[RelayedTransport, Relay, Shuffler, Nginx]
) -> None:
    device, behind, shuffler, proxy = way
    records = collector.seal(*(collector.batch(number) for number in range(4)))
    kind = shuffler_pb2.SubmitSealedResponse

    def submit(record: shuffler_pb2.SealedRecord) -> int:
        request = shuffler_pb2.SubmitSealedRequest(records=[record])
        (result,) = device.call("Shuffler/SubmitSealed", request, kind, 20).results
        return result.status

    assert [submit(each) for each in records[:3]] == [collector_pb2.Result.STORED] * 3
    with pytest.raises(Unreachable, match="status 429"):  # an address has its allowance
        submit(records[3])
    assert shuffler.pool(collector.today).gathering == 3
    assert len(behind.requests) == 3
    for headers, body in behind.requests:
        assert {name.lower() for name in headers} == {
            "host",
            "content-type",
            "accept-encoding",
            "content-length",
        }
        assert b"secret" not in body
    logs = [file for file in proxy.folder.glob("*.log") if file.name != "nginx.log"]
    assert all("127.0.0.1" not in file.read_text() for file in logs)


def test_nothing_else_is_at_the_relay(
    way: tuple[RelayedTransport, Relay, Shuffler, Nginx],
) -> None:
    _, behind, _, proxy = way
    context = ssl.create_default_context(cafile=proxy.authority.file)
    for path, status in (("/mix", 403), ("/", 404), ("/mix/more", 404)):
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"https://{proxy.address}{path}", context=context, timeout=20)
        assert raised.value.code == status
        raised.value.close()
    assert not behind.requests
