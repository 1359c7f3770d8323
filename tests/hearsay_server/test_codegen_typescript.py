"""`hearsay codegen --typescript`."""

import json
import os
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest
from command import hearsay as command
from test_codegen import DELICATE, ODD, resolved

from hearsay.agreement import Agreement
from hearsay.v1 import plan_pb2
from hearsay_server.commands import codegen_typescript
from support import SURVEY

WEB = Path(__file__).resolve().parents[2] / "client" / "web"
TOOLS = WEB / "node_modules" / ".bin"

_NAMES = ("__proto__", "constructor", "promise", "Größe ²", "größe ²", "7", "!")
_LONG = ("a value of many characters, of which no two are on one line", "another one like it")


RICH = """name = "rich"
views = [["smokes", "sleeps"], ["sex", "sleeps"]]
[levels]
strict = 2.0
[[attributes]]
name = "reads"
[attributes.set]
values = ["news", "sport", "comics"]
at_most = 2
clamp = true
[[attributes]]
name = "rates"
[attributes.ratings]
keys = ["bus", "train"]
low = 1
high = 5
[[attributes]]
name = "diagnosis"
[attributes.categorical]
values = ["none", "cold", "cancer"]
[attributes.categorical.maps.mine]
sensitive = ["cancer"]
[attributes.categorical.maps.both]
sensitive = ["cold", "cancer"]
""" + "".join(
    f'[[attributes]]\nname = "{name}"\n[attributes.categorical]\nvalues = ["no", "yes"]\n'
    for name in ("smokes", "sleeps", "sex")
)
"""A survey with sets, ratings, maps and views."""


def hostile() -> bytes:
    """A plan whose texts would leave their comment, string or object, or collide as names.

    `hearsay survey` refuses most of its names, but a module is also written from what any server
    sends.
    """
    values = {0: ["*/ throw 3; /*", "${throw_}", "`", "</script>", "\\", '\\"', "'"], 5: _LONG}
    toml = 'name = "hostile"\n[levels]\nstrict = 1.0\nopen = 30.1\n'
    for index in range(len(_NAMES)):
        toml += f'[[attributes]]\nname = "n{index}"\n'
        if index == 3:
            toml += "[attributes.numeric]\nlow = -1e-7\nhigh = 12.5\n"
        else:
            # JSON's strings are TOML's.
            toml += (
                f"[attributes.categorical]\nvalues = {json.dumps(values.get(index, ['y', 'n']))}\n"
            )
    plan = plan_pb2.Plan.FromString(resolved(toml))
    plan.survey.name = "2 */ odd"
    plan.survey.title = "*/ throw 1; /* ${x} ` </script> @deprecated"
    for attribute, name in zip(plan.survey.attributes, _NAMES, strict=True):
        attribute.name = name
    plan.survey.attributes[0].title = "// */ throw 2; /*"
    return plan.SerializeToString(deterministic=True)


MAPPED = SURVEY.replace('mechanism = "krr"', "").replace(
    '"yes"]', '"yes"]\nmaps.mine.sensitive = ["yes"]\nmaps.constructor.sensitive = ["yes", "no"]'
)

PLANS = {
    "plain": resolved(SURVEY),
    "mapped": resolved(MAPPED),
    "odd": resolved(ODD),
    "delicate": resolved(DELICATE),
    "hostile": hostile(),
    "rich": resolved(RICH),
    "one_view": resolved(RICH.replace(', ["sex", "sleeps"]', "")),
}

pytestmark = pytest.mark.skipif(
    not (TOOLS / "esbuild").exists() or shutil.which("node") is None,
    reason="client/web has no Node modules: `make web` installs them",
)


def write(folder: Path, *, with_plan: bool = True) -> None:
    for name, plan in PLANS.items():
        source = codegen_typescript.module(plan, with_plan=with_plan)
        (folder / f"{name}.ts").write_text(source, encoding="utf-8")


def evaluated(folder: Path) -> dict[str, dict[str, object]]:
    """Each module's agreement and the names it exports, as Node sees them."""
    run = (
        "import * as fs from 'node:fs';\n"
        "const found = {};\n"
        f"for (const name of {json.dumps(list(PLANS))}) {{\n"
        "  const module = await import(`./${name}.js`);\n"
        "  const seen = (key, value) => value instanceof Object && !Array.isArray(value)\n"
        "    ? Object.entries(value) : value;\n"
        "  found[name] = JSON.parse(JSON.stringify(module.AGREEMENT, seen));\n"
        "  found[name].push(['exports', Object.keys(module)]);\n"
        "}\n"
        "console.log(JSON.stringify(found));\n"
    )
    (folder / "run.mjs").write_text(run)
    (folder / "package.json").write_text('{"type": "module"}')
    files = [folder / f"{name}.ts" for name in PLANS]
    subprocess.run(
        [TOOLS / "esbuild", *files, f"--outdir={folder}"], check=True, capture_output=True
    )
    done = subprocess.run(
        ["node", "run.mjs"], cwd=folder, check=True, capture_output=True, text=True
    )
    return {name: dict(pairs) for name, pairs in json.loads(done.stdout).items()}


