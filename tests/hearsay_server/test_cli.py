"""The `hearsay` command as a user runs it."""

import csv
import io
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command import hearsay, hearsay_serve
from serving import Survey, registered

import dpsgd
import hearsay as sdk
import hearsay_server
import ldp
from hearsay_server import cli
from support import SURVEY, Server, device, over_both

PACKAGES = (ldp, dpsgd, sdk, hearsay_server)


@pytest.fixture(scope="module")
def answered(address: str) -> Survey:
    """A survey that thirty people have answered."""
    survey = registered(address)
    for person in range(30):
        with device(address, "health", level=("strict", "open")[person % 2]) as client:
            client.record(smokes=("no", "yes")[person % 3 == 0], age=20 + person)
    return survey


def test_a_survey_is_registered_listed_and_shown(survey: Survey, tmp_path: Path) -> None:
    file, target = tmp_path / "habits.toml", ("--target", survey.address)
    file.write_text(SURVEY.replace("health", "habits"))
    created = hearsay("survey", "create", file, *target)
    assert created.returncode == 0
    assert created.stdout.startswith("habits is registered, revision ")
    listed = hearsay("survey", "list", "--json", *target)
    counts = {(s["survey"], s["records"]) for s in json.loads(listed.stdout)}
    assert counts >= {("habits", 0), (survey.name, 0)}
    assert "habits" in hearsay("survey", "list", *target).stdout
    shown = hearsay("survey", "show", "habits", *target).stdout
    assert "whole record" in shown
    assert "onebit" in shown
    plan = json.loads(hearsay("survey", "show", "habits", "--json", *target).stdout)
    assert [level["name"] for level in plan["levels"]] == ["strict", "open"]


@over_both
def test_commands_call_either_door(server: Server, tmp_path: Path) -> None:
    file, target = tmp_path / "habits.toml", ("--target", server.target)
    file.write_text(SURVEY.replace("health", "habits"))
    assert hearsay("survey", "create", file, *target).returncode == 0
    with device(server.target, "habits", level="open") as client:
        client.record(smokes="no")
    assert json.loads(hearsay("survey", "list", "--json", *target).stdout)[0]["records"] == 1
    assert json.loads(hearsay("query", "habits", "smokes", "--json", *target).stdout)
    module = hearsay("codegen", "--survey", "habits", *target).stdout
    assert module == hearsay("codegen", file).stdout
    assert hearsay("survey", "close", "habits", "--yes", *target).returncode == 0
    done = hearsay("survey", "delete", "habits", "--yes", *target)
    assert done.stdout == "habits is deleted, with 1 records in 1 batches\n"


def test_a_bad_survey_file_ends_with_one_line_that_names_it(address: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(SURVEY.replace("strict = 1.0", "strict = nan"))
    refused = hearsay("survey", "create", file, "--target", address)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"hearsay: {file}: levels.strict: epsilon must be finite and > 0, got nan\n"
    )
    missing = hearsay("survey", "create", tmp_path / "none.toml", "--target", address)
    assert "none.toml: No such file or directory" in missing.stderr


def test_a_query_gives_estimates_with_their_errors(answered: Survey) -> None:
    target = ("--target", answered.address)
    table = hearsay("query", "health", "smokes", *target).stdout
    assert "95% interval" in table
    assert "health, smokes: 30 reports, stratified" in table
    document = json.loads(hearsay("query", "health", "smokes", "--json", *target).stdout)
    rows = document["tables"]["rows"]
    assert rows["index"] == {"smokes": ["no", "sometimes", "yes"]}
    assert all(error > 0 for error in rows["columns"]["standard_error"]["values"])
    text = hearsay("query", "health", "age", "--csv", *target).stdout
    ((mean),) = csv.DictReader(io.StringIO(text))
    assert (mean["attribute"], mean["statistic"], mean["value"]) == ("age", "mean", "mean")
    assert (mean["confidence"], mean["reports"]) == ("0.95", "30")
    low, high, estimate = (float(mean[key]) for key in ("low", "high", "estimate"))
    # The interval keeps to the domain; the estimate is unbiased, and may lie outside.
    assert 20 <= low <= min(max(estimate, 20), 60) <= high <= 60


