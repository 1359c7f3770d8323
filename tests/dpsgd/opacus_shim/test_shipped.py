"""Opacus's own tests pass on `dpsgd`, but for those listed with a reason."""

import importlib
import tomllib
import unittest
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

from opacus_shim import shipped

LISTED = tomllib.loads((Path(__file__).parent / "not_applicable.toml").read_text())
IN_FLOAT64 = LISTED.pop("float64")
LISTED.pop("examples")  # for readers: the adapters leave them out
EXAMPLES = {"privacy_engine_test.py": 2, "batch_memory_manager_test.py": 2}
"""Of each property, where they take long; of others ten."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shipped.folder() is None, reason=f"the list is about Opacus {shipped.VERSION}"
    ),
]


def test_every_shipped_file_is_listed() -> None:
    tests = shipped.folder()
    assert tests is not None
    holds_cases = {
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        if "    def test" in path.read_text()
    }
    assert set(LISTED) == holds_cases


@pytest.mark.parametrize("file", [name for name, rules in LISTED.items() if "*" not in rules])
def test_the_tests_of_a_file_pass(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    tests = shipped.folder()
    assert tests is not None
    if "torchvision" in (tests / file).read_text() and not shipped.load_torchvision():
        pytest.skip("needs torchvision")
    failures, passed, others, used = [], 0, 0, set()
    with shipped.replaced(tests, EXAMPLES.get(file, 10)):
        for case in shipped.cases(file):
            name = case.id().removeprefix(f"opacus.tests.{file[:-3].replace('/', '.')}.")
            rules = {pattern for pattern in LISTED[file] if fnmatchcase(name, pattern)}
            used |= rules
            if rules:
                others += 1
                continue
            if any(fnmatchcase(name, pattern) for pattern in IN_FLOAT64.get(file, ())):
                torch.set_default_dtype(torch.float64)
            result = unittest.TestResult()
            case.run(result)
            torch.set_default_dtype(torch.float32)
            failures += [f"{name}:\n{text}" for _, text in result.errors + result.failures]
            others += len(result.skipped)
            passed += not result.skipped
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{file}: {passed} passed, {others} do not apply", end=""
        )
    assert not failures, "\n".join(failures)
    assert used == set(LISTED[file]), "a pattern matches no test"


def test_pld_bounds_lie_within_the_stated_error_of_the_prv_accountants() -> None:
    tests = shipped.folder()
    assert tests is not None
    with shipped.replaced(tests, 1):
        module = importlib.import_module("opacus.tests.prv_accountant")
        for history, expected in list(module.msr_values.items())[::4]:
            accountant = module.PRVAccountant()
            accountant.history = [history]
            # Their figures are upper ends of intervals of 0.02.
            assert -0.0201 < accountant.get_epsilon(delta=1e-6) - expected < 1e-4
