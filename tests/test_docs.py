"""What the documentation says is what is there."""

import importlib.util
import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from command import hearsay
from typer.core import TyperGroup

from hearsay import Client, Delivery, Person, create_ledger
from hearsay.plans.kinds import Strings
from hearsay.recording import outbox
from hearsay_server import cli
from hearsay_server.commands import codegen
from hearsay_server.config import Config
from hearsay_server.ingest import intake
from hearsay_server.surveys import catalogue
from hearsay_server.surveys import survey as surveys
from ldp import Tally
from ldp.core.estimation import Cohorts
from ldp.estimating.likelihood import channel_matrix
from ldp.estimating.pooling import pool
from ldp.mechanisms import IN_PLANS
from pages import blocks
from support import Server

DOCS = Path(__file__).resolve().parent.parent / "docs"


MARKED = r"((?:^@.*\n(?:^[ )\]].*\n)*)*)^(?:async )?def (test_\w+)"
"""A test with its decorators."""


def test_every_promise_of_the_threat_model_names_a_test_that_runs_each_time() -> None:
    slow: dict[str, bool] = {}
    for file in DOCS.parent.glob("tests/**/test_*.py"):
        text = file.read_text(encoding="utf-8")
        all_slow = re.search(r"^pytestmark = .*mark\.(slow|long)", text, re.MULTILINE) is not None
        for marks, name in re.findall(
            r"((?:^@.*\n(?:^[ )\]].*\n)*)*)^(?:async )?def (test_\w+)", text, re.M
        ):
            own = re.search(r"^@pytest\.mark\.(slow|long)", marks, re.MULTILINE) is not None
            slow[name] = slow.get(name, True) and (all_slow or own)
    page = (DOCS / "threat-model.md").read_text(encoding="utf-8")
    parts = re.split(r"\n\n|\n(?=- |\| )", page)
    named = [set(re.findall(r"`(test_[a-z0-9_]+)`", part)) for part in parts]
    assert set().union(*named) <= slow.keys()  # each is there
    only_slow = [names for names in named if names and all(slow[name] for name in names)]
    assert not only_slow
    promises = [n for n, part in enumerate(parts) if "**Promise" in part]
    assert len(promises) >= 4 and all(named[n] or "test_" in parts[n] for n in promises)
    assert named[promises[0]]


def rows(page: str) -> dict[str, list[str]]:
    """The cells after the name, of table rows that begin with a name in backticks."""
    found = {}
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        first, *rest = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and first.strip("`") in IN_PLANS:
            assert first.strip("`") not in found
            found[first.strip("`")] = rest
    return found


@pytest.mark.parametrize("page", ["wire-mechanisms.md", "mechanisms.md"])
def test_every_mechanism_of_a_plan_is_there_with_its_integers(page: str) -> None:
    documented = {name: cells[0].split(", ") for name, cells in rows(page).items()}
    built = {
        name: [f.name for f in fields(kind) if f.name != "epsilon"]
        for name, kind in IN_PLANS.items()
    }
    assert documented == built


def test_the_draws_of_every_mechanism_of_a_plan_are_there() -> None:
    page = (DOCS / "wire-mechanisms.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| name | draws of one code |")
    named = [row.split("|")[1] for row in table.partition("\n\n")[0].splitlines()[2:]]
    listed = [name.strip() for cell in named for name in cell.split(",")]
    assert sorted(listed) == sorted(IN_PLANS)


def test_every_name_of_a_survey_is_there_with_its_mechanism() -> None:
    made = {name: make(8, 1.0).name for name, make in catalogue.CATEGORICAL.items()}
    made |= {name: make(1.0).name for name, make in catalogue.NUMERIC.items()}
    made |= {name: make(8, 2, 1.0).name for name, make in catalogue.SETS.items()}
    made |= {name: make((8,), 1.0).name for name, make in catalogue.BINNED.items()}
    words = Strings("ab", 3, ("a", "b"))
    made |= {
        n: make(words, 1.0, 2.0 * (n == "rappor")).name for n, make in catalogue.STRINGS.items()
    }
    made["policy_unary"] = "policy_unary"
    del made["auto"]
    documented = {
        name: plan_name
        for plan_name, cells in rows("mechanisms.md").items()
        for name in cells[1].partition(" (")[0].split(", ")
        if name
    }
    assert documented == made


def test_the_table_of_choices_is_what_choose_predicts() -> None:
    kept = marked("mechanisms.md", "choice")
    assert kept == script("mechanisms").table(), "run `python docs/mechanisms.py`"


def test_the_table_of_errors_is_what_the_estimators_have() -> None:
    drawn = script("personal_budgets")
    kept = marked("personal-budgets.md", "errors")
    assert kept == drawn.table(), "run `python docs/personal_budgets.py`"


def test_a_survey_is_explained_as_the_guide_shows() -> None:
    shown = marked("personal-budgets.md", "explain").removeprefix("```\n").removesuffix("\n```")
    printed = script("personal_budgets").explained().splitlines()
    assert shown.splitlines() == printed, "run `python docs/personal_budgets.py`"


def test_the_table_of_accountants_is_what_they_say() -> None:
    pytest.importorskip("dp_accounting")
    assert marked("accounting.md", "figures") == script("accounting").table(), (
        "run `python docs/accounting.py`"
    )


def test_the_tables_of_epsilons_and_of_people_are_what_is_computed() -> None:
    written = script("planning")
    for page, tables in written.TABLES.items():
        for table in tables:
            assert marked(page, table.__name__) == table(), "run `python docs/planning.py`"


