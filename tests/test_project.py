"""The project's pages: links lead somewhere, one version is named, decisions are listed."""

import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ldp.version import __version__

ROOT = Path(__file__).resolve().parent.parent
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(page.relative_to(ROOT) for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_pages_and_headings_that_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file, _, heading = target.partition("#")
        found = (ROOT / page).parent / file if file else ROOT / page
        assert found.exists(), f"{page} links {target}"
        if heading:
            assert heading in headings(found), f"{page} links {target}"


def test_files_that_contributing_names_by_their_whole_path_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tops = "client|deploy|docs|dpsgd|examples|ldp|protos|server|tests"
    named = set(re.findall(rf"`((?:{tops})/[\w./-]+)`", text)) - {"client/web/node_modules"}
    assert len(named) > 30
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_citation_names_the_version_of_the_package() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in citation


def test_the_latest_release_of_the_changelog_is_the_version_and_date_of_the_citation() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *releases = re.findall(r"^## (.*)$", changelog, re.M)
    assert first == "Unreleased"
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (released,) = re.findall(r"^date-released: (\d{4}-\d\d-\d\d)$", citation, re.M)
    assert releases[0] == f"{__version__} - {released}"


def test_the_picture_of_the_flow_is_well_formed_and_loads_nothing() -> None:
    """Code hosts show an SVG as an image, which may not refer to anything outside."""
    picture = ElementTree.parse(ROOT / "docs" / "flow.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert picture.findtext("{http://www.w3.org/2000/svg}title")
    for element in picture.iter():
        assert element.tag.rpartition("}")[2] not in {"image", "script", "use", "foreignObject"}
        assert not any(name.endswith("href") for name in element.attrib)


def test_every_decision_is_listed_and_has_its_four_sections() -> None:
    listed = (DECISIONS / "README.md").read_text(encoding="utf-8")
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert page.name in listed
        sections = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.M)
        assert sections == ["Context", "Choice", "Measurements", "What would change it"]


def test_the_npm_package_has_the_version_of_the_others_and_its_tools_are_pinned() -> None:
    web = ROOT / "client" / "web"
    package = json.loads((web / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == __version__
    for tool, version in package["devDependencies"].items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), tool
    lock = json.loads((web / "package-lock.json").read_text(encoding="utf-8"))
    root, *installed = lock["packages"].items()
    assert root[1]["version"] == __version__
    assert root[1]["devDependencies"] == package["devDependencies"]
    for name, each in installed:
        assert each["integrity"].startswith("sha512-"), name
        # Each machine asks its own registry, and the hash says whether it got the same.
        assert "resolved" not in each, name


def test_the_tests_that_other_versions_run_are_there() -> None:
    script = (ROOT / "tests/versions.sh").read_text(encoding="utf-8")
    listed = " ".join(re.findall(r"^(?:LDP|SDK|PAGES|COMMAND)=\((.*?)\)$", script, re.M | re.S))
    expand = f"echo {' '.join(listed.split())}"
    named = subprocess.check_output(["bash", "-c", expand], text=True).split()
    assert len(named) > 15
    assert [each for each in named if not (ROOT / each.partition("::")[0]).exists()] == []
