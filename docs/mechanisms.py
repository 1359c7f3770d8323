"""Redraw mechanisms.png and the table of mechanisms.md: `python docs/mechanisms.py`."""

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, NullFormatter

from ldp.planning.choice import choose

HERE = Path(__file__).resolve().parent
SIZES = tuple(2**i for i in range(1, 13))
EPSILONS = (0.25, 0.5, 1, 2, 3, 4, 5)
PANELS = (0.5, 1, 2, 4)

LINES = {
    "krr": ("#d95f02", "o"),
    "oue": ("#7570b3", "s"),
    "olh": ("#1b9e77", "^"),
    "subset": ("#e7298a", "v"),
    "projective": ("#66a61e", "D"),
    "hadamard": ("#a6761d", "P"),
    "hrr": ("#666666", "X"),
}


def table() -> str:
    """Return the choice and its variance over the limit, as rows of Markdown."""
    lines = ["| k | " + " | ".join(f"{epsilon:g}" for epsilon in EPSILONS) + " |"]
    lines.append("|--:|" + "---|" * len(EPSILONS))
    for k in SIZES:
        choices = [choose(k, epsilon) for epsilon in EPSILONS]
        cells = [f"{choice.variance / choice.limit:.3f} {choice.label}" for choice in choices]
        lines.append(f"| {k} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(file: Path) -> None:
    """Draw each mechanism's predicted variance over the minimax constant."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.2), sharex=True, sharey=True)
    for axis, epsilon in zip(axes.flat, PANELS, strict=True):
        choices = [choose(k, epsilon) for k in SIZES]
        for label, (colour, marker) in LINES.items():
            ratios = []
            for choice in choices:
                found = [c.variance for c in choice.candidates if c.label == label]
                ratios.append(found[0] / choice.limit)
            axis.plot(SIZES, ratios, marker, color=colour, label=label, ms=5, ls="-", lw=1.2)
        chosen = [choice.variance / choice.limit for choice in choices]
        axis.plot(SIZES, chosen, color="black", lw=6, alpha=0.25, label="chosen", zorder=0)
        axis.set_title(f"epsilon {epsilon:g}", fontsize=11)
        axis.set_xscale("log", base=2)
        axis.set_ylim(0.95, 2.05)
        axis.xaxis.set_major_locator(FixedLocator([2, 8, 32, 128, 512, 2048]))
        axis.set_xticklabels(["2", "8", "32", "128", "512", "2048"])
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(alpha=0.3)
    for axis in axes[1]:
        axis.set_xlabel("categories k")
    for axis in axes[:, 0]:
        axis.set_ylabel("variance over the limit")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    page = HERE / "mechanisms.md"
    pattern = re.compile(r"(<!-- choice -->\n).*?(<!-- end -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    page.write_text(pattern.sub(lambda m: m[1] + table() + "\n" + m[2], text), encoding="utf-8")
    draw(HERE / "mechanisms.png")


if __name__ == "__main__":
    main()
