"""What `make docs` does besides mkdocs.yml: complete the list of pages, and mend links."""

import re
from pathlib import Path, PurePosixPath
from typing import Any

_LINK = re.compile(r"\[(`?)([^\]`]+)\1\]\((\.\./[^)#\s]+)\)")


def on_config(config: Any) -> Any:
    """Add the pages that mkdocs.yml does not list, as a last section."""
    docs = Path(config.docs_dir)
    listed = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    others = sorted(file.relative_to(docs).as_posix() for file in docs.rglob("*.md"))
    if more := [page for page in others if page not in listed]:
        config.nav.append({"More": more})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files outside docs/, which a site does not have, into the files' names."""
    depth = len(PurePosixPath(page.file.src_uri).parents) - 1

    def plain(link: re.Match[str]) -> str:
        outside = PurePosixPath(link[3]).parts.count("..") > depth
        return f"`{link[2]}`" if outside else link[0]

    return _LINK.sub(plain, markdown)
