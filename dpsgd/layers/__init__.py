"""Rules that run layers so that per-sample gradients can be formed.

One file for each family, one function for each rule, registered by the layer's exact type.
"""

from ldp.errors import needs

with needs("dpsgd.layers", "train"):
    from dpsgd.layers import (  # noqa: F401  # they register their rules
        attention,
        convolution,
        embedding,
        linear,
        normalization,
        recurrent,
    )
    from dpsgd.layers.registry import fallback, rule, rules_for

__all__ = ["fallback", "rule", "rules_for"]
