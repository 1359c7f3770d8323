"""The agreement on a survey in the words of the TypeScript SDK."""

from collections.abc import Mapping

from hearsay.agreement import Agreement
from hearsay.plans.kinds import Binned
from hearsay.plans.plan import Plan


def for_typescript(agreement: Agreement, plan: Plan) -> Mapping[str, object]:
    """Return the properties of the SDK's type `Agreement` that are not empty, but for the plan.

    Bins are given by their range or edges: labels are not made on the other side.
    """
    binned = {
        name: attribute.domain.edges or (attribute.domain.low, attribute.domain.high)
        for name, attribute in plan.attributes.items()
        if isinstance(attribute.domain, Binned)
    }
    given: dict[str, object] = {
        "survey": agreement.survey,
        "revision": agreement.revision,
        "period": agreement.period,
        "domains": {**agreement.domains, **binned},
        "levels": agreement.levels,
    }
    others = {
        "defaultLevel": agreement.default_level,
        "mayReveal": agreement.may_reveal,
        "maps": agreement.maps,
        "mayTellChanges": agreement.may_tell_changes,
        "views": agreement.views,
        "panels": agreement.panels,
        "properties": agreement.properties,
    }
    return given | {name: value for name, value in others.items() if value}
