"""Redraw the pictures of pages.md, in pages/, in Chromium: `python docs/pages.py [NAME ...]`.

The server, its surveys and the list of pages are those of the tests, so a page that is added there
has a picture here. Dates and identifiers are those of the day.
"""

import io
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from PIL import Image

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WIDTH = 1280
NARROW, NARROW_NAMES = 390, ("operator", "analyst-by-level", "asked", "planner-planned")
UNTIL = {"asked-tried": "#answer"}
"""Pictures that end above a heading: the rest of the page has a picture of its own."""

COLOURS = 20
"""Of a picture's palette: pages have few colours, and a picture is to stay below 200 KB."""


def keep(picture: bytes, path: Path) -> None:
    """Write a picture with a palette."""
    whole = Image.open(io.BytesIO(picture)).convert("RGB")
    whole.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


def main() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    sys.path[:0] = [
        str(ROOT / each) for each in settings["tool"]["pytest"]["ini_options"]["pythonpath"]
    ]
    from every_page import filling, of_role
    from visiting import chromium

    def draw(tab: Any, shown: Any, name: str) -> None:
        filled.show(tab, shown)
        tab.mouse.move(0, 0)
        clip = None
        if name in UNTIL:
            # Of the page, not of what of it is in view.
            ends = tab.locator(UNTIL[name]).bounding_box()["y"] + tab.evaluate("scrollY")
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": ends}
        keep(tab.screenshot(full_page=True, clip=clip), HERE / "pages" / f"{name}.png")

    (HERE / "pages").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        filling(Path(folder), hostile=False) as filled,
        chromium() as browser,
    ):
        for role, site in filled.sites.items():
            wide, narrow = (browser.open(site, width=width) for width in (WIDTH, NARROW))
            for shown in of_role(role):
                if "hostile" in shown.name or shown.name not in (sys.argv[1:] or [shown.name]):
                    continue
                draw(wide, shown, shown.name)
                if shown.name in NARROW_NAMES:
                    draw(narrow, shown, f"{shown.name}-narrow")


if __name__ == "__main__":
    main()
