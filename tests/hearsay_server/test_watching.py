"""A question that is watched before any report came is refused at once where none could answer."""

from typing import Any

import pytest
from collected import register, toml
from serving import Survey

from hearsay import Analyst
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import questions
from ldp import InvalidInput

SETS = """
name = "sets"
[levels]
open = 4.0
[[attributes]]
name = "symptoms"
[attributes.set]
values = ["cough", "fever", "pain"]
[[attributes]]
name = "care"
[attributes.ratings]
keys = ["doctor", "nurse"]
low = 1
high = 5
[[attributes]]
name = "affair"
mechanism = "policy_unary"
[attributes.categorical]
values = ["no", "never", "yes"]
sensitive = ["yes"]
"""


@pytest.mark.parametrize(
    ("attribute", "options", "message"),
    [
        ("smokes", {"method": "best"}, "method must be one of"),
        ("smokes", {"confidence": 1.5}, "confidence must lie strictly between 0 and 1"),
        ("smokes", {"values": ["none such"]}, "has no value 'none such'"),
        ("smokes", {"consistency": "round"}, "unknown method 'round'"),
        ("age", {"consistency": "norm-sub"}, "consistency is for the frequencies"),
        ("age", {"recover": 0.1}, "recovery is for the reports of one frequency oracle"),
    ],
)
def test_what_no_reports_could_answer_is_not_watched(
    address: str, survey: Survey, attribute: str, options: dict[str, Any], message: str
) -> None:
    with Analyst(address) as analyst, pytest.raises(InvalidInput, match=message):
        next(analyst.watch(survey.name, attribute, **options))


@pytest.mark.parametrize("text", [toml(), SETS], ids=["every mechanism", "sets and policies"])
def test_what_reports_could_answer_is_not_refused_before_they_come(address: str, text: str) -> None:
    frozen, plan = register(address, text)
    for attribute in plan.attributes:
        question = analyst_pb2.EstimateRequest(survey=plan.survey, attribute=attribute)
        questions.rehearse(frozen, question)
