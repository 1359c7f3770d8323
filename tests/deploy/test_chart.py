"""The Helm chart: it lints, and what it makes of its values is what the server takes."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_nginx_doors import GRPC_ALONE, SERVED

from hearsay_server.config import Config, load
from hearsay_server.pages.site import PAGES
from ldp.version import __version__

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "hearsay"

VALUES = {
    "as it is": "",
    "without TLS": "tls: {existingSecret: ''}",
    "everything": """
replicas: 5
imagePullSecrets: [registry]
tls: {existingSecret: other}
hosts: [a.example, b.example]
whenUnsatisfiable: DoNotSchedule
ingress: {enabled: true, grpcHost: grpc.example, annotations: {a: b}}
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


def library() -> Any:
    """Return Helm's own library; skip the test where neither it nor the command is here."""
    return pytest.importorskip("helm_python", reason="there is no helm here, nor helm-python-sdk")


def helm(found: str, folder: Path, values: str, *arguments: str) -> str:
    """Run the command with these values; return what it prints."""
    file = folder / "values.yaml"
    file.write_text(values, encoding="utf-8")
    command = [found, *arguments, "--values", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def documents(folder: Path, values: str) -> list[Any]:
    """Return what the chart makes of these values."""
    if (found := shutil.which("helm")) is not None:
        return parsed(helm(found, folder, values, "template", "release", str(CHART)))
    chart = library().Chart.load(str(CHART))
    (given,) = parsed(values) or [{}]
    manifests = chart.render(given, name="release").items()
    return [each for name, text in manifests if name.endswith(".yaml") for each in parsed(text)]


def made(folder: Path, values: str) -> dict[str, Any]:
    """Return what the chart makes of these values, by kind, but for ingresses."""
    kinds = [document["kind"] for document in documents(folder, values)]
    assert len(set(kinds) - {"Ingress"}) == len([kind for kind in kinds if kind != "Ingress"])
    return {document["kind"]: document for document in documents(folder, values)}


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
    named = set(re.findall(r"HEARSAY_[A-Z_]+[A-Z]", templates())) - {"HEARSAY_PORT"}
    keys = {f"HEARSAY_{name.upper()}" for name in Config.model_fields}
    assert named <= keys


def test_the_chart_is_of_this_version() -> None:
    (chart,) = parsed((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_finds_no_fault_with_the_chart(tmp_path: Path, values: str) -> None:
    if (found := shutil.which("helm")) is not None:
        helm(found, tmp_path, values, "lint", str(CHART), "--strict")
        return
    (given,) = parsed(values) or [{}]
    report = library().lint(str(CHART), given, strict=True)
    assert [each for each in report["messages"] if each["severity"] > 1] == []
    assert not report["errors"]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_server_takes_its_variables(
    tmp_path: Path, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path, values).items():
        monkeypatch.setenv(name, value)
    config = load()
    assert config.database == "postgresql://u@h/n"
    assert config.insecure == (values == VALUES["without TLS"])
    assert config.http == "0.0.0.0:8080"
    assert config.hosts
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


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_probes_ask_the_http_door_and_start_no_process(tmp_path: Path, values: str) -> None:
    server = container(tmp_path, values)
    scheme = "HTTP" if values == VALUES["without TLS"] else "HTTPS"
    for probe, path in (
        ("startup", "/healthz"),
        ("readiness", "/readyz"),
        ("liveness", "/healthz"),
    ):
        asked = {"path": path, "port": "http", "scheme": scheme}
        assert server[f"{probe}Probe"]["httpGet"] == asked
        assert "exec" not in server[f"{probe}Probe"]


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_servers_spread_over_nodes_and_not_all_are_drained_at_once(
    tmp_path: Path, values: str
) -> None:
    kinds = made(tmp_path, values)
    pod = kinds["Deployment"]["spec"]["template"]
    spread = pod["spec"]["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    for each in [*spread, {"labelSelector": kinds["PodDisruptionBudget"]["spec"]["selector"]}]:
        selected = each["labelSelector"]["matchLabels"]
        assert selected
        assert selected.items() <= pod["metadata"]["labels"].items()
    assert kinds["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def ingresses(folder: Path) -> dict[str, Any]:
    """Return what leads to each door of the service, with everything set."""
    found = documents(folder, VALUES["everything"])
    (service,) = [each for each in found if each["kind"] == "Service"]
    doors = {}
    for each in (one for one in found if one["kind"] == "Ingress"):
        paths = [path for rule in each["spec"]["rules"] for path in rule["http"]["paths"]]
        (backend,) = {str(path["backend"]["service"]) for path in paths}
        for port in service["spec"]["ports"]:
            name, number = service["metadata"]["name"], port["name"]
            if backend == str({"name": name, "port": {"name": number}}):
                doors[number] = each
    return doors


def test_an_ingress_leads_to_each_door_by_hosts_of_its_own(tmp_path: Path) -> None:
    doors = ingresses(tmp_path)
    assert set(doors) == {"http", "grpc"}
    for door, hosts in (("http", ["a.example", "b.example"]), ("grpc", ["grpc.example"])):
        spec = doors[door]["spec"]
        assert [rule["host"] for rule in spec["rules"]] == hosts
        assert spec["tls"] == [{"hosts": hosts, "secretName": "hearsay-ingress-tls"}]
    key = "nginx.ingress.kubernetes.io/backend-protocol"
    assert {door: each["metadata"]["annotations"][key] for door, each in doors.items()} == {
        "http": "HTTPS",
        "grpc": "GRPCS",
    }


def test_an_ingress_serves_what_nginx_serves_of_a_server(tmp_path: Path) -> None:
    pages = {"/static/"}
    for address in {page.address for page in PAGES}:
        first, _, more = address[1:].partition("/")
        pages |= {f"/{first}", *([f"/{first}/"] if more else [])}
    calls = {f"/{name}/" for name, process in SERVED.items() if process == "collector"}
    alone = {f"/{name}/" for name in GRPC_ALONE}
    for door, expected in (
        ("grpc", calls),
        ("http", (calls - alone) | {"/readyz", "/healthz"} | pages),
    ):
        for rule in ingresses(tmp_path)[door]["spec"]["rules"]:
            paths = {path["path"]: path["pathType"] for path in rule["http"]["paths"]}
            prefix = {path for path in expected if path.endswith("/") and path != "/"}
            assert set(paths) == expected
            assert {path for path, kind in paths.items() if kind == "Prefix"} == prefix


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_service_finds_the_servers(tmp_path: Path, values: str) -> None:
    kinds = made(tmp_path, values)
    labels = kinds["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selector = kinds["Service"]["spec"]["selector"]
    assert selector.items() <= labels.items()
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"] == selector
    named = {each["name"]: each["containerPort"] for each in container(tmp_path, values)["ports"]}
    doors = {each["targetPort"]: each["port"] for each in kinds["Service"]["spec"]["ports"]}
    assert doors == {"grpc": 50051, "http": 443}
    assert doors.keys() < named.keys()
    assert ("PodMonitor" in kinds) == (values == VALUES["everything"])
