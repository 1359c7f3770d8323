"""Write the table of keys in operating.md anew: `python docs/configuration.py`."""

import re
from pathlib import Path

from hearsay_server import config

PAGE = Path(__file__).resolve().parent / "operating.md"


def table() -> str:
    """Return every key of the server's configuration, as rows of Markdown."""
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in config.explained():
        lines.append(f"| `{key.name}` | {key.kind} | `{key.default}` | {key.meaning} |")
    return "\n".join(lines)


def main() -> None:
    pattern = re.compile(r"(<!-- configuration -->\n).*?(<!-- end -->)", re.DOTALL)
    text = PAGE.read_text(encoding="utf-8")
    written = pattern.sub(lambda m: m[1] + table() + "\n" + m[2], text)
    PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
