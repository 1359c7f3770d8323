"""ADPE: noise by the importance of features, as published and in a form that keeps its promise.

`docs/adpe.md` says what to use, and why the published form protects nobody.
"""

from ldp.errors import needs

with needs("dpsgd.adpe", "train"):
    from dpsgd.adpe.claims import Claim
    from dpsgd.adpe.functional import FunctionalMechanism, NoisyQuadratic
    from dpsgd.adpe.importance import shap_importance
    from dpsgd.adpe.published import ADPE, Published

__all__ = [
    "ADPE",
    "Claim",
    "FunctionalMechanism",
    "NoisyQuadratic",
    "Published",
    "shap_importance",
]
