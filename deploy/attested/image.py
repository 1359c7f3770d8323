"""Build the server as one archive whose bytes anybody can make again, and print its SHA-256.

    python deploy/attested/image.py OUT.tar
    python deploy/attested/image.py --lock      # choose the packages' versions anew

The archive has this commit's `hearsay-ldp` and the packages that packages.txt names with the hashes
of their wheels, as the wheels have them: no file is compiled, and none is of this machine. Its
names are sorted, its owners are 0, and its times are those of the newest commit. README.md says
what that is worth.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = Path(__file__).with_name("packages.txt")

EXTRAS = "server,attestation"

LEFT_OUT = ("bin", "__pycache__")
"""Folders of what pip writes: scripts name this machine's Python, and nothing needs them."""

OF_THIS_MACHINE = ("direct_url.json", "INSTALLER", "REQUESTED", "RECORD")
"""Files in which pip says how it installed a package. RECORD lists scripts that are left out."""

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, nargs="?", help="the archive")
    parser.add_argument("--lock", action="store_true", help="write packages.txt anew")
    given = parser.parse_args()
    if given.lock == (given.out is not None):
        parser.error("give an archive to write, or --lock")
    with tempfile.TemporaryDirectory() as folder:
        epoch = int(git("log", "-1", "--format=%ct").decode())
        wheel = build(Path(folder), epoch)
        if given.lock:
            lock(wheel)
            return
        tree = Path(folder) / "site"
        target = [*PIP, "install", "--no-compile", "--no-deps", "--target", str(tree)]
        only = ["--only-binary", ":all:", "--require-hashes", "--requirement", str(LOCK)]
        subprocess.run([*target, *only], check=True)
        subprocess.run([*target, str(wheel)], check=True)
        sys.stdout.write(f"{pack(tree, given.out, epoch)}  {given.out}\n")


def build(folder: Path, epoch: int) -> Path:
    """Build the wheel of what is committed, whatever lies beside it; return its file."""
    source = folder / "source"
    source.mkdir()
    committed = git("archive", "--format=tar", "HEAD")
    subprocess.run(["tar", "-x", "-C", str(source)], input=committed, check=True)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    command = [*PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, check=True, env=environ)
    (wheel,) = folder.glob("hearsay_ldp-*.whl")
    return wheel


def lock(wheel: Path) -> None:
    """Write the packages that the server needs now, each with its version and its wheel's hash."""
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    command = [
        *(*PIP, "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:"),
        *(*constraints, "--report", "-", f"{wheel}[{EXTRAS}]"),
    ]
    done = subprocess.run(command, check=True, capture_output=True)
    lines = []
    for each in json.loads(done.stdout)["install"]:
        name, version = each["metadata"]["name"], each["metadata"]["version"]
        if name.lower().replace("_", "-") != "hearsay-ldp":
            hashed = each["download_info"]["archive_info"]["hashes"]["sha256"]
            lines.append(f"{name.lower()}=={version} --hash=sha256:{hashed}\n")
    LOCK.write_text("".join(sorted(lines)), encoding="utf-8")


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


def git(*arguments: str) -> bytes:
    """Return what a command of git prints of this repository."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
