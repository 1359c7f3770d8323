"""The compose file: what it publishes, what it sets, and that it names files that are there."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hearsay_server.config import load

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def text() -> str:
    return (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


def services() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found: dict[str, Any] = yaml.safe_load(text())["services"]
    return found


def test_the_server_takes_its_variables_and_keeps_everything_in_postgresql(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in services()["server"]["environment"].items():
        monkeypatch.setenv(name, str(value))
    config = load()
    assert config.database.startswith("postgresql://hearsay:")
    assert config.database.endswith("@postgres/hearsay")
    assert config.insecure
    assert config.metrics == "0.0.0.0:9464"


def test_the_image_has_what_postgresql_encrypted_backups_and_traces_need() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert "'.[encryption,otel,postgres,sealed,web]'" in text


def test_only_nginx_is_published_beyond_this_machine() -> None:
    published = {name: service.get("ports", []) for name, service in services().items()}
    assert published.pop("nginx") == ["50051:50051"]
    assert published.pop("prometheus") == ["127.0.0.1:9090:9090"]
    assert published.pop("grafana") == ["127.0.0.1:3000:3000"]
    assert published == {"server": [], "postgres": []}


def test_nginx_calls_the_server_and_listens_where_the_compose_file_says() -> None:
    nginx = (DEPLOY / "nginx" / "hearsay.conf").read_text(encoding="utf-8")
    assert "server server:50051;" in nginx
    assert "listen 50051 ssl" in nginx
    assert "server" in services()


def test_the_servers_file_system_is_read_only_and_it_may_gain_no_privileges() -> None:
    server = services()["server"]
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]


def test_every_image_but_our_own_has_a_version() -> None:
    images = {name: service["image"] for name, service in services().items()}
    assert images.pop("server") == "hearsay"
    for image in images.values():
        assert re.search(r":v?\d", image), image


def test_every_file_that_is_mounted_is_there() -> None:
    mounted = re.findall(r"^ +- \./([^:]+):", text(), re.M)
    assert len(mounted) == 6
    # The operator brings the certificate.
    assert [path for path in mounted if not (DEPLOY / path).exists()] == ["tls"]


def test_every_variable_is_in_the_example_without_a_value() -> None:
    example = (DEPLOY / "env.example").read_text(encoding="utf-8")
    listed = re.findall(r"^(\w+)=$", example, re.M)
    assert set(listed) == set(re.findall(r"\$\{(\w+)", text()))
    for name in listed:
        if name.endswith("PASSWORD"):
            assert f"${{{name}:?" in text(), "an unset password must stop docker compose"


def test_docker_compose_takes_the_file(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("there is no docker here")
    version = [docker, "compose", "version"]
    if subprocess.run(version, capture_output=True, timeout=60).returncode:
        pytest.skip("this docker has no compose")
    environment = tmp_path / "env"
    environment.write_text("POSTGRES_PASSWORD=a\nGRAFANA_PASSWORD=b\n")
    command = [docker, "compose", "--env-file", str(environment), "--file"]
    command += [str(DEPLOY / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
