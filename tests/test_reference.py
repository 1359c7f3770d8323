"""What is public: `__all__`, `dir()` and the reference page of each package name the same."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGES = Path(__file__).resolve().parent.parent / "docs" / "api"
FACES = {
    "hearsay": "hearsay.md",
    "ldp": "ldp.md",
    "dpsgd": "dpsgd.md",
    "dpsgd.accounting": "accounting.md",
}


@pytest.mark.parametrize("face", FACES)
def test_dir_lists_the_public_names_alone(face: str) -> None:
    module = import_module(face)
    assert dir(module) == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("face", FACES)
def test_the_reference_page_documents_every_public_name_once(face: str) -> None:
    page = (PAGES / FACES[face]).read_text(encoding="utf-8")
    documented = re.findall(r"^::: (\S+)$", page, re.M)
    assert sorted(documented) == sorted(f"{face}.{name}" for name in import_module(face).__all__)


def test_every_reference_page_is_of_a_public_package() -> None:
    assert {page.name for page in PAGES.iterdir()} == set(FACES.values())
