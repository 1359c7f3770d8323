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
from {module} import record_health
from hearsay import Client

def use(client: Client) -> None:
    {call}
"""


def _mypy(folder: Path, call: str) -> subprocess.CompletedProcess[str]:
    (folder / "use.py").write_text(USE.format(module="typed", call=call))
    root = Path(hearsay.__file__).parents[3]
    paths = [str(folder), str(root), str(root / "client/python")]
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent",
         "--explicit-package-bases", "use.py", "typed.py"],
        cwd=folder, env={**os.environ, "MYPYPATH": os.pathsep.join(paths)},
        capture_output=True, text=True,
    )  # fmt: skip


def test_a_type_checker_reads_the_answers(tmp_path: Path) -> None:
    (tmp_path / "survey.toml").write_text(SURVEY)
    command = [sys.executable, "-m", "hearsay_server", "codegen", str(tmp_path / "survey.toml")]
    subprocess.run([*command, "--out", str(tmp_path / "typed.py")], check=True)
    right = _mypy(tmp_path, 'record_health(client, smokes="no", age=41.5)')
    assert right.returncode == 0, right.stdout
    wrong = _mypy(tmp_path, 'record_health(client, smokes="maybe")')
    assert wrong.returncode == 1
    assert 'Argument "smokes"' in wrong.stdout
    unknown = _mypy(tmp_path, "record_health(client, drinks=1)")
    assert 'Unexpected keyword argument "drinks"' in unknown.stdout


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
