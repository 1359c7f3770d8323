"""`hearsay codegen`."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command import hearsay as command
from lying import lying
from serving import create, own_name, serving

import hearsay
from hearsay import InvalidInput
from hearsay.agreement import Agreement
from hearsay.v1 import plan_pb2
from hearsay_server.commands import codegen
from hearsay_server.surveys import survey as surveys
from support import SURVEY, device, free_port

ODD = r"""
name = "odd"
title = "A \"survey\" \\ of 'odd' questions"
[levels]
strict = 1.0
open = 4.0
[[attributes]]
name = "from"
mechanism = "krr"
[attributes.categorical]
values = ["no", "sometimes", "yes"]
[[attributes]]
name = "class"
[attributes.numeric]
low = 20
high = 60
[[attributes]]
name = "class_"
title = "A \"quoted\" \\ title"
[attributes.categorical]
values = ["a \"b\"", "é", "\\", "it's", "'\""]
[[attributes]]
name = "answers"
[attributes.categorical]
values = ["one", "two"]
[[attributes]]
name = "agreement"
[attributes.categorical]
values = ["one", "two"]
[[attributes]]
name = "float"
[attributes.numeric]
low = -1e-5
high = 1e30
clamp = true
[[attributes]]
name = "client"
[attributes.numeric]
low = 0
high = 1
"""
"""Names and values that are difficult to write down in Python."""

DELICATE = SURVEY.replace(
    'title = "A', 'period = "P1D"\ndefault_level = "open"\ntitle = "A'
).replace('mechanism = "krr"', "memo = 2") + (
    '[[attributes]]\nname = "affair"\n'
    '[attributes.categorical]\nvalues = ["no", "long ago", "yes"]\nsensitive = ["yes"]\n'
    '[[attributes]]\nname = "ill"\n'
    '[attributes.categorical]\nvalues = ["no", "yes"]\nsensitive = ["yes"]\n'
)
"""A survey that reveals something, and a memo that tells of changes."""

PUBLIC = """
name = "public"
period = "P1D"
panels = 16
levels = { open = 1.0 }
[[attributes]]
name = "mood"
categorical.values = ["bad", "good"]
[[properties]]
name = "platform"
values = ["ios", "android"]
[[properties]]
name = "shop"
values = ["eu"]
"""

MAPPED = SURVEY.replace('mechanism = "krr"', "").replace(
    '"yes"]', '"yes"]\nmaps.mine.sensitive = ["yes"]\nmaps.work.sensitive = ["yes", "no"]'
)
"""A survey whose people differ in what they mind."""

USE = """
from typed import AGREEMENT, record_health
from hearsay import Agreement, Client, Person

def use(client: Client, person: Person, agreement: Agreement = AGREEMENT) -> None:
    {call}
