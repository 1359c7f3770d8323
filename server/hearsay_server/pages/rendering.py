"""Templates, static files, and the headers of all that the site answers with."""

import hashlib
import json
import mimetypes
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from hearsay_server.build import version
from hearsay_server.pages import words
from hearsay_server.serving.auth import ANALYSTS, OPERATORS, PLANNERS

_HERE = Path(__file__).parent
STATIC = _HERE / "static"

POLICY = "; ".join(
    [
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    ]
)
"""Scripts, styles and all else come from files of this server alone: none stands in a page."""

HEADERS = {
    "content-security-policy": POLICY,
    # Not "no-referrer": with it a browser hides the origin of our own forms from us.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Statics:
    """The static files, read once; their address has a hash of all of them."""

    def __init__(self, folder: Path = STATIC) -> None:
        self.files = {
            str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*"))
            if file.is_file() and file.suffix in (".js", ".css", ".svg", ".txt")
        }
        whole = hashlib.sha256()
        for name, data in self.files.items():
            whole.update(f"{name}\0{len(data)}\0".encode() + data)
        self.hash = whole.hexdigest()[:16]

    def address(self, name: str) -> str:
        """Return the address of a file; raise `KeyError` where there is none of this name."""
        self.files[name]
        return f"/static/{self.hash}/{name}"

    def kind(self, name: str) -> str:
        """Return the content type of a file."""
        if name.endswith(".js"):
            return "text/javascript; charset=utf-8"
        return f"{mimetypes.guess_type(name)[0] or 'text/plain'}; charset=utf-8"


class Templates:
    """The templates of all pages: what is filled in is escaped."""

    def __init__(self, statics: Statics) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            shown=words.shown,
            count=words.count,
            number=words.number,
            size=words.size,
            seconds=words.seconds,
            moment=words.moment,
            data=data,
        )
        self._environment.globals.update(
            static=statics.address,
            version=version(),
            OPERATORS=OPERATORS,
            ANALYSTS=ANALYSTS,
            PLANNERS=PLANNERS,
        )

    def render(self, template: str, **values: Any) -> str:
        """Return what a template makes of some values."""
        return self._environment.get_template(template).render(values)


def data(value: object) -> Markup:
    """Return a value as JSON for a `<script type="application/json">`, which it cannot end."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
