"""`hearsay device`."""

import json
import sqlite3
from pathlib import Path

from command import hearsay

from hearsay import Caps
from support import Server, device


def run(*arguments: str | Path, columns: int = 160) -> str:
    done = hearsay(*arguments, COLUMNS=str(columns))
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*arguments: str | Path) -> str:
    done = hearsay(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr


def test_a_ledger_can_be_made_and_looked_into(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    run("device", "create", file)
    assert "no survey has been answered" in run("device", "show", file)
    with device(server.address, "health", level="strict", ledger=file) as client:
        client.set_caps(Caps(life=3.0))
        client.record(smokes="no", age=30)
        other, third = client.person("other", level="strict"), client.person("third", level="open")
        other.grant()
        other.set_caps(Caps(life=2.0))
        assert other.record(smokes="yes")
        assert client.flush()
        server.stop()
        third.grant()
        assert third.record(age=30)
        client.close(0)
    before = file.read_bytes()
    found = json.loads(run("device", "show", file, "--json"))
    (others,) = json.loads(run("device", "show", file, "--person", "other", "--json"))["surveys"]
    text = run("device", "show", file)
    assert file.read_bytes() == before
    (survey,) = found["surveys"]
    assert found["created"] is None
    assert survey["consent"] is True
    assert survey["caps"] == {"life": 3.0}
    assert survey["persons"] == 2
    assert survey["left"] == {"smokes": 2.0, "age": 2.0}
    assert survey["spent"] == {
        "smokes": [{"epsilon": 0.5, "times": 1}],
        "age": [{"epsilon": 0.5, "times": 1}],
    }
    assert survey["answered"] == {"once": ["smokes", "age"]}
    assert others["spent"] == {"smokes": [{"epsilon": 0.5, "times": 1}]}
    assert (others["consent"], others["caps"]) == (True, {"life": 2.0})
    assert others["left"] == {"smokes": 1.5, "age": 1.5}
    (sent,) = survey["sent"]
    assert sent["became"] == "stored"
    assert (sent["rows"], len(sent["id"])) == (2, 32)
    (waiting,) = survey["waiting"]
    assert [c["attribute"] for c in waiting["columns"]] == ["age"]
    assert "counts as" in waiting["columns"][0]["codes"][0]
    assert "smokes (strict):" in text
    assert "2 persons share the device" in text
    narrow = run("device", "show", file, columns=80)
    assert "…" not in narrow
    assert sent["at"].split("T")[0] in narrow


def test_what_is_no_ledger_is_told(tmp_path: Path) -> None:
    assert "there is no file" in refusal("device", "show", tmp_path / "none.db")
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 30)
    assert "is no ledger that can be read" in refusal("device", "show", tmp_path / "text")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert f"{tmp_path / 'other.db'} is no ledger\n" in refusal(
        "device", "show", tmp_path / "other.db"
    )
