"""The compose files: what they publish and set, and that they name files that are there."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hearsay_server.config import load

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def text(file: str = "compose.yaml") -> str:
    return (DEPLOY / file).read_text(encoding="utf-8")


def services(file: str = "compose.yaml") -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found: dict[str, Any] = yaml.safe_load(text(file))["services"]
    return found


def environment(service: str, file: str = "compose.yaml") -> dict[str, str]:
    """Return the variables of a container: the image's, and the service's with their defaults."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    image = dict(re.findall(r"^ {4}(HEARSAY_\w+)=([^\s$]+)", dockerfile, re.M))
    own = services(file)[service]["environment"].items()
    return image | {name: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", str(value)) for name, value in own}


def test_the_server_takes_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment("server").items():
        monkeypatch.setenv(name, value)
    config = load()
    assert config.insecure
    assert config.http == "0.0.0.0:8080"
    assert config.hosts == {"localhost"}
    assert config.metrics == "0.0.0.0:9464"


def test_no_password_is_in_an_environment() -> None:
    for service in services().values():
        for name in service.get("environment", {}):
            assert not re.search("PASSWORD$|TOKEN|DATABASE", name)


def test_the_image_has_what_postgresql_encrypted_backups_and_traces_need() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert "'.[encryption,otel,postgres,sealed,web]'" in text


def test_only_nginx_is_published_beyond_this_machine() -> None:
    published = {
        name: port for name, service in services().items() for port in service.get("ports", [])
    }
    assert published.pop("nginx") == "${SERVER_PORT:-443}:443"
    assert set(published) == {"prometheus", "alertmanager", "grafana"}
    assert all(port.startswith("127.0.0.1:") for port in published.values())


def test_nginx_calls_the_servers_doors_and_listens_where_the_compose_file_says() -> None:
    nginx = (DEPLOY / "nginx" / "hearsay.conf").read_text(encoding="utf-8")
    for door in ("HEARSAY_LISTEN", "HEARSAY_HTTP"):
        assert f"server server:{environment('server')[door].rpartition(':')[2]};" in nginx
    assert "listen 443 ssl" in nginx


def test_what_lasts_has_a_check_of_its_health_and_what_runs_once_does_not_start_again() -> None:
    once = {"certificates", "secrets"}
    # The image of ours has a check, and the exporter has no program to check it with.
    unchecked = {"server", "blackbox"}
    for name, service in services().items():
        assert ("healthcheck" in service) == (name not in once | unchecked), name
        assert ("restart" in service) == (name not in once), name
    assert "HEALTHCHECK" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def test_the_servers_file_system_is_read_only_and_it_may_gain_no_privileges() -> None:
    server = services()["server"]
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("file", ["compose.yaml", "elsewhere.yaml"])
def test_every_image_but_our_own_has_a_version(file: str) -> None:
    images = {service["image"] for service in services(file).values()} - {"hearsay"}
    assert images
    for image in images:
        assert re.search(r":v?\d", image), image


def test_every_file_that_is_mounted_is_there() -> None:
    mounted = set(re.findall(r"^ +- \./([^:]+):", text(), re.M))
    assert len(mounted) > 6
    # The certificates' folder is made.
    assert {path for path in mounted if not (DEPLOY / path).exists()} == {"tls"}


def test_every_variable_is_in_the_example_with_its_default() -> None:
    example = (DEPLOY / "env.example").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^(\w+)=(.*)$", example, re.M))
    assert set(re.findall(r"\$\{(\w+):-(.*?)\}", text())) == set(listed.items())


def test_docker_compose_takes_the_files() -> None:
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("there is no docker here")
    version = [docker, "compose", "version"]
    if subprocess.run(version, capture_output=True, timeout=60).returncode:
        pytest.skip("this docker has no compose")
    for file in ("compose.yaml", "elsewhere.yaml"):
        command = [docker, "compose", "--env-file", str(DEPLOY / "env.example"), "--file"]
        command += [str(DEPLOY / file), "config", "--quiet"]
        named = {**os.environ, "COLLECTOR": "collect.example:443"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=named)
        assert done.returncode == 0, done.stderr
