"""The Helm chart: it lints, and what it makes of its values is what the server takes."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hearsay_server.config import Config, load
from ldp.version import __version__

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "hearsay"

VALUES = {
    "as it is": "",
    "without TLS": "tls: {existingSecret: ''}",
    "everything": """
replicas: 5
imagePullSecrets: [registry]
tls: {existingSecret: other, hasAuthority: false}
config: {require_device_token: "true", keep_batches_days: "60"}
service: {type: LoadBalancer, annotations: {a: b}}
metrics: {podMonitor: true, podMonitorLabels: {release: prometheus}}
podAnnotations: {a: b}
nodeSelector: {disk: fast}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {}}
""",
}


def parsed(text: str) -> list[Any]:
    """Read the documents of YAML."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return [document for document in yaml.safe_load_all(text) if document]


def helm(folder: Path, values: str, *arguments: str) -> str:
    """Run helm with these values; return what it prints."""
    found = shutil.which("helm")
    if found is None:
        pytest.skip("there is no helm here")
    file = folder / "values.yaml"
    file.write_text(values, encoding="utf-8")
    command = [found, *arguments, "--values", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def made(folder: Path, values: str) -> dict[str, Any]:
    """Return what the chart makes of these values, by kind."""
    text = helm(folder, values, "template", "release", str(CHART))
    return {document["kind"]: document for document in parsed(text)}


def container(folder: Path, values: str) -> dict[str, Any]:
    """Return the server's container."""
    deployment = made(folder, values)["Deployment"]
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(folder: Path, values: str) -> dict[str, str]:
    """Return the variables of the server, with a URL in the place of the secret."""
    return {
        each["name"]: each.get("value", "postgresql://u@h/n")
        for each in container(folder, values)["env"]
    }


def templates() -> str:
    return "\n".join(file.read_text("utf-8") for file in sorted((CHART / "templates").iterdir()))


def test_every_value_that_a_template_uses_is_in_values_yaml_and_the_other_way_round() -> None:
    (values,) = parsed((CHART / "values.yaml").read_text(encoding="utf-8"))
    used = set(re.findall(r"\.Values\.([\w.]+)", templates()))
    for path in used:
        at = values
        for name in path.split("."):
            assert name in at, f".Values.{path} is not in values.yaml"
            at = at[name]
    whole = {path.partition(".")[0] for path in used}
    assert whole == set(values)


def test_every_key_of_the_server_that_a_template_sets_is_one() -> None:
    own = {"HEARSAY_CA", "HEARSAY_SERVER_NAME"}  # of the health check
    named = set(re.findall(r"HEARSAY_[A-Z_]+[A-Z]", templates())) - own - {"HEARSAY_PORT"}
    keys = {f"HEARSAY_{name.upper()}" for name in Config.model_fields}
    assert named <= keys


def test_the_chart_is_of_this_version() -> None:
    (chart,) = parsed((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_finds_no_fault_with_the_chart(tmp_path: Path, values: str) -> None:
    helm(tmp_path, values, "lint", str(CHART), "--strict")


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_server_takes_its_variables(tmp_path: Path, values: str) -> None:
    config = load(environ=environment(tmp_path, values))
    assert config.database == "postgresql://u@h/n"
    assert config.insecure == (values == VALUES["without TLS"])
    assert (config.tls_certificate is None) == config.insecure
    assert config.require_device_token == (values == VALUES["everything"])


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_server_is_not_root_and_writes_nowhere_but_to_tmp(tmp_path: Path, values: str) -> None:
    spec = made(tmp_path, values)["Deployment"]["spec"]["template"]["spec"]
    (server,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert server["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    written = [m["mountPath"] for m in server["volumeMounts"] if not m.get("readOnly")]
    assert written == ["/tmp"]


def test_without_tls_kubernetes_asks_by_grpc_and_with_it_the_command_does(tmp_path: Path) -> None:
    plain, secured = (container(tmp_path, VALUES[name]) for name in ("without TLS", "as it is"))
    assert plain["readinessProbe"]["grpc"] == {"port": 50051}
    assert plain["livenessProbe"]["grpc"] == {"port": 50051, "service": "live"}
    assert secured["readinessProbe"]["exec"]["command"] == ["hearsay", "health"]
    assert secured["livenessProbe"]["exec"]["command"] == ["hearsay", "health", "--live"]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_service_finds_the_servers(tmp_path: Path, values: str) -> None:
    kinds = made(tmp_path, values)
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selector = kinds["Service"]["spec"]["selector"]
    assert selector.items() <= labels.items()
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"] == selector
    (port,) = kinds["Service"]["spec"]["ports"]
    names = {each["name"] for each in container(tmp_path, values)["ports"]}
    assert port["targetPort"] in names
    assert ("PodMonitor" in kinds) == (values == VALUES["everything"])
