"""The guide's code runs as it stands, and the tests that it names are there."""

import contextlib
import importlib
import json
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hearsay import MEMORY, Client, Reason, create_ledger
from hearsay.recording import ledger_file
from hearsay_server.commands import codegen
from hearsay_server.surveys import survey as surveys
from support import Server, free_port

REPOSITORY = Path(__file__).resolve().parents[2]
GUIDE = (REPOSITORY / "docs" / "sdk.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", GUIDE, re.S | re.M))
CODE = {
    title: code
    for title, text in SECTIONS.items()
    for code in re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
}
"""By section, each of which has one block of Python or none."""
(SURVEY,) = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.S | re.M)

BACKENDS = {"FastAPI": ("fastapi", "uvicorn", "--port"), "Flask": ("flask", "gunicorn", "--bind=:")}
"""What has a server of its own: the packages, and how the server is told its port."""

RECORDS = {
    "A desktop app": 1,
    "A web backend": 1,
    "A script": 1,
    "A notebook": 2,
    "asyncio": 1,
    "Without the module": 1,
    "Diagnostics": 1,
    "Levels and caps": 1,
    "The ledger": 1,
    "Your own tests": 0,
}
"""What the server has after the code of a section has run."""

MAKE_THEMSELVES = ("A desktop app", "A notebook", "The ledger", "Your own tests")
"""The code of these sections calls `create_ledger`, or needs no file."""


