"""`--plot` of what is worked out before anything is collected."""

from pathlib import Path

import pytest
from command import hearsay
from PIL import Image

from support import SURVEY

COMMANDS = {
    "shuffle": ("shuffle", "--epsilon", "1", "--n", "10000", "--krr", "4"),
    "plan": ("plan", "--k", "10", "--epsilon", "1", "--n", "100000"),
    "numbers": ("plan", "--low", "0", "--high", "80", "--epsilon", "1", "--half-width", "1"),
    "audit": ("audit", "krr", "--k", "8", "--epsilon", "1", "--draws", "2000"),
    "explain": ("survey", "explain", "FILE"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_plot_is_drawn_beside_the_same_words(name: str, tmp_path: Path) -> None:
    survey = tmp_path / "survey.toml"
    survey.write_text(SURVEY)
    command = [str(survey) if each == "FILE" else each for each in COMMANDS[name]]
    file = tmp_path / "plot.png"
    done = hearsay(*command, "--plot", file)
    assert (done.returncode, done.stderr) == (0, f"drawn into {file}\n")
    if name != "audit":  # which draws its reports anew
        assert hearsay(*command).stdout == done.stdout
    with Image.open(file) as image:
        assert image.width > 600
        assert len(image.convert("RGB").getcolors(1 << 20) or []) > 20  # not an empty sheet


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("plan", "--k", "4", "--prices", "--levels", "1,2"), "not --prices, nor --change"),
        (("plan", "--k", "4", "--epsilon", "1", "--change", "0.1"), "not --prices, nor --change"),
        (("audit", "--survey", "FILE", "--canaries", "10"), "leave it out with --canaries"),
    ],
)
def test_what_is_not_drawn_says_so_before_it_is_worked_out(
    command: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    done = hearsay(*command, "--plot", tmp_path / "plot.png")
    assert done.returncode == 1
    assert why in done.stderr


def test_a_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    done = hearsay(*COMMANDS["shuffle"], "--plot", tmp_path / "plot.txt")
    assert "--plot must name a file that ends in .png, .svg, .pdf" in done.stderr
