"""Where the server's configuration comes from, and what is refused."""

import tomllib
from pathlib import Path

import pytest

from hearsay_server.config import KEYS, Config, load
from ldp import InvalidInput

SAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "hearsay.toml"


def written(folder: Path, text: str) -> Path:
    file = folder / "hearsay.toml"
    file.write_text(text)
    return file


def test_the_sample_has_every_key_with_its_default() -> None:
    assert list(tomllib.loads(SAMPLE.read_text())) == list(KEYS)
    assert load(SAMPLE) == Config()


def test_the_environment_overrides_the_file_and_flags_override_both(tmp_path: Path) -> None:
    file = written(tmp_path, 'max_batch_rows = 1\nmax_open_calls = 1\nlog_format = "json"')
    environ = {"HEARSAY_MAX_OPEN_CALLS": "2", "HEARSAY_LOG_FORMAT": "text", "PATH": "/bin"}
    config = load(file, environ, {"log_format": "json", "log_level": None})
    assert (config.max_batch_rows, config.max_open_calls) == (1, 2)
    assert (config.log_format, config.log_level) == ("json", "info")


def test_each_type_is_read_from_the_environment() -> None:
    config = load(
        environ={
            "HEARSAY_REQUIRE_DEVICE_TOKEN": "true",
            "HEARSAY_INSECURE": "0",
            "HEARSAY_BATCHES_PER_SECOND": "2.5",
            "HEARSAY_DATA": "/var/lib/hearsay",
            "HEARSAY_TLS_KEY": "",
        }
    )
    assert config.require_device_token is True
    assert config.insecure is False
    assert config.batches_per_second == 2.5
    assert config.data == Path("/var/lib/hearsay")
    assert config.tls_key is None


def test_what_is_meant_for_clients_is_no_key_of_the_server() -> None:
    assert load(environ={"HEARSAY_TOKEN": "secret", "HEARSAY_CONFIG": "x"}) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listn = 1", "listn: there is no such key; there are data, database, "),
        ("[limits]\nrows = 1", "limits: there is no such key"),
        ("listen = 50051", "listen must be text, got 50051"),
        ("insecure = 1", "insecure must be true or false, got 1"),
        ("max_batch_rows = 1.5", "max_batch_rows must be an integer, got 1.5"),
        ("max_batch_rows = true", "max_batch_rows must be an integer, got True"),
        ('data = ""', "data must be a path, got ''"),
        ("listen = ", "Invalid value"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidInput) as refused:
        load(file)
    assert str(refused.value).startswith(str(file))
    assert message in str(refused.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("HEARSAY_REQUIRE_DEVICE_TOKENS", "true", "there is no such key"),
        ("HEARSAY_INSECURE", "yes", "HEARSAY_INSECURE must be true or false, got 'yes'"),
        ("HEARSAY_MAX_OPEN_CALLS", "many", "HEARSAY_MAX_OPEN_CALLS must be an integer"),
    ],
)
def test_a_bad_variable_is_refused_by_name(variable: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load(environ={variable: text})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tls_key": Path("key")}, "tls_certificate and tls_key go together"),
        ({"tls_client_ca": Path("ca")}, "tls_client_ca needs tls_certificate"),
        ({"rows_per_token_and_period": 5}, "set require_device_token as well"),
        ({"batches_per_second": 5.0}, "all who have none would share one"),
        ({"max_message_bytes": 0}, "max_message_bytes must be from 1 to"),
        ({"batches_per_second": float("nan")}, "batches_per_second must be finite and >= 0"),
        ({"probe_seconds": 0.0}, "probe_seconds must be finite and > 0, got 0.0"),
        ({"log_format": "xml"}, "log_format must be text or json, got 'xml'"),
        ({"log_level": "loud"}, "log_level must be one of debug, info"),
    ],
)
def test_values_that_cannot_be_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load(flags=keys)
