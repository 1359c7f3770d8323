"""The guide's code of a simulation runs as it stands."""

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "federated.md"


def test_the_simulation_of_the_guide_learns() -> None:
    text = GUIDE.read_text(encoding="utf-8").split("## Simulating\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    names: dict[str, Any] = {}
    exec(compile(code, str(GUIDE), "exec"), names)
    history = names["history"]
    assert history.last()[0] > 0.8
    assert history.bytes_up == 30 * 9 * 4 * 650
