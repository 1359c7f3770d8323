"""The reference pages name what is there: the public names, and the keys of a survey file."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from hearsay.federated import models
from hearsay.plans.plan import message, parse
from hearsay.v1 import survey_pb2
from hearsay_server.surveys import survey as surveys
from hearsay_server.trainings import training as trainings
from ldp import InvalidInput
from pages import blocks

PAGES = Path(__file__).resolve().parent.parent / "docs" / "api"
FACES = {
    "hearsay": "hearsay.md",
    "ldp": "ldp.md",
    "dpsgd": "dpsgd.md",
    "dpsgd.accounting": "accounting.md",
    "dpsgd.federated": "federated.md",
}


@pytest.mark.parametrize("face", FACES)
def test_dir_lists_the_public_names_alone(face: str) -> None:
    module = import_module(face)
    assert dir(module) == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("face", FACES)
def test_the_reference_page_documents_every_public_name_once(face: str) -> None:
    page = (PAGES / FACES[face]).read_text(encoding="utf-8")
    documented = re.findall(r"^::: (\S+)$", page, re.M)
    deeper = [name for name in documented if name.count(".") > face.count(".") + 1]
    public = [f"{face}.{name}" for name in import_module(face).__all__]
    assert sorted(documented) == sorted(public + deeper)
    for name in deeper:  # in the module that has it, where it is not in the package's face
        assert hasattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2])


def test_every_reference_page_is_of_a_public_package() -> None:
    assert {page.name for page in PAGES.iterdir()} == set(FACES.values())


SURVEYS = (PAGES.parent / "survey-reference.md").read_text(encoding="utf-8")
SECTIONS = {
    "Survey": survey_pb2.Survey.DESCRIPTOR,
    "Attributes": survey_pb2.Attribute.DESCRIPTOR,
    "Categorical": survey_pb2.Categorical.DESCRIPTOR,
    "Classes": survey_pb2.Class.DESCRIPTOR,
    "Maps": survey_pb2.Map.DESCRIPTOR,
    "Set": survey_pb2.Set.DESCRIPTOR,
    "Ratings": survey_pb2.Ratings.DESCRIPTOR,
    "Strings": survey_pb2.Strings.DESCRIPTOR,
    "Numeric": survey_pb2.Numeric.DESCRIPTOR,
    "Sensitive regions": survey_pb2.Region.DESCRIPTOR,
    "Resolution": survey_pb2.Resolution.DESCRIPTOR,
    "Properties": survey_pb2.Property.DESCRIPTOR,
    "Page": survey_pb2.Page.DESCRIPTOR,
    "Sealing": survey_pb2.Sealing.DESCRIPTOR,
    "Attestation": survey_pb2.RequiredEvidence.DESCRIPTOR,
    "Two servers": survey_pb2.TwoServers.DESCRIPTOR,
}
"""The sections of the page with a table of keys, and the message that each is about."""

LISTED = survey_pb2.View.DESCRIPTOR.name
"""The message that a file writes as a list: it has no keys."""

FILLED_IN = {"Sealing": ("size", "keys"), "Two servers": ("variance", "leader_key")}
"""Fields, by section, that the server fills in: a file has none of them."""

LEAST: dict[str, Any] = {
    "name": "least",
    "levels": {"only": 1.0},
    "attributes": [
        {"name": "yes", "categorical": {"values": ["no", "yes", "both"]}},
        {"name": "many", "numeric": {"high": 1.0}},
    ],
}
"""A survey that leaves out all that it may."""


def documented(section: str, page: str = SURVEYS) -> dict[str, list[str]]:
    """The type, default and meaning of each key in a section's table."""
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \| (.*?) \|(.*?)\| (.*) \|$", text, re.M)
    return {key: [type_, default.strip(), meaning] for key, type_, default, meaning in found}


def type_of(field: FieldDescriptor) -> str:
    """A key's type, in the page's words."""
    numbers = {
        FieldDescriptor.TYPE_DOUBLE: "number",
        FieldDescriptor.TYPE_STRING: "text",
        FieldDescriptor.TYPE_BYTES: "text",
        FieldDescriptor.TYPE_UINT32: "whole number",
    }
    kind = numbers.get(field.type, "true or false")
    if field.message_type is not None:
        kind = "table"
        if field.message_type.name == LISTED:
            return "list of lists of texts"
        if field.message_type.GetOptions().map_entry:
            return f"table of {type_of(field.message_type.fields_by_name['value'])}s"
        return "array of tables" if field.is_repeated else kind
    return f"list of {kind}s" if field.is_repeated else kind


