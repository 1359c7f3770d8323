"""Where the server's configuration comes from, and what is refused."""

import os
import re
import tomllib
from pathlib import Path

import pytest
from command import hearsay

from hearsay_server.config import (
    Config,
    HelperConfig,
    Process,
    ShufflerConfig,
    explained,
    is_secret,
    load,
    read,
    shown,
)
from hearsay_server.ingest.intake import Limits
from ldp import InvalidInput

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "deploy" / "hearsay.toml"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("HEARSAY_"):
            monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    file = folder / "hearsay.toml"
    file.write_text(text)
    return file


def test_the_sample_has_every_key_with_its_default() -> None:
    assert sorted(tomllib.loads(SAMPLE.read_text())) == sorted(Config.model_fields)
    assert load(SAMPLE) == Config()


def test_every_key_is_explained_with_its_variable_type_and_default() -> None:
    printed = hearsay("config", "--explain").stdout
    for name in Config.model_fields:
        assert f"\n    HEARSAY_{name.upper()}, " in printed, name
    assert all(key.meaning for key in explained())
    assert {key.name for key in explained()} == {*Config.model_fields}
    assert (
        "max_batch_rows\n    Rows that one batch may hold.\n"
        "    HEARSAY_MAX_BATCH_ROWS, whole number > 0 and < 2147483648; default 100000\n"
    ) in printed
    assert 'HEARSAY_LOG_FORMAT, text or json; default "text"' in printed
    assert 'HEARSAY_TLS_KEY, path, or empty; default ""' in printed


def test_the_values_that_a_server_would_take_are_printed_as_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, "max_batch_rows = 7\ninsecure = true\n")
    url = "postgresql://ada:secret@db/hearsay"
    printed = hearsay("config", "--config", file, HEARSAY_DATABASE=url).stdout
    assert "secret" not in printed
    (tmp_path / "again").mkdir()
    again = load(written(tmp_path / "again", printed))
    hidden = url.replace("secret", "***")
    assert again == load(file).model_copy(update={"database": hidden})


SECRETS = {"helper_token", "collector_token", "database"}

OPEN = {
    *("data", "listen", "http", "http_hosts", "http_origins", "insecure", "tls_certificate"),
    *("tls_key", "tls_client_ca", "encryption_key", "require_device_token", "max_message_bytes"),
    *("http_max_json_bytes", "max_open_calls", "max_connections", "max_streams_per_connection"),
    *("max_upload_seconds", "max_connection_idle_seconds", "batches_per_second", "metrics"),
    *("traces", "log_format", "log_level", "keep_batches_days", "pages", "attestation"),
    *("share_port", "helper", "helper_ca", "helper_insecure", "helper_seconds", "max_batch_rows"),
    *("rows_per_token_and_period", "analysis_seconds", "analysis_memory_mib", "probe_seconds"),
    *("collector", "collector_ca", "collector_insecure", "revisions", "check_seconds", "ohttp"),
}
"""The keys whose values anybody may see. A file's path is no secret; its content is not shown."""

KINDS = (Config, ShufflerConfig, HelperConfig)


@pytest.mark.parametrize("kind", KINDS)
def test_each_key_is_known_to_be_secret_or_open(kind: type[Process]) -> None:
    """A new key fails here: put it into one of the sets; a secret is of `config.Secret`."""
    for name in kind.model_fields:
        assert (name in SECRETS) != (name in OPEN), name
        assert is_secret(kind, name) == (name in SECRETS), name


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_is_shown_printed_or_quoted(kind: type[Process]) -> None:
    given: dict[str, object] = {"collector": "c:1"} if "collector" in kind.model_fields else {}
    for name in SECRETS & {*kind.model_fields}:
        setup = read(kind, flags={**given, name: "hush"})
        assert shown(setup)[name] == "***"
        assert "hush" not in repr(setup) + str(shown(setup))
        assert shown(read(kind, flags=given))[name] == ""
        with pytest.raises(InvalidInput) as refused:
            read(kind, flags={**given, name: ["hush"]})
        assert "hush" not in str(refused.value)
        assert name in str(refused.value)


def test_the_command_prints_no_secret(tmp_path: Path) -> None:
    url = "postgresql://ada:hush@db/hearsay?sslpassword=hush&password=hush&sslmode=require"
    printed = hearsay(
        "config",
        HEARSAY_HELPER_TOKEN="hearsay-hush",
        HEARSAY_HELPER="https://ada:hush@helper.example",
        HEARSAY_DATABASE=url,
    ).stdout
    assert "hush" not in printed
    for line in (
        'helper_token = "***"',
        'helper = "https://ada:***@helper.example"',
        "sslmode=require",
    ):
        assert line in printed


