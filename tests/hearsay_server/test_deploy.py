"""The files that put a server into a container or under systemd."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hearsay_server.config import (
    Config,
    ElsewhereConfig,
    HelperConfig,
    Process,
    ShufflerConfig,
    load,
    read,
)

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_image_sets_only_what_the_server_knows_and_is_not_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    environ = dict(re.findall(r"^(?:ENV|   ) (HEARSAY_\w+)=(\S+)", text, flags=re.MULTILINE))
    own = {"HEARSAY_DATA", "HEARSAY_LISTEN", "HEARSAY_HTTP", "HEARSAY_LOG_FORMAT"}
    assert set(environ) == {"HEARSAY_REVISION", *own}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    config = load()
    assert not config.insecure
    assert str(config.data) in re.findall(r"^VOLUME (.*)$", text, flags=re.MULTILINE)
    assert re.findall(r"^USER (.*)$", text, flags=re.MULTILINE) == ["10001"]


@pytest.mark.parametrize(
    "name", ["hearsay.service", "hearsay@.service", "hearsay-elsewhere@.service"]
)
def test_systemd_finds_no_fault_with_the_units(tmp_path: Path, name: str) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    unit = (DEPLOY / name).read_text(encoding="utf-8")
    file = tmp_path / name
    file.write_text(unit.replace("/opt/hearsay/bin/hearsay", "/bin/true"))
    verified = subprocess.run([analyze, "verify", file], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_unit_of_other_operators_differs_by_the_process_that_it_runs() -> None:
    alone, elsewhere = (
        (DEPLOY / name).read_text(encoding="utf-8").splitlines()
        for name in ("hearsay.service", "hearsay-elsewhere@.service")
    )
    assert [line for line in elsewhere if line not in alone and line[:1] != "#"] == [
        "Description=Hearsay %i",
        "Documentation=file:/etc/hearsay/%i.toml",
        "ExecStart=/opt/hearsay/bin/hearsay %i serve --config ${CREDENTIALS_DIRECTORY}/%i.toml",
        "LoadCredential=%i.toml:/etc/hearsay/%i.toml",
        "Environment=HEARSAY_DATA=%S/hearsay-%i",
        "StateDirectory=hearsay-%i",
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hearsay.service", Config),
        ("hearsay@.service", Config),
        ("hearsay-elsewhere@.service", HelperConfig),
    ],
)
def test_a_unit_reads_files_that_are_roots_alone(
    name: str, kind: type[Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = (DEPLOY / name).read_text(encoding="utf-8").replace("%i", "helper")
    handed = dict(re.findall(r"^#?LoadCredential=(\S+?):(\S+)$", unit, flags=re.MULTILINE))
    (file,) = re.findall(r"^ExecStart=.* --config (\S+)$", unit, flags=re.MULTILINE)
    assert file.removeprefix("${CREDENTIALS_DIRECTORY}/") in handed
    assert all(source.startswith("/etc/hearsay/") for source in handed.values())
    (tmp_path / "key").write_text("00" * 32)
    (key,) = re.findall(r"^#Environment=(HEARSAY_ENCRYPTION_KEY)=%d/key$", unit, re.MULTILINE)
    monkeypatch.setenv(key, str(tmp_path / "key"))
    flags = {"collector": "collect.example:443"} if kind is HelperConfig else {}
    setup = read(kind, None, flags)
    assert setup.encryption_key == tmp_path / "key"


@pytest.mark.parametrize("kind", [ShufflerConfig, HelperConfig])
def test_what_compose_sets_of_other_operators_processes_is_known(
    kind: type[ElsewhereConfig],
) -> None:
    text = (DEPLOY / "elsewhere.yaml").read_text(encoding="utf-8")
    names = {name.lower() for name in re.findall(r"^ +HEARSAY_(\w+):", text, flags=re.MULTILINE)}
    assert names <= {*kind.model_fields, "config"}
    assert {"config", "collector", "tls_certificate", "tls_key"} <= names  # no token
    process = kind.__name__.removesuffix("Config").lower()
    assert f"command: [hearsay, {process}, serve]" in text


def test_the_template_differs_from_the_unit_by_what_several_processes_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone, several = (
        [
            line
            for line in (DEPLOY / name).read_text(encoding="utf-8").splitlines()
            if line[:1] != "#"
        ]
        for name in ("hearsay.service", "hearsay@.service")
    )
    added = [line for line in several if line not in alone]
    assert [line for line in alone if line not in several] == [
        "Description=Hearsay aggregation server"
    ]
    variables = [line.partition("=")[2] for line in added if line.startswith("Environment=")]
    assert [line for line in added if not line.startswith("Environment=")] == [
        "Description=Hearsay aggregation server, process %i",
        "User=hearsay",  # a port is shared by processes of one user
    ]
    metrics = []
    for instance in "12":
        for variable in variables:
            name, _, value = variable.replace("%i", instance).partition("=")
            monkeypatch.setenv(name, value)
        config = load()
        assert config.share_port
        metrics.append(config.metrics)
    assert metrics == ["127.0.0.1:9001", "127.0.0.1:9002"]