@pytest.mark.parametrize("section", SECTIONS)
def test_the_survey_page_has_every_key_with_its_type(section: str) -> None:
    fields = [
        field for field in SECTIONS[section].fields if field.name not in FILLED_IN.get(section, ())
    ]
    keys = {field.name: type_of(field) for field in fields}
    assert {key: cells[0] for key, cells in documented(section).items()} == keys


def test_every_message_of_a_survey_has_a_section() -> None:
    def messages(of: Descriptor) -> Iterator[Descriptor]:
        if not of.GetOptions().map_entry:
            yield of
        for field in of.fields:
            if field.message_type is not None:
                yield from messages(field.message_type)

    found = {message.name for message in messages(survey_pb2.Survey.DESCRIPTOR)}
    others = {LISTED, survey_pb2.SealingKey.DESCRIPTOR.name}
    assert found == {descriptor.name for descriptor in SECTIONS.values()} | others


@pytest.mark.slow
def test_the_examples_of_the_survey_page_are_surveys_and_have_every_key() -> None:
    found = [surveys.from_toml(example, "example") for example in blocks(SURVEYS, "toml")]
    for survey in found:
        surveys.resolve(survey)
    given: dict[str, set[str]] = {name: set() for name in SECTIONS}
    sections = {descriptor.name: section for section, descriptor in SECTIONS.items()}
    waiting: list[Message] = [*found]
    while waiting:
        wire = waiting.pop()
        for field, value in wire.ListFields():
            given[sections[wire.DESCRIPTOR.name]].add(field.name)
            values = value.values() if isinstance(value, Mapping) else value
            for inner in values if isinstance(values, Iterable) else [values]:
                if isinstance(inner, Message) and inner.DESCRIPTOR.name != LISTED:
                    waiting.append(inner)
    given[sections["Page"]].add("answers")  # false, which no survey with [sealing] may change
    assert given == {section: set(documented(section)) for section in SECTIONS}


def meaning(survey: dict[str, Any]) -> list[object]:
    """What a survey is resolved into: the mechanisms of its levels, and what devices check."""
    data = surveys.resolve(ParseDict(survey, survey_pb2.Survey()))
    plan = parse(data)
    domains = [(attribute.title, attribute.domain) for attribute in plan.attributes.values()]
    return [list(message(data).levels), domains, plan.title, plan.period, plan.default_level]


def tables(survey: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By section, the tables of a survey that it is about."""
    attributes = survey["attributes"]
    return {
        "Survey": [survey],
        "Attributes": attributes,
        "Categorical": [a["categorical"] for a in attributes if "categorical" in a],
        "Numeric": [a["numeric"] for a in attributes if "numeric" in a],
    }


@pytest.mark.parametrize("section", ["Survey", "Attributes", "Categorical", "Numeric"])
def test_a_key_without_a_value_has_the_default_that_the_page_names(section: str) -> None:
    given = {key for table in tables(LEAST)[section] for key in table}
    for key, (_, default, _) in documented(section).items():
        survey = deepcopy(LEAST)
        table = tables(survey)[section][0]
        if default == "required":
            del table[key]
            with pytest.raises(InvalidInput):
                meaning(survey)
        elif key not in given and default not in ("", "none"):
            table[key] = tomllib.loads(f"value = {default.strip('`')}")["value"]
            assert meaning(survey) == meaning(LEAST), key


TRAININGS = (PAGES.parent / "training-reference.md").read_text(encoding="utf-8")


def test_the_training_page_has_every_key() -> None:
    tables = {"Training": trainings.KEYS} | {
        name.replace("_", " ").capitalize(): keys for name, keys in trainings.TABLES.items()
    }
    assert {name: tuple(documented(name, TRAININGS)) for name in tables} == tables


def test_the_example_of_the_training_page_is_a_training(tmp_path: Path) -> None:
    (example,) = blocks(TRAININGS, "toml")
    file = tmp_path / "digits.toml"
    file.write_text(example)
    model = models.write({"output": np.ones((3, 4), np.float32)})
    (tmp_path / "digits.safetensors").write_bytes(model)
    assert trainings.from_file(file).training.name == "digits"