@pytest.mark.parametrize("name", ["listen", "http", "metrics"])
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:abc",
        "abc",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:",
        "h: 5",
        "h:٣",
        "[::1]:x",
    ],
)
def test_a_port_that_is_none_is_refused_in_one_line(name: str, address: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{name} must be .*HOST:PORT, with a port from 0 to"):
        load(flags={name: address})


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("listen", "127.0.0.1:0"),
        ("listen", "[::1]:65535"),
        ("listen", "unix:/run/hearsay/socket"),
        ("http", ""),
        ("http", "stats.example:443"),
        ("metrics", "9464"),
        ("metrics", "[::]:9464"),
    ],
)
def test_an_address_is_taken(name: str, address: str) -> None:
    assert getattr(load(flags={name: address}), name) == address


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hush@h:abc/n",
        "postgresql://u:hush@[::1/n",
        "postgresql://u:hush@h:65536/n",
        "postgresql://u:hu@sh@h/n",
        "mysql://u:hush@h/n",
        "hush",
        "postgresql:hush",
    ],
)
def test_a_url_of_no_database_is_said_in_one_line_without_its_password(url: str) -> None:
    for command in (
        ("token", "list", "--database", url),
        ("config",),
        ("serve", "--database", url),
    ):
        done = hearsay(*command, HEARSAY_DATABASE=url)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("hearsay: a database")
        assert done.stderr.count("\n") == 1
        assert "sh" not in done.stderr.removeprefix("hearsay").replace("PASSWORD", "")


def test_a_wrong_value_is_said_instead_of_printed(tmp_path: Path) -> None:
    done = hearsay("config", "--config", written(tmp_path, "listn = 1"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "listn: there is no such key" in done.stderr
    unknown = hearsay("config", HEARSAY_DATABASE="no url, but s3cret").stdout
    assert "s3cret" not in unknown


def test_limits_are_by_default_those_of_the_configuration() -> None:
    config = Config()
    assert Limits() == Limits(config.max_batch_rows, config.rows_per_token_and_period)


def test_a_configuration_is_made_of_its_arguments_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEARSAY_DATABASE", "postgresql://elsewhere")
    assert Config().database == ""
    assert load().database == "postgresql://elsewhere"


def test_the_environment_overrides_the_file_and_flags_override_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, 'max_batch_rows = 1\nmax_open_calls = 1\nlog_format = "json"')
    monkeypatch.setenv("HEARSAY_MAX_OPEN_CALLS", "2")
    monkeypatch.setenv("HEARSAY_LOG_FORMAT", "text")
    config = load(file, {"log_format": "json", "log_level": None})
    assert (config.max_batch_rows, config.max_open_calls) == (1, 2)
    assert (config.log_format, config.log_level) == ("json", "info")


def test_each_type_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {
        "HEARSAY_REQUIRE_DEVICE_TOKEN": "true",
        "HEARSAY_INSECURE": "0",
        "HEARSAY_BATCHES_PER_SECOND": "2.5",
        "HEARSAY_DATA": "/var/lib/hearsay",
        "HEARSAY_TLS_KEY": "",
    }
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    config = load()
    assert config.require_device_token is True
    assert config.insecure is False
    assert config.batches_per_second == 2.5
    assert config.data == Path("/var/lib/hearsay")
    assert config.tls_key is None


def test_an_empty_variable_takes_back_a_path_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, 'tls_key = "key"\ntls_certificate = "chain"')
    assert load(file).tls_key == Path("key")
    monkeypatch.setenv("HEARSAY_TLS_KEY", "")
    monkeypatch.setenv("HEARSAY_TLS_CERTIFICATE", "")
    assert load(file) == Config()


def read_by_others() -> set[str]:
    """Return the variables that commands, the SDK or the tests read, besides the keys."""
    reading = re.compile(r'(?:environ\.get\(|envvar=|value\(|is_set\()"(HEARSAY_\w+)"')
    files = [
        file for folder in ("client", "server", "tests") for file in ROOT.glob(f"{folder}/**/*.py")
    ]
    found = {name for file in files for name in reading.findall(file.read_text())}
    return found - {f"HEARSAY_{key.upper()}" for key in Config.model_fields}


