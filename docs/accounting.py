"""Redraw accounting.png and the table of accounting.md: `python docs/accounting.py`."""

import re
from pathlib import Path

from dpsgd.accounting import Event, PoissonSampling, Relation
from dpsgd.accounting.overview import compare
from hearsay_server.commands.account import draw

HERE = Path(__file__).resolve().parent
RUN = Event(4.0, PoissonSampling(0.01), 10_000)
DELTA = 1e-5


def table() -> str:
    """Return every accountant's epsilon of the run, as rows of Markdown."""
    lines = ["| accountant | epsilon | guarantee |", "|---|--:|---|"]
    for figure in compare(RUN, Relation.ADD_REMOVE, DELTA):
        epsilon = figure.note if figure.epsilon is None else f"{figure.epsilon:.4f}"
        lines.append(f"| {figure.name} | {epsilon} | {'yes' if figure.is_guarantee else 'NO'} |")
    return "\n".join(lines)


def main() -> None:
    page = HERE / "accounting.md"
    pattern = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    page.write_text(pattern.sub(lambda m: m[1] + table() + "\n" + m[2], text), encoding="utf-8")
    draw(RUN, Relation.ADD_REMOVE, DELTA, HERE / "accounting.png")


if __name__ == "__main__":
    main()
