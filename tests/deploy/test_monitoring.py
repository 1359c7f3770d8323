"""Alerts and dashboard name metrics that a real server has, and Prometheus takes them."""

import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from proxied import in_front
from serving import batch, serving, submit

from hearsay_server.serving.tls import Certificates
from support import Server, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"

PROBED = ("probe_success", "probe_ssl_earliest_cert_expiry")
"""Metrics of the blackbox exporter that alerts need."""


def parsed(file: Path) -> Any:
    """Read YAML."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def dashboard() -> dict[str, Any]:
    text = (GRAFANA / "dashboards" / "hearsay.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def alerts() -> dict[str, str]:
    """Return the expression of each alert by its name."""
    (group,) = parsed(RULES / "alerts.yml")["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def drawn() -> dict[str, str]:
    """Return the expressions of the dashboard, as Prometheus gets them from Grafana."""
    found = {}
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            found[f"{panel['title']}, {target['refId']}"] = expression
    return found


def tool(name: str) -> str:
    """Return where a program of Prometheus is; skip the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here")
    return found


@pytest.fixture
def metered(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A real server, and the address of its metrics."""
    address = f"127.0.0.1:{free_port()}"
    server = Server(tmp_path / "data", "--metrics", address)
    server.start()
    revision = server.create().revision
    submit(server.address, batch(revision))
    yield server, address
    if server.is_running():
        server.stop()


def samples(address: str) -> dict[str, list[dict[str, str]]]:
    """Return the labels of every sample that a server exposes, by the sample's name."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_every_metric_and_label_of_alerts_and_dashboard_is_one_of_a_real_server(
    metered: tuple[Server, str],
) -> None:
    seen = samples(metered[1])
    for name in seen:
        if name.startswith("process_"):
            seen[name] = [{"job": "hearsay"}]  # which Prometheus adds
    seen["up"] = [{"job": "hearsay"}]  # Prometheus' own, of each target
    # Those of the blackbox exporter: tests that have one look whether it makes them.
    seen |= {name: [{"job": "hearsay-outside"}] for name in PROBED}
    for place, expression in {**alerts(), **drawn()}.items():
        names = r"\b((?:hearsay|process|probe)_\w+|up\b)(?:\{(.*?)\})?"
        selectors = re.findall(names, expression)
        assert selectors, place
        for name, matchers in selectors:
            assert name in seen, f"{place}: a server has no {name}"
            for label, how, value in re.findall(r'(\w+)(=~?)"(.*?)"', matchers):
                if label == "instance":
                    continue  # Prometheus' own
                values = [labels[label] for labels in seen[name] if label in labels]
                pattern = value if how == "=~" else re.escape(value)
                assert any(re.fullmatch(pattern, v) for v in values), f"{place}: {label}={value}"


def test_the_dashboard_shows_every_metric_of_a_server(metered: tuple[Server, str]) -> None:
    shown = " ".join(drawn().values())
    made = {name for name in samples(metered[1]) if not name.endswith("_created")}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in made}
    assert [name for name in families if name not in shown] == []


