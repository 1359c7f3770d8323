"""Redraw graded-numbers.png, of the last section of questions.md: `python docs/graded_numbers.py`.

Nothing is drawn at random: the errors are those that the tables of the plans have.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter

from hearsay.plans.kinds import Numeric
from hearsay_server.surveys import graded
from ldp.mechanisms.numbers.mean_table import MeanTable
from ldp.planning import mean_design

HERE = Path(__file__).resolve().parent
EPSILON = 1.0
LOW, HIGH = 0.0, 2000.0
REGION = Numeric(LOW, HIGH, clamp=True, sensitive=((800.0, HIGH),))
LINE = Numeric(LOW, HIGH, clamp=True, resolution=((800.0, 100.0), (HIGH, 400.0)), cap=2)
COLOURS = {"all alike": "#666666", "from 800 on sensitive": "#1b9e77", "by distance": "#d95f02"}


def tables() -> dict[str, MeanTable]:
    """Return the table of each way to protect a wage, at the same epsilon."""
    found = (mean_design.plain(EPSILON), graded.table(REGION, EPSILON), graded.table(LINE, EPSILON))
    return dict(zip(COLOURS, found, strict=True))


def deviations(table: MeanTable, wages: np.ndarray) -> np.ndarray:
    """Return the standard deviation of one report, in dollars, by wage."""
    scaled = 2 * (wages - LOW) / (HIGH - LOW) - 1
    found: np.ndarray = np.sqrt(table.report_variance(scaled)) * (HIGH - LOW) / 2
    return found


def promised(name: str, wage: float, others: np.ndarray) -> np.ndarray:
    """Return by how much of epsilon a wage may be told from others; infinite for certainty."""
    if name == "all alike":
        return np.ones(others.size)
    if name != "by distance":
        return np.full(others.size, 1.0 if wage >= 800 else np.inf)
    apart = [np.minimum(x, 800.0) / 100 + np.maximum(x - 800.0, 0) / 400 for x in (wage, others)]
    return np.minimum(1.0, abs(apart[0] - apart[1]) / 2)


def draw(file: Path) -> None:
    """Draw how far wages may be told apart, and the noise that each wage is reported with."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6))
    wages = np.linspace(LOW, HIGH, 1201)
    for axis, wage in zip(axes, (1200.0, 400.0), strict=False):
        for name, colour in COLOURS.items():
            told = np.minimum(promised(name, wage, wages), 1.25)
            axis.plot(wages, np.where(wages == wage, np.nan, told), color=colour, label=name)
        axis.axvline(wage, color="#cccccc", lw=1, zorder=0)
        axis.set_ylim(0, 1.35)
        axis.set_yticks([0, 0.5, 1, 1.25], ["0", "\u00bd epsilon", "epsilon", "revealed"])
        axis.set_title(f"how well ${wage:,.0f} may be told", fontsize=10)
        axis.set_xlabel("from another wage")
    for name, table in tables().items():
        axes[2].plot(wages, deviations(table, wages), color=COLOURS[name], label=name)
    axes[2].set_ylim(0, None)
    axes[2].set_title("noise of one report, standard deviation", fontsize=10)
    axes[2].set_xlabel("wage")
    axes[2].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:,.0f}"))
    for axis in axes:
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:,.0f}"))
        axis.set_xticks([0, 800, 2000])
        axis.grid(alpha=0.3)
    handles, labels = axes[2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=3, frameon=False)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(file, dpi=110, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(HERE / "graded-numbers.png")
