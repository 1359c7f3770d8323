"""The scripts that the pages load: those of others are what VENDOR.toml says, and all are small."""

import gzip
import hashlib
import tomllib

from hearsay_server.pages.rendering import STATIC

VENDOR = STATIC / "vendor"


def test_each_script_of_others_is_the_one_that_is_named_and_has_its_licence() -> None:
    named = tomllib.loads((VENDOR / "VENDOR.toml").read_text())["files"]
    assert {each["file"] for each in named} == {file.name for file in VENDOR.glob("*.js")}
    for each in named:
        data = (VENDOR / each["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == each["sha256"], each["file"]
        assert (VENDOR / each["file"]).with_suffix(".LICENSE.txt").read_text()
        assert {"name", "version", "licence", "source"} <= set(each)


def test_the_sdk_s_script_has_the_licences_of_the_packages_in_it() -> None:
    assert "vendor/sdk.LICENSE.txt" in (STATIC / "sdk.js").read_text().splitlines()[0]
    assert "MIT" in (VENDOR / "sdk.LICENSE.txt").read_text()


def test_all_scripts_are_below_250_kilobytes_compressed() -> None:
    sizes = {file.name: len(gzip.compress(file.read_bytes())) for file in STATIC.rglob("*.js")}
    assert sizes and sum(sizes.values()) < 250_000, sizes
