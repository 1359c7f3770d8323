"""The files for an attested server: an archive of fixed bytes, and recipes that name real keys."""

import importlib.util
import os
import re
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from hearsay_server.config import Config

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "attested"


@pytest.fixture(scope="module")
def image() -> ModuleType:
    spec = importlib.util.spec_from_file_location("image", FOLDER / "image.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tree(folder: Path, *, backwards: bool) -> Path:
    """Write the same packages in another order, at another time, with what pip leaves behind."""
    files = {
        "hearsay/__init__.py": "one",
        "hearsay/plans.py": "two",
        "hearsay-1.dist-info/METADATA": "three",
        "hearsay-1.dist-info/RECORD": str(folder),
        "hearsay-1.dist-info/direct_url.json": str(folder),
        "hearsay/__pycache__/plans.pyc": str(folder),
        "bin/hearsay": str(folder),
    }
    for name, text in sorted(files.items(), reverse=backwards):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o600 if backwards else 0o755)
        os.utime(file, (backwards, backwards))
    return folder


def test_the_same_packages_make_the_same_bytes(image: ModuleType, tmp_path: Path) -> None:
    one, other = (tree(tmp_path / name, backwards=name == "b") for name in "ab")
    hashes = [
        image.pack(folder, tmp_path / f"{folder.name}.tar", 1_700_000_000)
        for folder in (one, other)
    ]
    assert hashes[0] == hashes[1]
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert archive.getnames() == [
            "hearsay-1.dist-info/METADATA",
            "hearsay/__init__.py",
            "hearsay/plans.py",
        ]
        assert {entry.mtime for entry in archive} == {1_700_000_000}


def test_a_changed_byte_changes_the_hash(image: ModuleType, tmp_path: Path) -> None:
    one, other = (tree(tmp_path / name, backwards=False) for name in "ab")
    (other / "hearsay" / "plans.py").write_text("Two")
    assert image.pack(one, tmp_path / "a.tar", 1) != image.pack(other, tmp_path / "b.tar", 1)


def test_the_manifest_is_toml_and_runs_no_debug_enclave_with_keys_of_the_server() -> None:
    text = (FOLDER / "hearsay.manifest.template").read_text(encoding="utf-8")
    manifest = tomllib.loads(re.sub(r"\{\{.*?\}\}", "filled", text))
    assert manifest["sgx"]["debug"] is False
    assert manifest["sgx"]["remote_attestation"] == "dcap"
    mounts = {each["path"]: each for each in manifest["fs"]["mounts"]}
    assert mounts["/data"]["type"] == "encrypted"
    set_ = {name for name in manifest["loader"]["env"] if name.startswith("HEARSAY_")}
    assert {name.removeprefix("HEARSAY_").lower() for name in set_} <= set(Config.model_fields)
    assert manifest["loader"]["env"]["HEARSAY_ATTESTATION"] == "sgx"
    assert "file:filled/" in manifest["sgx"]["trusted_files"]


def test_the_image_for_nitro_sets_keys_of_the_server() -> None:
    text = (FOLDER / "Dockerfile.nitro").read_text(encoding="utf-8")
    names = {name.lower() for name in re.findall(r"HEARSAY_(\w+)=", text)}
    assert names <= set(Config.model_fields)
    assert "HEARSAY_ATTESTATION=nitro" in text


def test_every_package_of_the_image_is_named_with_a_hash(image: ModuleType) -> None:
    lines = image.LOCK.read_text(encoding="utf-8").splitlines()
    assert all(
        re.fullmatch(r"[\w.-]+==[\w.!+]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines
    )
    named = {line.partition("==")[0].replace("_", "-") for line in lines}
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = project["project"]["dependencies"]
    for extra in image.EXTRAS.split(","):
        wanted += project["project"]["optional-dependencies"][extra]
    names = {re.split(r"[\[<>=; ]", each)[0] for each in wanted} - {"hearsay-ldp"}
    assert names <= named