"""


def resolved(toml: str) -> bytes:
    return surveys.resolve(surveys.from_toml(toml, "test.toml"))


def imported(source: str) -> ModuleType:
    module = ModuleType("typed")
    exec(compile(source, "typed.py", "exec"), module.__dict__)
    return module


@pytest.mark.slow
def test_a_type_checker_reads_the_answers(tmp_path: Path) -> None:
    (tmp_path / "survey.toml").write_text(SURVEY)
    (tmp_path / "odd.py").write_text(codegen.module(resolved(ODD)))
    (tmp_path / "delicate.py").write_text(codegen.module(resolved(DELICATE), with_plan=False))
    made = command("codegen", tmp_path / "survey.toml", "--out", tmp_path / "typed.py")
    assert made.returncode == 0
    calls = {
        "right.py": 'record_health(client, smokes="no", age=41.5); record_health(person)',
        "wrong.py": 'record_health(client, smokes="maybe")',
        "unknown.py": "record_health(client, drinks=1)",
    }
    for file, call in calls.items():
        (tmp_path / file).write_text(USE.format(call=call))
    root = Path(hearsay.__file__).parents[3]
    paths = [str(tmp_path), str(root), str(root / "client/python")]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent",
         "--explicit-package-bases", "--no-error-summary",
         "typed.py", "odd.py", "delicate.py", *calls],
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


@pytest.mark.parametrize("with_plan", [True, False])
@pytest.mark.parametrize(
    "toml",
    [SURVEY, ODD, DELICATE, MAPPED, PUBLIC],
    ids=["plain", "odd", "delicate", "mapped", "public"],
)
def test_the_module_is_formatted(toml: str, with_plan: bool) -> None:
    source = codegen.module(resolved(toml), with_plan=with_plan)
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", "--stdin-filename=a.py", "-"],
        input=source, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert formatted.stdout == source


@pytest.mark.parametrize(
    "toml", [SURVEY, ODD, DELICATE, PUBLIC], ids=["plain", "odd", "delicate", "public"]
)
def test_the_module_states_the_agreement_on_the_plan(toml: str) -> None:
    plan = resolved(toml)
    agreed = Agreement.on(plan)
    source = codegen.module(plan)
    module = imported(source)
    assert agreed == module.AGREEMENT
    assert ("may_reveal" in source) == ("may_tell_changes" in source) == (toml is DELICATE)
    bare = imported(codegen.module(plan, with_plan=False)).AGREEMENT
    assert bare.plan == b""
    assert bare.revision == agreed.revision
    assert bare.domains == agreed.domains


def test_a_module_that_was_edited_is_refused_when_it_is_imported() -> None:
    source = codegen.module(resolved(DELICATE))
    assert source.count('        "strict": 1.0,') == 1
    with pytest.raises(InvalidInput, match=r"levels\['strict'\] is 1\.0, the app expects 0\.5"):
        imported(source.replace('        "strict": 1.0,', '        "strict": 0.5,'))


@pytest.mark.parametrize("toml", [SURVEY, ODD, DELICATE], ids=["plain", "odd", "delicate"])
def test_the_revision_is_that_of_a_server(
    toml: str, tmp_path: Path, address: str, request: pytest.FixtureRequest
) -> None:
    toml = toml.replace('"health"', f'"{own_name(request)}"')
    (tmp_path / "habits.toml").write_text(toml)
    frozen = create(address, toml)
    source = command("codegen", tmp_path / "habits.toml").stdout
    assert imported(source).AGREEMENT.revision == frozen.revision.hex()
    fetched = command("codegen", "--survey", frozen.survey, "--target", address)
    assert fetched.stdout == source


def test_a_survey_comes_from_a_file_or_a_server(address: str, tmp_path: Path) -> None:
    (tmp_path / "survey.toml").write_text(SURVEY)
    for given in ((), (tmp_path / "survey.toml", "--survey", "health")):
        done = command("codegen", *given)
        assert done.returncode == 1
        assert "give the survey's file, or --survey with its name: one of them" in done.stderr
    unknown = command("codegen", "--survey", "drinks", "--target", address)
    assert unknown.returncode == 1
    assert "there is no survey 'drinks' here; `hearsay survey list`" in unknown.stderr
    lost = command("codegen", tmp_path / "survey.toml", "--out", tmp_path / "no" / "typed.py")
    assert lost.returncode == 1
    assert f"cannot write {tmp_path / 'no' / 'typed.py'}" in lost.stderr


def test_what_keeps_a_server_from_being_asked_is_told(address: str, tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for given, told in (
        (("--target", nobody), f"no server answers at {nobody}; start one with `hearsay serve`"),
        (("--target", "no.invalid:1"), "the host name in no.invalid:1 does not resolve; check "),
        (("--target", "dns:a"), 'a target is "host:port"'),
        (("--target", "https://a/b"), 'a URL is "https://host"'),
        (("--target", "https://no.invalid"), "the host name in https://no.invalid does not "),
    ):
        done = command("codegen", "--survey", "health", *given)
        assert done.returncode == 1
        assert done.stderr.startswith(f"hearsay: {told}")
    spoken = command("--server-name", "a", "codegen", "--survey", "a", "--target", address)
    assert f"{address} does not speak TLS; leave out --ca" in spoken.stderr
    with serving(tmp_path, require_device_token=True) as secret:
        wrong = ("--target", secret, "--token", "wrong")
        refused = command("codegen", "--survey", "health", *wrong)
    assert f"{secret} does not accept the token, or asks for one" in refused.stderr
    assert refused.stderr.endswith("; give --token, or set HEARSAY_TOKEN\n")


def test_names_and_values_may_be_anything(address: str) -> None:
    create(address, ODD)
    typed = imported(codegen.module(resolved(ODD)))
    with device(address, typed.AGREEMENT, level="open") as client:
        answers = {"answers_2": "two", "float": 0, "client_2": 0.5}
        recorded = typed.record_odd(client, from_="yes", class_=33, class__2='a "b"', **answers)
        assert recorded.taken == ("from", "class", "class_", "answers", "float", "client")
        again = typed.record_odd(client, class__2="\\")
        assert not again
        assert again.dropped["class_"] == "spent"


NAMES = ('x"""', "*/ throw", "\\N{x}", "Größe ²", "ﬁ", "fi", "7", "a); exit(", "None", "b64decode")


