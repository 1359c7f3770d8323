"""`hearsay codegen`: a small typed module for a survey, for type checkers and editors."""

import keyword
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from hearsay.v1 import survey_pb2
from hearsay_server import survey as surveys


def codegen(
    file: Annotated[Path, typer.Argument(help="The survey, as TOML.")],
    out: Annotated[
        Path | None, typer.Option(help="The module to write; by default it is printed.")
    ] = None,
) -> None:
    """Write a typed Python module with a function that records answers to a survey."""
    survey = surveys.from_file(file)
    surveys.resolve(survey)  # a survey that cannot be registered gets no module
    text = module(survey)
    if out is None:
        typer.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")


def module(survey: survey_pb2.Survey) -> str:
    """Return the source of the module: one function, and a type per categorical attribute."""
    names = _identifiers([a.name for a in survey.attributes], {"client"})
    types, parameters, answers, described = [], [], [], []
    kinds = _identifiers(
        ["".join(p.title() for p in re.split(r"\W|_", a.name)) for a in survey.attributes],
        {"Client", "Person", "Literal", "NamedTuple"},
    )
    for attribute, name, kind in zip(survey.attributes, names, kinds, strict=True):
        if attribute.WhichOneof("domain") == "categorical":
            values = "".join(f"    {_quoted(value)},\n" for value in attribute.categorical.values)
            types.append(f"{kind} = Literal[\n{values}]\n")
            shown = kind
            domain = "one of its values"
        else:
            shown = "float"
            numeric = attribute.numeric
            domain = f"{numeric.low:g} to {numeric.high:g}" + (
                ", others move to the nearer end" if numeric.clamp else ""
            )
        parameters.append(f"    {name}: {shown} | None = None,\n")
        answers.append(f"        {_quoted(attribute.name)}: {name},\n")
        described.append(f"    {name}: {_plain(attribute.title or attribute.name)} ({domain}).\n")
    function = _identifiers([f"record_{survey.name}"], set())[0]
    literal = "from typing import Literal\n\n" if types else ""
    return (
        f'"""The survey {_plain(survey.name)!r}, typed. Written by `hearsay codegen`."""\n\n'
        f"{literal}from hearsay import Client, Person\n\n"
        + "".join(f"{each}\n" for each in types)
        + f"\ndef {function}(\n    client: Client | Person,\n    *,\n{''.join(parameters)}"
        ") -> tuple[str, ...]:\n"
        f'    """Record answers to: {_plain(survey.title or survey.name)}\n\n'
        f"{''.join(described)}\n"
        "    What is None is withheld. Returns the names of what was taken.\n"
        '    """\n'
        f"    answers: dict[str, object] = {{\n{''.join(answers)}    }}\n"
        "    return client.record(**answers)\n"
    )


def _identifiers(names: Iterable[str], taken: set[str]) -> list[str]:
    """Return names that Python takes, each another one and none that is taken."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name)
        if not plain or plain[0].isdigit():
            plain = f"_{plain}"
        if keyword.iskeyword(plain):
            plain = f"{plain}_"
        unique, number = plain, 2
        while unique in found or unique in taken:
            unique, number = f"{plain}_{number}", number + 1
        found.append(unique)
    return found


def _quoted(text: str) -> str:
    return '"' + text.encode("unicode_escape").decode().replace('"', '\\"') + '"'


def _plain(text: str) -> str:
    """Return text that a docstring can hold."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())