@pytest.mark.parametrize("name", sorted({"HEARSAY_CONFIG", *read_by_others()}))
def test_what_is_read_elsewhere_is_no_key_of_a_process(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert load() == Config()
    for kind in (ShufflerConfig, HelperConfig):
        assert read(kind, flags={"collector": "x"}) == kind(collector="x")


def test_the_switches_of_tests_and_clients_are_read_elsewhere() -> None:
    assert {"HEARSAY_TESTING", "HEARSAY_DEBUG", "HEARSAY_DISABLED", "HEARSAY_TARGET"} <= (
        read_by_others()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listn = 1", "listn: there is no such key; there are listen, http, "),
        ("[limits]\nrows = 1", "limits: there is no such key"),
        ("listen = 50051", "listen must be a valid string, got 50051"),
        ("insecure = 1", "insecure must be true or false, got 1"),
        ("max_batch_rows = 1.5", "max_batch_rows must be a valid integer, got a number with"),
        ("max_batch_rows = true", "max_batch_rows must be a number, got True"),
        ('data = ""', "data must be a path, got ''"),
        ("tls_key = 1", "tls_key must be a path, got 1"),
        ("max_open_calls = 0", "max_open_calls must be greater than 0, got 0"),
        ("_env_file = 'x'", "_env_file: there is no such key"),
        ("listen = ", "Invalid value"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidInput) as refused:
        load(file)
    assert str(refused.value).startswith(str(file))
    assert message in str(refused.value)


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "hearsay.toml"
    file.write_bytes(b'listen = "\xff"')
    with pytest.raises(InvalidInput, match=f"{file}, line 1, character 11: byte 0xff"):
        load(file)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_an_editor_may_mark_the_encoding(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "hearsay.toml"
    file.write_bytes('listen = "127.0.0.1:1"\r\nlog_format = "json"\r\n'.encode(encoding))
    assert (load(file).listen, load(file).log_format) == ("127.0.0.1:1", "json")


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read .*none\.toml: No such file"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("HEARSAY_REQUIRE_DEVICE_TOKENS", "true", "there is no such key"),
        ("HEARSAY_INSECURE", "maybe", "HEARSAY_INSECURE must be a valid boolean.*, got 'maybe'"),
        ("HEARSAY_MAX_OPEN_CALLS", "many", "HEARSAY_MAX_OPEN_CALLS must be a valid integer"),
        ("HEARSAY_DATA", "", "HEARSAY_DATA must be a path, got ''"),
    ],
)
def test_a_bad_variable_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, message: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(InvalidInput, match=message):
        load()


def test_all_that_is_wrong_is_said_at_once_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "listn = 1\nlisten = 1")
    monkeypatch.setenv("HEARSAY_INSECURE", "maybe")
    with pytest.raises(InvalidInput) as refused:
        load(file, {"log_level": "loud"})
    said = str(refused.value)
    for each in (
        f"{file}: listn:",
        f"{file}: listen must",
        "HEARSAY_INSECURE must",
        "log_level must",
    ):
        assert each in said
    assert "pydantic" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tls_key": Path("key")}, "tls_certificate and tls_key go together"),
        ({"tls_client_ca": Path("ca")}, "tls_client_ca needs tls_certificate"),
        ({"rows_per_token_and_period": 5}, "set require_device_token as well"),
        ({"batches_per_second": 5.0}, "all who have none would share one"),
        ({"max_message_bytes": 0}, "max_message_bytes must be greater than 0, got 0"),
        (
            {"batches_per_second": float("nan")},
            "batches_per_second must be a finite number, got nan",
        ),
        ({"batches_per_second": -1.0}, "batches_per_second must be .* equal to 0, got -1.0"),
        ({"rows_per_token_and_period": -1}, "rows_per_token_and_period must be .* to 0, got -1"),
        ({"keep_batches_days": -1}, "keep_batches_days must be .* equal to 0, got -1"),
        (
            {"max_open_calls": 1 << 31},
            "max_open_calls must be less than 2147483648, got 2147483648",
        ),
        (
            {"max_upload_seconds": float("inf")},
            "max_upload_seconds must be a finite number, got inf",
        ),
        ({"probe_seconds": 0.0}, "probe_seconds must be greater than 0, got 0.0"),
        ({"log_format": "xml"}, "log_format must be 'text' or 'json', got 'xml'"),
        (
            {"log_level": "loud"},
            "log_level must be 'debug', 'info', 'warning' or 'error', got 'loud'",
        ),
    ],
)
def test_values_that_cannot_be_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load(flags=keys)