def hostile() -> bytes:
    """A plan whose texts would leave their docstring or string, or be no names: a server may send
    it, although none registers it."""
    toml = 'name = "hostile"\nlevels = { strict = 9.0 }\nviews = [["n0", "n1"], ["n1", "n2"]]\n'
    for index in range(len(NAMES)):
        values = ['""\\"; exit(1)', "\\", "'", "{x}"]
        toml += f'[[attributes]]\nname = "n{index}"\ncategorical.values = {json.dumps(values)}\n'
    toml += '[[attributes]]\nname = "word"\n[attributes.strings]\nlongest = 3\n'
    toml += """alphabet = '"\\N{abc}'\ncandidates = ["a", "b"]\n"""
    plan = plan_pb2.Plan.FromString(resolved(toml))
    plan.survey.name = 'a"""; exit(1); """'
    plan.survey.title = '"""; __import__("os").system("id"); """ \\'
    renamed = {f"n{index}": name for index, name in enumerate(NAMES)}
    for attribute in plan.survey.attributes:
        attribute.title = '""" \\x'
        attribute.name = renamed.get(attribute.name, attribute.name)
    for view in plan.survey.views:
        view.attributes[:] = [renamed[name] for name in view.attributes]
    return plan.SerializeToString(deterministic=True)


def test_the_module_of_a_hostile_plan_does_nothing_but_state_it() -> None:
    plan = hostile()
    source = codegen.module(plan)
    tree = ast.parse(source)
    called = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    assert called == {"Agreement", "b64decode", "client.record"}
    kinds = {type(statement) for statement in tree.body}
    assert kinds == {ast.Expr, ast.ImportFrom, ast.Assign, ast.FunctionDef}
    assert Agreement.on(plan) == imported(source).AGREEMENT


def test_the_plan_of_another_survey_makes_no_module(address: str, tmp_path: Path) -> None:
    create(address, SURVEY.replace('"health"', '"other"'))
    create(address, SURVEY)

    def other(answers: list[Any]) -> None:
        answers[0].plan = resolved(SURVEY.replace('"health"', '"other"'))

    with lying(address) as liar, liar.saying("GetPlan", other):
        done = command("codegen", "--survey", "health", "--target", liar.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert "gives the plan of 'other' for 'health'" in done.stderr


@pytest.mark.parametrize(
    "table", ["[sealing]\n", f'[two_servers]\nhelper_key = "{"5f" * 32}"\ndelta = 1e-6\n']
)
def test_a_file_whose_survey_gets_keys_from_the_server_is_refused(
    table: str, tmp_path: Path
) -> None:
    """A module of the file alone could never be used: its plan has no keys."""
    file = tmp_path / "keyless.toml"
    file.write_text(
        'name = "keyless"\nperiod = "P1D"\n[levels]\nstandard = 1.0\n'
        f'{table}[[attributes]]\nname = "way"\ncategorical = {{ values = ["bus", "car"] }}\n'
    )
    done = command("codegen", str(file), "--out", str(tmp_path / "keyless.py"))
    assert done.returncode == 1
    assert "register it, and give --survey keyless" in done.stderr
    assert not (tmp_path / "keyless.py").exists()
