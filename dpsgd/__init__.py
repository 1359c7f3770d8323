"""Gaussian accounting and private training.

`dpsgd.accounting` needs no torch, which is loaded when an engine is first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsgd.clipping import FlatClipping, PerLayerClipping
    from dpsgd.engine import PrivacyEngine

__all__ = ["FlatClipping", "PerLayerClipping", "PrivacyEngine"]


def __getattr__(name: str) -> Any:
    if name == "PrivacyEngine":
        from dpsgd.engine import PrivacyEngine

        return PrivacyEngine
    if name in __all__:
        from dpsgd import clipping

        return getattr(clipping, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