def plain(value: object) -> object:
    """A mapping as its sorted items, a tuple as a list: JavaScript moves keys like "7" forward."""
    if isinstance(value, dict):
        return sorted([key, plain(item)] for key, item in value.items())
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("with_plan", [True, False])
def test_the_module_states_the_agreement_on_the_plan_whatever_its_texts(
    tmp_path: Path, with_plan: bool
) -> None:
    write(tmp_path, with_plan=with_plan)
    found = evaluated(tmp_path)
    for name, plan in PLANS.items():
        agreed, module = Agreement.on(plan), found[name]
        assert module["survey"] == agreed.survey
        assert module["revision"] == agreed.revision
        assert module["period"] == agreed.period
        for ours, theirs in (
            ("domains", agreed.domains),
            ("levels", agreed.levels),
            ("mayReveal", agreed.may_reveal),
            ("maps", agreed.maps),
        ):
            assert sorted(module.get(ours, [])) == plain(theirs)
        maps = {each: dict(listed) for each, listed in module.get("maps", [])}  # type: ignore[attr-defined]
        assert maps == {
            each: {chosen: list(values) for chosen, values in own.items()}
            for each, own in agreed.maps.items()
        }
        assert module.get("defaultLevel", "") == agreed.default_level
        assert tuple(module.get("mayTellChanges", ())) == agreed.may_tell_changes
        assert module.get("views", []) == [list(view) for view in agreed.views]
        assert ("plan" in module) == with_plan
        if with_plan:
            assert b64decode(str(module["plan"]), validate=True) == agreed.plan
    assert found["hostile"]["exports"] == ["AGREEMENT", "recordQ2Odd"]
    assert "mayReveal" not in found["plain"]
    assert "mayTellChanges" not in found["plain"]


@pytest.mark.slow
def test_the_compiler_reads_the_answers(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "survey.toml").write_text(SURVEY)
    out = tmp_path / "plain.ts"
    made = command("codegen", tmp_path / "survey.toml", "--typescript", "--out", out)
    assert made.returncode == 0
    calls = {
        "right": 'recordHealth(client, { smokes: "no", age: 41.5 });',
        "person": "recordHealth(person, { age: undefined });",
        "wrong": 'recordHealth(client, { smokes: "maybe" });',
        "unknown": "recordHealth(client, { drinks: 1 });",
        "rich_right": 'recordRich(client, { reads: ["news"], rates: { bus: 2 } });',
        "rich_wrong": 'recordRich(client, { reads: ["cookery"] });',
        "rich_wrong_too": "recordRich(client, { rates: { plane: 2 } });",
    }
    for file, call in calls.items():
        rich = file.startswith("rich")
        imported, module = ("recordRich", "rich") if rich else ("recordHealth", "plain")
        (tmp_path / f"{file}.ts").write_text(
            f'import {{ AGREEMENT, {imported} }} from "./{module}.js";\n'
            'import { type Agreement, Client, type Person } from "hearsay-ldp";\n'
            "export async function use(client: Client, person: Person): Promise<Agreement> {\n"
            f"  {call}\n"
            '  new Client({ url: "https://hearsay.example.org", agreement: AGREEMENT });\n'
            "  return AGREEMENT;\n"
            "}\n"
        )
    settings = {
        "extends": str(WEB / "tsconfig.json"),
        "compilerOptions": {
            "types": [],
            "noUnusedParameters": False,
            "module": "ESNext",
            "moduleResolution": "bundler",
            "paths": {"hearsay-ldp": [str(WEB / "src" / "index.ts")]},
        },
        "include": [str(tmp_path / "*.ts")],
    }
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    checked = subprocess.run(
        [TOOLS / "tsc", "--noEmit", "--pretty", "false"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    errors = sorted(line for line in checked.stdout.splitlines() if "error TS" in line)
    expected = {
        "rich_wrong.ts": '"cookery"',
        "rich_wrong_too.ts": "'plane' does not exist",
        "unknown.ts": "'drinks' does not exist",
        "wrong.ts": '"maybe"',
    }
    assert len(errors) == len(expected), checked.stdout + checked.stderr
    for error, (file, words) in zip(errors, expected.items(), strict=True):
        assert error.startswith(file)
        assert words in error


@pytest.mark.slow
def test_the_module_is_formatted(tmp_path: Path) -> None:
    """By prettier's own settings, which many projects have."""
    write(tmp_path)
    checked = subprocess.run(
        [TOOLS / "prettier", "--no-config", "--check", *sorted(tmp_path.glob("*.ts"))],
        capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