@pytest.fixture
def folder(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an app that ships the module, beside a server that has the survey."""
    server.create(SURVEY)
    folder = tmp_path / "app"
    folder.mkdir()
    plan = surveys.resolve(surveys.from_toml(SURVEY, "daily.toml"))
    (folder / "daily.py").write_text(codegen.module(plan), encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "daily", raising=False)
    importlib.invalidate_caches()
    return folder


def test_every_kind_of_user_has_code() -> None:
    assert set(CODE) == set(RECORDS) | set(BACKENDS)
    assert GUIDE.count("```python\n") == len(CODE)


@pytest.mark.parametrize("title", RECORDS)
def test_the_code_runs(
    server: Server, folder: Path, capsys: pytest.CaptureFixture[str], title: str
) -> None:
    if title not in MAKE_THEMSELVES:
        create_ledger("backend.db" if title == "A web backend" else "hearsay.db")
    code = CODE[title].replace("127.0.0.1:50051", server.address)
    exec(compile(code, title, "exec"), {"__name__": "__main__"})
    assert server.show("daily").status.records == RECORDS[title]
    printed = capsys.readouterr().out
    if title == "A desktop app":
        assert "mood spent 0.5 left 364" in printed
    if title == "Diagnostics":
        assert "('mood',)\n('mood',)\n{'weather': 'unknown'}\n" in printed
    if title == "Levels and caps":
        assert "strict\n0.5\nmood 0.25 0.25 9.75\n" in printed


@contextlib.contextmanager
def backend(title: str, folder: Path, address: str) -> Iterator[str]:
    """Run the code of a section by its own commands; yield where it listens."""
    package, command, port_option = BACKENDS[title]
    pytest.importorskip(package)
    pytest.importorskip(command)
    (folder / "app.py").write_text(CODE[title].replace("127.0.0.1:50051", address))
    ((create, serve),) = re.findall(r"^```sh\n(.*)\n(.*)\n```", SECTIONS[title], re.M)
    assert create == "hearsay device create backend.db"
    if not (folder / "backend.db").exists():
        subprocess.run([sys.executable, "-m", "hearsay_server", *create.split()[1:]], check=True)
    port = free_port()
    name, *given = shlex.split(serve)
    assert name == command
    listen = [f"{port_option}{port}"] if port_option.endswith(":") else [port_option, str(port)]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen([sys.executable, "-m", name, *given, *listen], stderr=log)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                ask(f"http://127.0.0.1:{port}", "PUT", "/consent", "first")
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def ask(address: str, method: str, path: str, user: str) -> bytes:
    request = urllib.request.Request(address + path, method=method, headers={"X-User": user})
    with urllib.request.urlopen(request, timeout=20) as answer:
        body: bytes = answer.read()
    return body


@pytest.mark.slow
@pytest.mark.parametrize("title", BACKENDS)
def test_a_backend_with_two_workers_sends_every_answer_once(
    server: Server, folder: Path, title: str
) -> None:
    """Also what one lifetime of it leaves behind."""

    def answer(address: str, user: str) -> list[dict[str, object]]:
        ask(address, "PUT", "/consent", user)
        return [json.loads(ask(address, "POST", "/mood/good", user)) for _ in range(2)]

    for lifetime in range(2):
        with (
            backend(title, folder, server.address) as address,
            ThreadPoolExecutor(8) as pool,
        ):
            people = [f"{lifetime} {number}" for number in range(60)]
            for first, again in pool.map(answer, [address] * len(people), people):
                assert first == {"taken": ["mood"], "dropped": {}}
                assert again == {"taken": [], "dropped": {"mood": "spent"}}
            ask(address, "DELETE", "/consent", people[0])
            after = json.loads(ask(address, "POST", "/mood/bad", people[0]))
            assert after == {"taken": [], "dropped": {"mood": "no_consent"}}
    found = ledger_file.read(folder / "backend.db").surveys[0]
    assert not found.waiting
    taken, revoked = found.counters["recorded"], found.counters.get("revoked", 0)
    assert taken == 120
    assert revoked <= 2  # where the answer had not left yet
    assert server.show("daily").status.records == taken - revoked


def test_every_reason_is_explained() -> None:
    for reason in Reason:
        assert f"| `{reason}` |" in GUIDE


def test_every_variable_of_the_environment_is_explained() -> None:
    source = "".join(
        file.read_text(encoding="utf-8")
        for file in (REPOSITORY / "client/python/hearsay").glob("*.py")
        if file.name != "testing.py"
    )
    read = set(re.findall(r'"(HEARSAY_[A-Z]+)"', source))
    assert read == set(re.findall(r"^\| `(HEARSAY_[A-Z]+)=", GUIDE, re.M))


def test_every_counter_is_explained(folder: Path, server: Server) -> None:
    table = SECTIONS["Why nothing is taken"].partition("| counter |")[2]
    documented = set(re.findall(r"`(\w+)`[,| ]", table))
    docstring = Client.counters.fget.__doc__ or ""  # type: ignore[attr-defined]
    assert set(re.findall(r'"(\w+)"', docstring)) <= documented
    with Client(server.address, "daily", epsilon=1.0, ledger=MEMORY, consent=True) as client:
        assert client.wait_ready()
        client.record(mood="none of these", walked=1, weather="sunny")
        client.record(mood="good")
        client.flush()
        assert set(client.counters) <= documented


@pytest.mark.parametrize("page", ["sdk.md", "threat-model.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    names = set(re.findall(r"`(?:tests/)?((?:\w+/)*test_\w+\.py)`", text))
    tests = REPOSITORY / "tests"
    found = {  # the SDK's, if none is said
        name: [tests / name, *(tests / "hearsay").rglob(name)] for name in names
    }
    files = [file for both in found.values() for file in both if file.is_file()]
    assert names
    assert not [name for name, both in found.items() if not any(map(Path.is_file, both))]
    defined = "".join(file.read_text(encoding="utf-8") for file in files)
    named = set(re.findall(r"`(test_\w+)`", text))
    assert not [name for name in named if f"def {name}(" not in defined]


def test_every_row_of_what_holds_names_its_test() -> None:
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", SECTIONS["What holds when"], re.M)
    assert len(rows) > 30
    assert not [row for row in rows[1:] if not re.match(r"`test_\w+\.py`", row[2])]


def test_every_promise_of_the_threat_model_names_an_adversary_and_a_test() -> None:
    text = (REPOSITORY / "docs" / "threat-model.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^#{2,3} ([^\n]*)\n(.*?)(?=^#{2,3} |\Z)", text, re.S | re.M))
    for title in ("What is spent", "The ledger"):
        promises = re.split(r"^- ", parts[title].strip(), flags=re.M)[1:]
        assert len(promises) > 4
        for promise in promises:
            assert re.search(r"`[\w/]*test_\w+(\.py)?`", promise), promise
    operators, _, _ = parts["To the operator"].partition("**Where it ends")
    told = operators.strip().split("\n\n")[1:]
    assert len(told) > 4
    for promise in told:
        assert re.match(r"\*\*[^*]+\.\*\* ", promise), promise
        assert re.search(r"`test_\w+`", promise), promise
    assert "test_estimation.py" in parts["To the analyst"]