def test_the_tables_of_sizes_are_what_the_load_model_computes() -> None:
    model = script("sizing")
    for table in model.TABLES:
        kept = marked("operating.md", table.__name__)
        assert kept == table(), "run `python docs/sizing.py`"


def test_the_table_of_keys_is_that_of_the_configuration() -> None:
    kept = marked("operating.md", "configuration")
    assert kept == script("configuration").table(), "run `python docs/configuration.py`"


def test_the_noise_of_trusted_servers_is_that_of_discrete_laplace() -> None:
    """By the sum over its probabilities, which fall by e^(-epsilon / sensitivity) a step."""
    for epsilon, sensitivity in [(1.0, 1), (1.0, 2), (0.5, 2)]:
        steps = np.arange(-2000, 2001)
        weights = np.exp(-epsilon / sensitivity * np.abs(steps))
        assert script("planning")._laplace_variance(epsilon, sensitivity) == pytest.approx(
            float(np.sum(steps**2 * weights) / np.sum(weights))
        )


def test_the_readme_has_the_figures_of_the_comparison() -> None:
    row = next(row for row in marked("comparison.md", "trust").splitlines() if "yes or no" in row)
    sampling, _, two, local, people = (
        float(cell.replace(",", "").strip(" %")) for cell in row.strip("|").split("|")[1:]
    )
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"standard error of {np.hypot(sampling, local):.2f} percentage points" in readme
    assert f"honest reach {np.hypot(sampling, two):.2f}" in readme
    assert f"needs {round(people, -3):,.0f} people" in readme


@pytest.mark.parametrize("page", ["how-many-people.md", "incentives.md", "tutorial.md"])
def test_plan_prints_what_the_page_shows(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    shown = re.findall(r"^```sh\n(hearsay plan .*)\n```\n\n```\n([^`]*)```$", text, re.M)
    assert len(shown) == text.count("\nhearsay plan ")
    assert shown
    for command, printed in shown:
        assert hearsay(*shlex.split(command)[1:]).stdout == printed


PAGES = [page.relative_to(DOCS).as_posix() for page in sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_is_there(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for words in set(re.findall(r"(?:`|^ {4})hearsay ((?:[a-z]+ ?)+)", text, re.M)):
        name, *rest = words.split()
        assert name in cli.COMMANDS, words
        command = cli.load(name)
        if rest and isinstance(command, TyperGroup):
            assert rest[0] in command.commands, words


@pytest.mark.parametrize("page", PAGES)
def test_every_call_of_a_client_that_a_page_names_is_there(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for name in set(re.findall(r"\bclient\.([a-z_]+)\b", text)) - {"py", "proto"}:
        assert hasattr(Client, name), name
    for name in set(re.findall(r"\bperson\.([a-z_]+)\b", text)) - {"py"}:
        assert hasattr(Person, name), name


def test_the_page_for_the_privacy_officer_has_the_limits_of_the_code() -> None:
    text = " ".join((DOCS / "privacy-officer.md").read_text(encoding="utf-8").split())
    usual = Delivery()
    assert f"at most {usual.max_reports:,} reports or {usual.max_bytes >> 20} MiB wait" in text
    assert f"the last {outbox._KEPT} batches, or {outbox._KEPT_BYTES >> 20} MiB" in text
    assert f"({intake.GRACE.days} days after its end" in text
    assert Config().keep_batches_days == 0
    assert "for ever if that is 0 (the default)" in text


def test_the_code_for_apps_with_personal_budgets_runs(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the survey of the same page, and the module that `hearsay codegen` makes of it."""
    page, name = DOCS / "personal-budgets.md", "clinic"
    text = page.read_text(encoding="utf-8")
    toml = next(block for block in blocks(text, "toml") if f'name = "{name}"' in block)
    code = next(block for block in blocks(text, "python") if f"{name}.AGREEMENT" in block)
    server.create(toml)
    plan = surveys.resolve(surveys.from_toml(toml, f"{name}.toml"))
    (tmp_path / f"{name}.py").write_text(codegen.module(plan), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    if "create_ledger" not in code:
        create_ledger("ledger.db")
    exec(compile(code.replace("127.0.0.1:50051", server.address), str(page), "exec"), {})
    assert server.show(name).status.records == 1


@pytest.mark.slow
def test_pooled_reports_have_the_errors_of_the_table() -> None:
    drawn = script("personal_budgets")
    shares = drawn.MIXES[2]
    source = np.random.default_rng(5)
    squares = []
    for _ in range(300):
        cohorts = []
        for mechanism, n in drawn.cohorts(shares, drawn.MAPS):
            chances = drawn.TRUTH @ channel_matrix(mechanism)
            cohorts.append((mechanism, Tally(n, source.multinomial(n, chances / chances.sum()))))
        found = [pool(Cohorts(cohorts), method).value for method in ("scalar", "mle")]
        squares.append((np.array(found) - drawn.TRUTH) ** 2)
    simulated = 100 * np.sqrt(np.mean(squares, axis=(0, 2)))
    assert simulated == pytest.approx(drawn.errors(shares, drawn.MAPS)[1:], rel=0.05)


def marked(page: str, name: str) -> str:
    """The part of a page that a script wrote."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.partition(f"<!-- {name} -->\n")[2].partition("\n<!-- end -->")[0]


def script(name: str) -> ModuleType:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location(f"draw_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