def test_a_query_can_be_restricted_and_widened(answered: Survey) -> None:
    target = ("--json", "--target", answered.address)
    both = json.loads(hearsay("query", "health", "smokes", *target).stdout)
    one = json.loads(hearsay("query", "health", "smokes", "--level", "strict", *target).stdout)
    assert (both["reports"], one["reports"]) == (30, 15)

    def column(document: Any, name: str) -> list[float]:
        values: list[float] = document["tables"]["rows"]["columns"][name]["values"]
        return values

    assert column(one, "standard_error")[0] > column(both, "standard_error")[0]
    wide = json.loads(hearsay("query", "health", "smokes", "--simultaneous", *target).stdout)
    assert column(wide, "high")[1] >= column(both, "high")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("query", "wealth", "smokes"), "hearsay: there is no survey 'wealth' here\n"),
        (("query", "empty", "smokes"), "hearsay: there are no such reports of 'smokes' yet\n"),
        (("query", "empty", "smokes", "--json", "--csv"), "choose one of --json and --csv\n"),
        (("survey", "show", "wealth"), "hearsay: there is no survey 'wealth' here\n"),
    ],
)
def test_what_cannot_be_answered_is_said_in_one_line(
    address: str, arguments: tuple[str, ...], message: str
) -> None:
    registered(address, "empty")
    done = hearsay(*arguments, "--target", address)
    assert done.returncode == 1
    assert done.stderr.endswith(message)
    assert done.stderr.count("\n") == 1


def test_the_server_does_not_listen_to_strangers_unasked(tmp_path: Path) -> None:
    done = hearsay_serve("--data", tmp_path, "--listen", "0.0.0.0:0")
    assert done.returncode == 1
    assert "0.0.0.0:0 is not loopback: set tls_certificate and tls_key" in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_port_in_use_at_any_address_of_the_name_is_said(
    address: str, tmp_path: Path, host: str
) -> None:
    listen = f"{host}:{address.rpartition(':')[2]}"
    done = hearsay_serve("--data", tmp_path, "--listen", listen)
    assert done.returncode == 1
    assert f"cannot listen on {listen}: 127.0.0.1 has a server on this port" in done.stderr


@pytest.mark.parametrize("command", ["survey show", "training show", "export --to x"])
def test_a_name_that_is_no_utf8_is_said_in_one_line(address: str, command: str) -> None:
    done = hearsay(*command.split(), "so\udcff", "--target", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "hearsay: arguments are UTF-8, and so\\udcff is not\n"


def test_without_the_server_extra_the_command_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; from hearsay_server.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'hearsay-ldp[server]'" in done.stderr


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = (
        "import sys; from hearsay_server.cli import app; app(['--help'], standalone_mode=False);"
        "heavy = ('numpy', 'grpc', 'pandas', 'sqlalchemy', 'pydantic');"
        "print([module for module in heavy if module in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Run the aggregation server" in ran.stdout
    assert ran.stdout.endswith("[]\n")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_command_has_the_help_that_the_list_gives(name: str) -> None:
    _, said = cli.COMMANDS[name]
    assert said in " ".join(cli.load(name).help.split())


def test_the_version_is_the_distributions() -> None:
    version = metadata.version("hearsay-ldp")
    said = hearsay("--version", HEARSAY_REVISION="0123456789ab").stdout
    assert said == f"hearsay {version}, revision 0123456789ab\n"
    for package in PACKAGES:
        assert package.__version__ == version


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_shipped(package: ModuleType) -> None:
    assert package.__file__ is not None
    assert (Path(package.__file__).parent / "py.typed").is_file()


def test_health_is_asked_over_grpc() -> None:
    for target in ("http://127.0.0.1:1", "https://a.example"):
        done = hearsay("health", "--target", target)
        assert done.returncode == 1
        assert done.stderr.startswith("hearsay: health is asked over gRPC, at HOST:PORT; ")
