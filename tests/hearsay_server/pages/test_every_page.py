"""What holds for every page: it is listed, devices may not open it, and it asks for a token."""

from pathlib import Path

from every_page import PARTS, SHOWN
from starlette.routing import compile_path
from visiting import Site

from hearsay.asking.views.catalogue import VIEWS
from hearsay_server.pages.page import PUBLIC
from hearsay_server.pages.site import PAGES

OPENED = [page for page in PAGES if not page.posts]


def test_each_page_and_view_is_looked_at() -> None:
    paths = {each.path.partition("?")[0] for each in SHOWN}
    for page in OPENED:
        if page.address not in PARTS and not page.address.endswith(".toml"):
            pattern, _, _ = compile_path(page.address)
            assert any(pattern.match(path) for path in paths), page.address
    viewed = {path.rpartition("/")[2] for path in paths if path.startswith("/analyst/commute/")}
    of_attributes = {name for name, view in VIEWS.items() if view.kinds}
    missing = of_attributes - viewed - {"words"}  # of strings, whose reports are the largest
    assert not missing, "give each a line in _VIEWS of every_page.py"


def test_a_devices_token_opens_no_page_that_asks_for_one(
    guarded: tuple[Site, dict[str, str]],
) -> None:
    site, tokens = guarded
    for page in PAGES:
        if page.who == PUBLIC:
            continue
        path = page.address.replace("{survey}", "s").replace("{", "").replace("}", "")
        device = {"authorization": f"Bearer {tokens['device']}"}
        if page.posts:
            assert site.post(path).status in (401, 403), path
            assert site.post(path, {}, **device).status in (401, 403), path
            continue
        assert site.get(path, **device).status == 403, path
        answer = site.get(path)
        assert answer.status == 303 and answer.headers["location"].startswith("/sign-in"), path
    assert site.post("/sign-in", {"token": tokens["device"]}).status in (401, 403)


def test_the_table_is_of_pages_that_are_there() -> None:
    patterns = [compile_path(page.address)[0] for page in OPENED]
    for shown in SHOWN:
        there = any(each.match(shown.path.partition("?")[0]) for each in patterns)
        assert there == (shown.name != "no-page"), shown


def test_each_page_has_a_picture_that_the_docs_show() -> None:
    docs = Path(__file__).parents[3] / "docs"
    text = (docs / "pages.md").read_text()
    drawn = {file.stem for file in (docs / "pages").glob("*.png")}
    names = {each.name for each in SHOWN if "hostile" not in each.name}
    assert names == {name for name in drawn if not name.endswith("-narrow")}, (
        "run `python docs/pages.py`"
    )
    unlinked = [name for name in drawn if f"(pages/{name}.png)" not in text]
    assert not unlinked, "link each in the table of pictures of docs/pages.md"


def test_each_view_is_in_the_table_of_the_docs() -> None:
    text = (Path(__file__).parents[3] / "docs" / "pages.md").read_text()
    table = text.partition("| view | asks `Analyst` |")[2].partition("\n\n")[0]
    titles = {title for row in table.splitlines() for title in row.split("|")[1:2]}
    listed = {each.strip() for title in titles for each in title.split(",")}
    missing = {view.title for view in VIEWS.values() if view.kinds} - listed
    assert not missing, "name each in the table of views of docs/pages.md"
