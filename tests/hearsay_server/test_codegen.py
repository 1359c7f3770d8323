"""`hearsay codegen`."""

import os
import subprocess
import sys
from pathlib import Path

import hearsay
from hearsay_server import codegen
from hearsay_server import survey as surveys
from support import SURVEY, Server, device

ODD = SURVEY.replace('"smokes"', '"from"').replace('"age"', '"class"') + (
    '[[attributes]]\nname = "class_"\ntitle = "A \\"quoted\\" \\\\ title"\n'
    '[attributes.categorical]\nvalues = ["a \\"b\\"", "é", "\\\\"]\n'
)

USE = """
from typed import record_health
from hearsay import Client

def use(client: Client) -> None:
    {call}
"""


def test_a_type_checker_reads_the_answers(tmp_path: Path) -> None:
    (tmp_path / "survey.toml").write_text(SURVEY)
    command = [sys.executable, "-m", "hearsay_server", "codegen", str(tmp_path / "survey.toml")]
    subprocess.run([*command, "--out", str(tmp_path / "typed.py")], check=True)
    calls = {
        "right.py": 'record_health(client, smokes="no", age=41.5)',
        "wrong.py": 'record_health(client, smokes="maybe")',
        "unknown.py": "record_health(client, drinks=1)",
    }
    for file, call in calls.items():
        (tmp_path / file).write_text(USE.format(call=call))
    root = Path(hearsay.__file__).parents[3]
    paths = [str(tmp_path), str(root), str(root / "client/python")]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent",
         "--explicit-package-bases", "--no-error-summary", "typed.py", *calls],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": os.pathsep.join(paths)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 1
    errors = sorted(line for line in checked.stdout.splitlines() if "error:" in line)
    assert len(errors) == 2, checked.stdout + checked.stderr
    assert errors[0].startswith("unknown.py")
    assert 'Unexpected keyword argument "drinks"' in errors[0]
    assert errors[1].startswith("wrong.py")
    assert 'Argument "smokes"' in errors[1]


def test_names_and_values_may_be_anything(server: Server) -> None:
    server.create(ODD.replace("health", "odd"))
    source = codegen.module(surveys.from_toml(ODD.replace("health", "odd"), "odd.toml"))
    module: dict[str, object] = {}
    exec(compile(source, "typed.py", "exec"), module)
    record = module["record_odd"]
    with device(server.address, "odd", level="open") as client:
        taken = record(client, from_="yes", class_=33, class__2='a "b"')  # type: ignore[operator]
        assert taken == ("from", "class", "class_")
        assert record(client, class__2="\\") == ()  # type: ignore[operator]
        assert client.counters["spent"] == 1
