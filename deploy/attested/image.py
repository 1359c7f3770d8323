"""Build the server as one archive whose bytes anybody can make again, and print its SHA-256.

    python deploy/attested/image.py OUT.tar

The archive has the installed packages of `hearsay-ldp[sealed]`, at the versions of constraints.txt, as
wheels have them: no file is compiled, and none is of this machine. Its names are sorted, its owners are
0, and its times are those of the newest commit. Two builds of one commit by the same Python version and
platform, with the same wheels, have the same hash; README.md says what that is worth.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LEFT_OUT = ("bin", "__pycache__")
"""Folders of what pip writes: scripts name this machine's Python, and nothing needs them."""

OF_THIS_MACHINE = ("direct_url.json", "INSTALLER", "REQUESTED", "RECORD")
"""Files in which pip says how it installed a package. RECORD lists scripts that are left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    epoch = int(_run("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "site"
        install(tree, epoch)
        print(f"{pack(tree, out, epoch)}  {out}")


def install(tree: Path, epoch: int) -> None:
    """Install the packages into a folder, from wheels alone."""
    wheels = tree.parent / "wheels"
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # `git archive` has what is committed, whatever lies beside it here.
    source = tree.parent / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", "HEAD"], check=True, capture_output=True
    )
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    wheel = [*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source)]
    subprocess.run(wheel, check=True, env=environ)
    (made,) = wheels.glob("hearsay_ldp-*.whl")
    subprocess.run(
        [
            *(*pip, "install", "--only-binary", ":all:", "--no-compile"),
            *("--target", str(tree), "--constraint", str(source / "constraints.txt")),
            f"{made}[sealed]",
        ],
        check=True,
        env=environ,
    )


def pack(tree: Path, out: Path, epoch: int) -> str:
    """Write a folder as an archive of fixed bytes; return the archive's SHA-256 in hexadecimal."""
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as archive:
        for file in sorted(tree.rglob("*"), key=lambda path: path.relative_to(tree).as_posix()):
            name = file.relative_to(tree)
            if name.parts[0] in LEFT_OUT or LEFT_OUT[1] in name.parts or not file.is_file():
                continue
            if name.name in OF_THIS_MACHINE and name.parts[0].endswith(".dist-info"):
                continue
            entry = tarfile.TarInfo(name.as_posix())
            entry.size, entry.mtime, entry.mode = file.stat().st_size, epoch, 0o644
            with file.open("rb") as content:
                archive.addfile(entry, content)
    return hashlib.sha256(out.read_bytes()).hexdigest()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
