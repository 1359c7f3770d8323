"""The code of the page on accounting runs as it stands, and gives the figures beside it."""

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from private import make
from torch.nn import functional as F  # noqa: N812

PAGE = Path(__file__).resolve().parents[3] / "docs" / "accounting.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)


def ran(block: str) -> tuple[dict[str, Any], Any]:
    """Return the names that a block defines, and the value of its last line."""
    names: dict[str, Any] = {}
    *lines, last = ast.parse(block).body
    exec(compile(ast.Module(lines, []), "block", "exec"), names)
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), "block", "exec"), names)
        return names, None
    return names, eval(compile(ast.Expression(last.value), "block", "eval"), names)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_gives_the_figures_beside_its_last_line(block: str) -> None:
    _, value = ran(block)
    comment = block.rstrip().rpartition("  # ")[2]
    if re.match(r"\d", comment):
        figures = [float(figure) for figure in re.findall(r"\d+\.\d+", comment)]
        found = np.atleast_1d(value)
        assert found == pytest.approx(figures[: found.size], abs=6e-4)


@pytest.mark.slow
def test_the_norms_of_records_are_those_of_a_loop() -> None:
    (block,) = (block for block in BLOCKS if "def gradient_norms" in block)
    _, module, _, _ = make()
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 1, 0, 1])
    norms = []
    for i in range(5):
        plain = [p.detach().requires_grad_() for p in module.parameters()]
        named = dict(zip(dict(module.named_parameters()), plain, strict=True))
        hidden = torch.tanh(F.linear(x[i], named["0.weight"], named["0.bias"]))
        output = F.linear(hidden, named["2.weight"], named["2.bias"])
        gradients = torch.autograd.grad(F.cross_entropy(output, y[i]), plain)
        norms.append(torch.stack([g.norm() for g in gradients]).norm())
    torch.testing.assert_close(ran(block)[0]["gradient_norms"](module, x, y), torch.stack(norms))