def test_panels_have_ids_of_their_own_and_do_not_lie_upon_each_other() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (at["x"] + across, at["y"] + down)
            for across in range(at["w"])
            for down in range(at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_grafana_finds_the_dashboard_and_the_source_where_the_compose_file_puts_them() -> None:
    (source,) = parsed(GRAFANA / "provisioning" / "datasources" / "prometheus.yaml")["datasources"]
    (provider,) = parsed(GRAFANA / "provisioning" / "dashboards" / "hearsay.yaml")["providers"]
    services = parsed(ROOT / "deploy" / "compose.yaml")["services"]
    host = urllib.parse.urlsplit(source["url"]).hostname
    assert host in services
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert mounted["./grafana/dashboards"] == provider["options"]["path"]
    assert mounted["./grafana/provisioning"] == "/etc/grafana/provisioning"


def test_prometheus_scrapes_the_service_and_port_of_the_compose_file() -> None:
    job, outside = parsed(RULES / "prometheus.yml")["scrape_configs"]
    (look_up,) = job["dns_sd_configs"]
    services = parsed(ROOT / "deploy" / "compose.yaml")["services"]
    (name,) = look_up["names"]
    port = services[name]["environment"]["HEARSAY_METRICS"].rpartition(":")[2]
    assert (job["job_name"], str(look_up["port"])) == ("hearsay", port)
    assert outside["job_name"] == "hearsay-outside"
    (asked,) = outside["static_configs"][0]["targets"]
    assert urllib.parse.urlsplit(asked).hostname in services
    assert outside["relabel_configs"][-1]["replacement"].partition(":")[0] in services


def test_prometheus_tells_the_alertmanager_of_the_compose_file() -> None:
    (managers,) = parsed(RULES / "prometheus.yml")["alerting"]["alertmanagers"]
    ((target,),) = [each["targets"] for each in managers["static_configs"]]
    assert target.partition(":")[0] in parsed(ROOT / "deploy" / "compose.yaml")["services"]


def test_alertmanager_takes_its_configuration_and_tells_pages_from_tickets() -> None:
    amtool = tool("amtool")
    file = str(RULES / "alertmanager.yml")
    for severity, receiver in (("page", "pages"), ("ticket", "tickets")):
        routed = [amtool, "config", "routes", "test", f"--config.file={file}"]
        for command in ([amtool, "check-config", file], [*routed, f"severity={severity}"]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.strip() == receiver


def test_the_guide_says_what_to_do_about_every_alert() -> None:
    guide = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    table = guide.partition("\n| alert |")[2].partition("\n\n")[0]
    documented = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert documented == list(alerts())


def test_every_alert_is_tested_to_fire() -> None:
    fired = {
        case["alertname"]
        for test in parsed(RULES / "alerts_test.yml")["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert fired == set(alerts())


def test_promtool_takes_configuration_and_rules_and_the_tests_of_the_rules_pass() -> None:
    promtool = tool("promtool")
    for what in (("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")):
        done = subprocess.run(
            [promtool, *what], cwd=RULES, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


@contextlib.contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """Run Prometheus with the alert rules and a scrape of one target; yield its address."""
    folder.mkdir()
    shutil.copy(RULES / "alerts.yml", folder)
    text = (RULES / "prometheus.yml").read_text(encoding="utf-8").replace("15s", "1s")
    own = text.partition("    dns_sd_configs:")[0]
    (folder / "prometheus.yml").write_text(
        f'{own}    static_configs:\n      - targets: ["{target}"]\n', encoding="utf-8"
    )
    address = f"127.0.0.1:{free_port()}"
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            yield address
        finally:
            process.kill()


def asked(address: str, path: str, **parameters: str) -> Any:
    """Ask Prometheus' API, also while it starts."""
    url = f"http://{address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.slow
def test_a_real_prometheus_scrapes_a_real_server_and_draws_every_panel(
    metered: tuple[Server, str], tmp_path: Path
) -> None:
    server, target = metered
    with prometheus(tmp_path / "prometheus", target) as address:
        deadline = time.monotonic() + 60
        while not asked(address, "query", query="rate(hearsay_ready[1m])")["result"]:
            assert time.monotonic() < deadline, asked(address, "targets")
            time.sleep(0.2)
        # Commits stand still here, so their quantile and what is divided by them are no numbers.
        for place, expression in drawn().items():
            is_empty = not asked(address, "query", query=expression)["result"]
            assert is_empty == ("probe_" in expression), f"{place}: {is_empty=}"
        (group,) = asked(address, "rules")["groups"]
        assert {rule["name"] for rule in group["rules"]} == set(alerts())
        assert [rule for rule in group["rules"] if rule["health"] == "err"] == []
        assert "HearsayAway" not in raised(address)
        server.stop()
        while "HearsayAway" not in raised(address):
            assert time.monotonic() < deadline
            time.sleep(0.2)


def raised(address: str) -> set[str]:
    """Return the names of the alerts that hold, whether or not for long enough to fire."""
    return {alert["labels"]["alertname"] for alert in asked(address, "alerts")["alerts"]}


def test_a_real_blackbox_exporter_reads_the_certificate_of_a_real_nginx(tmp_path: Path) -> None:
    exporter = tool("prometheus-blackbox-exporter")  # as Debian names it
    doors = {door: f"127.0.0.1:{free_port()}" for door in ("listen", "http")}
    proxy = in_front(tmp_path / "nginx", *doors.values())
    address = f"127.0.0.1:{free_port()}"
    command = [exporter, f"--config.file={RULES / 'blackbox.yml'}"]
    command.append(f"--web.listen-address={address}")
    target = urllib.parse.urlencode(
        {"module": "https", "target": f"https://{proxy.address}/readyz"}
    )
    with (
        (tmp_path / "log").open("wb") as log,
        proxy.running(),
        subprocess.Popen(command, stderr=log) as process,
    ):
        try:
            wait_until(lambda: b"Listening on" in (tmp_path / "log").read_bytes())
            (down,) = values(address, target, "probe_success")
            with serving(tmp_path / "data", **doors):
                (up,) = values(address, target, "probe_success")
            (ends,) = values(address, target, "probe_ssl_earliest_cert_expiry")
        finally:
            process.kill()
    assert (down, up) == (0, 1)
    used = Certificates(proxy.folder / "server.pem", proxy.folder / "server.key", None).ends()
    assert used is not None
    assert ends == used.timestamp()


def values(address: str, query: str, name: str) -> list[float]:
    """Return the values of a metric that the exporter makes of a probe."""
    with urllib.request.urlopen(f"http://{address}/probe?{query}", timeout=20) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return [s.value for family in families for s in family.samples if s.name == name]
