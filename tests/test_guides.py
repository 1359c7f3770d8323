"""The code of all guides: it compiles, its imports can be had, and what stands alone runs.

Most pages have a test of their own that runs their blocks in order, beside a server or a model.
"""

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from ldp.errors import MissingExtra

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
BLOCKS = [
    pytest.param(page, dedent(block), id=f"{page}-{number}")
    for page, text in TEXTS.items()
    for number, (_, block) in enumerate(
        re.findall(r"^( *)```python\n(.*?)^\1```$", text, re.S | re.M), start=1
    )
]

RUN_BY = {
    "README.md": "test_readme.py",
    "docs/accounting.md": "dpsgd/accounting/test_guide.py",
    "docs/adpe.md": "dpsgd/test_adpe.py",
    "docs/pate.md": "dpsgd/pate/test_guide.py",
    "docs/sdk.md": "hearsay/test_sdk_guide.py",
    "docs/tutorial.md": "test_readme.py",
}
"""Pages all of whose blocks are run by a test of their own."""

RUN_IN_PART = {
    "docs/federated.md": ("LocalSGD(", "hearsay.create_ledger(", "safetensors"),
    "docs/training.md": ("PrivateClassifier(", "import torch\n"),
}
"""What is in a block that a test of its page runs: the others of the page are run here."""

_LOOPS = ("accelerate", "lightning", "transformers")
"""What takes seconds to import; `dpsgd/test_loops.py` does."""

_ELSEWHERE = ("127.0.0.1:50051", "open(", "read_csv(")
"""In a block that needs a server, or a file that the page downloads."""


def _imports(block: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield ast.unparse(node)


def _unbound(block: str) -> set[str]:
    """The names that a block uses and does not make: from a block before it, or from an app."""
    tree = ast.parse(block)
    made = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.arg):
            made.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            made.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.add(node.id)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - made


def _stands_alone(page: str, block: str) -> bool:
    if page in RUN_BY or any(mark in block for mark in RUN_IN_PART.get(page, ())):
        return False
    return not _unbound(block) and not any(mark in block for mark in _ELSEWHERE)


def _run(code: str, where: str) -> None:
    try:
        exec(compile(code, where, "exec"), {"__name__": "__main__"})
    except MissingExtra as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if error.name in ("ldp", "dpsgd", "hearsay", "hearsay_server") or "." in (error.name or ""):
            raise
        pytest.skip(str(error))


def test_no_block_is_missed() -> None:
    assert len(BLOCKS) == sum(len(re.findall("```py", text)) for text in TEXTS.values())


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_a_block_compiles_and_its_imports_can_be_had(page: str, block: str) -> None:
    compile(block, page, "exec")
    own = set(re.findall(r'^name = "(\w+)"$', TEXTS[page], re.M))  # modules that codegen writes
    for statement in _imports(block):
        if statement.split()[1] not in (*own, *_LOOPS):
            _run(statement, page)


@pytest.mark.parametrize("page", [page for page, text in TEXTS.items() if "import " in text])
def test_an_import_in_a_sentence_can_be_had(page: str) -> None:
    for statement in re.findall(r"`((?:from [\w.]+ )?import [\w., ]+)`", TEXTS[page]):
        _run(statement, page)


@pytest.mark.parametrize(
    ("page", "block"), [each for each in BLOCKS if _stands_alone(*each.values)]
)
def test_a_block_that_stands_alone_runs(
    page: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _run(block, page)


@pytest.mark.parametrize("page", RUN_BY)
def test_the_test_that_runs_a_page_names_it(page: str) -> None:
    test = (ROOT / "tests" / RUN_BY[page]).read_text(encoding="utf-8")
    assert Path(page).name in test
