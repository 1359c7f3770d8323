"""`hearsay device`."""

import json
import shutil
import sqlite3
from pathlib import Path

from command import hearsay
from pytest import approx
from serving import Survey

from hearsay import Caps, Delivery
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
    with device(server.address, "health", ledger=file) as client:
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
    assert survey["composed"] == approx({"smokes": 0.5, "age": 0.5}, rel=1e-4)  # one report each
    assert (found["spent"], found["composed"]) == approx((1.0, 1.0), rel=1e-4)
    assert survey["answered"] == {"once": ["smokes", "age"]}
    assert others["spent"] == {"smokes": [{"epsilon": 0.5, "times": 1}]}
    assert (others["consent"], others["caps"]) == (True, {"life": 2.0})
    assert others["left"] == {"smokes": 1.5, "age": 1.5}
    (sent,) = survey["sent"]
    assert sent["became"] == "stored"
    assert (sent["rows"], len(sent["id"])) == (2, 32)
    (waiting,) = survey["waiting"]
    assert [c["attribute"] for c in waiting["columns"]] == ["age"]
    (code,) = waiting["columns"][0]["codes"]
    assert bytes.fromhex(code["code"])
    assert code["means"].startswith("counts as ")
    assert "│ smokes (strict)" in text
    assert "all surveys together: epsilon 1 spent; but for a probability of 1e-06" in text
    assert "people besides the device's own user: 2 (see --person)" in text
    narrow = run("device", "show", file, columns=80)
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert sent["at"].split("T")[0] in narrow


def test_epsilon_and_answers_dropped_have_different_names(survey: Survey, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    run("device", "create", file)
    with device(survey.address, survey.name, ledger=file) as client:
        for _ in range(2):
            client.record(smokes="no")
    lines = [line.strip("│ ") for line in run("device", "show", file).splitlines()]
    assert "spent" not in lines
    assert "epsilon spent" in lines
    counted = "spent    │     1 │ answers dropped: given in the period already, or above a cap"
    assert counted in lines


def test_a_person_whom_the_ledger_does_not_know_is_refused(survey: Survey, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    run("device", "create", file)
    known = "the ledger knows no person 'ann'; it keeps names as hashes only, so it cannot list "
    known += "them. People that it knows, besides the device's own user: "
    assert f"{known}0\n" in refusal("device", "show", file, "--person", "ann")
    with device(survey.address, survey.name, ledger=file) as client:
        client.person("bob", level="strict").grant()
        client.person("eve", level="strict").grant()
    assert f"{known}2\n" in refusal("device", "show", file, "--person", "ann")
    assert "consent granted" in run("device", "show", file, "--person", "bob")


def test_looking_leaves_no_file_behind(survey: Survey, tmp_path: Path) -> None:
    """Neither beside a closed ledger, nor one in use, nor a copy of one that was in use."""
    folder, copied = tmp_path / "device", tmp_path / "copied"
    folder.mkdir()
    copied.mkdir()
    file = folder / "ledger.db"
    run("device", "create", file)
    later = Delivery(batch_age=60.0)  # so that the answer is in the log while it is copied
    with device(survey.address, survey.name, ledger=file, delivery=later) as client:
        assert client.record(smokes="no")
        in_use = sorted(folder.iterdir())
        for name in ("ledger.db", "ledger.db-wal"):
            shutil.copyfile(folder / name, copied / name)
        texts = [run("device", "show", each / "ledger.db") for each in (folder, copied)]
        assert sorted(folder.iterdir()) == in_use
        assert client.record(age=30)  # the ledger is none the worse for it
    texts.append(run("device", "show", file))
    assert list(folder.iterdir()) == [file]
    assert len(list(copied.iterdir())) == 2
    for text in texts:
        assert "│ smokes    │     0.5 │" in text
    assert ["│ age       │     0.5 │" in text for text in texts] == [False, False, True]


def test_what_is_no_ledger_is_told(tmp_path: Path) -> None:
    assert "there is no file" in refusal("device", "show", tmp_path / "none.db")
    (tmp_path / "text").write_text("not a database, but long enough to be read as one" * 30)
    assert "is no ledger that can be read" in refusal("device", "show", tmp_path / "text")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert f"{tmp_path / 'other.db'} is no ledger\n" in refusal(
        "device", "show", tmp_path / "other.db"
    )
