"""The tests that the installed Opacus ships, loaded with `opacus` replaced by the adapters."""

import importlib
import importlib.metadata
import importlib.util
import sys
import unittest
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import torch

from opacus_shim.adapters import NAMES

VERSION = "1.6.0"
"""The version that `not_applicable.toml` is about."""

_APPARATUS = ("utils.module_utils", "utils.packed_sequences", "utils.per_sample_gradients_utils")
"""Modules of Opacus that its tests measure with; they run as they are, on the adapters."""


def folder() -> Path | None:
    """Return the folder of the shipped tests; None where that version is not installed."""
    try:
        if importlib.metadata.version("opacus") != VERSION:
            return None
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec("opacus")  # found, and not run
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "tests"


class _Stub(ModuleType):
    """A module in which every name that is not translated is one that fails when it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        class Missing:
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                raise NotImplementedError(f"{self.__class__.__qualname__} has no adapter")

        Missing.__qualname__ = f"{self.__name__}.{name}"
        return Missing


def load_torchvision() -> bool:
    """Tell whether torchvision is there, which many of the tests take models and data from.

    A build for GPUs cannot load its operators beside a torch without, and then fails at import,
    where it describes two of them. The tests need none: they are declared, and not defined.
    """
    if importlib.util.find_spec("torchvision") is None:
        return False
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor"
            )
        importlib.import_module("torchvision")
    return True


@contextmanager
def replaced(tests: Path, examples: int) -> Iterator[None]:
    """Replace `opacus` in sys.modules by the adapters, and restore what the tests change.

    So many examples of each property are tried; Opacus's own runs try 100.
    """
    before = {name: module for name, module in sys.modules.items() if _is_opacus(name)}
    ranks = torch.distributed.get_rank, torch.distributed.get_world_size
    dtype = torch.get_default_dtype()
    for name in before:
        del sys.modules[name]
    try:
        for name, names in NAMES.items():
            module = _Stub(f"opacus.{name}".rstrip("."))
            module.__dict__.update(names, __path__=[])
            sys.modules[module.__name__] = module
        shipped = ModuleType("opacus.tests")
        shipped.__path__ = [str(tests)]
        sys.modules["opacus.tests"] = shipped
        for name in _APPARATUS:
            _load(f"opacus.{name}", tests.parent / f"{name.replace('.', '/')}.py")
        attention = _load("opacus.own", tests.parent / "layers" / "dp_multihead_attention.py")
        # A module of a stranger, which runs without a rule of its own.
        sys.modules["opacus.layers"].SequenceBias = attention.SequenceBias  # type: ignore[attr-defined]
        # The tests' own settings take the rest from here.
        hypothesis.settings.register_profile(
            "shipped",
            max_examples=examples,
            derandomize=True,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        hypothesis.settings.load_profile("shipped")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name in [name for name in sys.modules if _is_opacus(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        torch.distributed.get_rank, torch.distributed.get_world_size = ranks
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(False)
        hypothesis.settings.load_profile("suite")


def cases(file: str) -> Iterator[unittest.TestCase]:
    """Yield the test cases of a shipped file, under `replaced`."""
    module = importlib.import_module(f"opacus.tests.{file.removesuffix('.py').replace('/', '.')}")
    loader = unittest.TestLoader()
    for name in sorted(vars(module)):
        kind = vars(module)[name]
        if (
            isinstance(kind, type)
            and issubclass(kind, unittest.TestCase)
            and kind.__module__ == module.__name__
        ):
            yield from loader.loadTestsFromTestCase(kind)  # type: ignore[misc]


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _is_opacus(name: str) -> bool:
    return name == "opacus" or name.startswith("opacus.")
