"""Pictures of answers, by the function that `hearsay ask --plot` draws with."""

import io
from collections.abc import Sequence

from hearsay.asking.answer import Answer


def png(answers: Sequence[Answer]) -> bytes:
    """Return the picture of some answers; raise `InvalidInput` for one that cannot be drawn.

    It is called in a process for analysis: matplotlib takes much time and memory.
    """
    from hearsay.asking import plots

    made = io.BytesIO()
    plots.figure(*answers).savefig(made, format="png")
    return made.getvalue()
