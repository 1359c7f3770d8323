"""Write the conformance vectors: `python protos/conformance/generate.py [OUT_DIR]`.

Run it from the repository's root, with ldp, hearsay and hearsay_server importable.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from vectors import (  # noqa: E402
    answers,
    histories,
    mechanisms,
    plans,
    sealed,
    sets,
    split,
    texts,
    updates,
    words,
)
from vectors.notation import written  # noqa: E402

FILES: Mapping[str, Callable[[], Mapping[str, Any]]] = {
    "draws.json": mechanisms.draws,
    "codes.json": mechanisms.codes,
    "lives.json": mechanisms.lives,
    "bounds.json": mechanisms.bounds,
    "checks.json": mechanisms.checks,
    "numbers.json": answers.numbers,
    "sets.json": sets.sets,
    "words.json": words.words,
    "texts.json": texts.texts,
    "arcs.json": answers.arcs,
    "views.json": answers.views,
    "periods.json": answers.periods,
    "batches.json": answers.batches,
    "plans.json": plans.plans,
    "sealed.json": sealed.sealed,
    "split.json": split.split,
    "updates.json": updates.updates,
    "histories.json": histories.histories,
}
"""What makes each file."""


def generate(out: Path) -> None:
    """Write all files below `out`."""
    for name, make in FILES.items():
        (out / name).write_text(written(make()), encoding="utf-8")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
