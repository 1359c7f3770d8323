"""What `import hearsay` costs an app that embeds it."""

import json
import os
import subprocess
import sys

HEAVY = {
    "grpc",
    "ssl",
    "scipy",
    "pandas",
    "torch",
    "sqlalchemy",
    "matplotlib",
    "typer",
    "rich",
    "safetensors",
    "statsmodels",
}


def _run(code: str) -> object:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    return json.loads(done.stdout)


def test_importing_the_sdk_imports_nothing_heavy() -> None:
    """Nor does what takes part in a training, which only that imports."""
    code = """
import json, sys
import hearsay
alone = sorted(sys.modules)
import hearsay.federated
print(json.dumps([alone, sorted(sys.modules)]))
"""
    alone, modules = _run(code)  # type: ignore[misc]
    assert {name.partition(".")[0] for name in modules} & HEAVY == set()
    assert {"hearsay.federated", "hearsay.asking.analyst"} & set(alone) == set()


def test_an_app_without_a_training_does_not_import_what_takes_part_in_one() -> None:
    code = "import sys, json, hearsay.aio; print(json.dumps(sorted(sys.modules)))"
    modules = _run(code)
    assert isinstance(modules, list)
    assert {"hearsay.federated", "ldp.mechanisms.vectors"} & set(modules) == set()


def test_importing_the_sdk_costs_little_beyond_numpy() -> None:
    # Against the import of numpy in the same process, so that the machine cancels out: it takes
    # 0.065 s of processor time where this takes 0.11 to 0.13. One heavy package more, such as grpc
    # or scipy, would take it above the limit.
    code = """
import json, time
begin = time.process_time()
import numpy
middle = time.process_time()
import hearsay
print(json.dumps([middle - begin, time.process_time() - middle]))
"""
    ratios = []
    for _ in range(5):
        floor, ours = _run(code)  # type: ignore[misc]
        ratios.append(ours / floor)
    assert min(ratios) < 2.5
