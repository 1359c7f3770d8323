"""`hearsay codegen`: write a typed module of Python or TypeScript with an app's agreement."""

import contextlib
import keyword
import re
import unicodedata
from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import wrap
from typing import Annotated

import typer

import hearsay.plans.plan
from hearsay.agreement import Agreement
from hearsay.sending.transport import Tls
from hearsay.sending.transport import connect as to_server
from hearsay_server.commands import codegen_typescript, connect
from hearsay_server.commands.codegen_answers import TYPED
from hearsay_server.commands.connect import DEFAULT_ADDRESS, Insecure, Target, Token
from hearsay_server.printing import say
from hearsay_server.surveys import survey as surveys
from ldp.errors import AnswerRefused, InvalidInput, StorageFailed

_TIMEOUT = 30.0


def codegen(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The survey, as TOML.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The module to write; by default it is printed.")
    ] = None,
    with_plan: Annotated[
        bool,
        typer.Option(
            "--with-plan/--without-plan",
            help="Put the plan into the module, so that the app works before it reaches a server.",
        ),
    ] = True,
    typescript: Annotated[
        bool,
        typer.Option("--typescript", help="Write TypeScript for `hearsay-ldp` of npm, not Python."),
    ] = False,
    survey: Annotated[
        str | None,
        typer.Option(help="Instead of a file: the survey of this name, as the server froze it."),
    ] = None,
    target: Target = DEFAULT_ADDRESS,
    insecure: Insecure = False,
    token: Token = None,
) -> None:
    """Write a module with an app's agreement and a typed function that records answers.

    \b
      hearsay codegen daily.toml --out daily.py
      hearsay codegen daily.toml --typescript --out daily.ts
      hearsay codegen --survey daily --target a.example.org:443 --out daily.py
      hearsay codegen --survey daily --target https://a.example.org --out daily.py
    """
    if file is not None and survey is None:
        plan = _resolved(file)
    elif survey is not None and file is None:
        plan = _fetched(survey, target, connect.tls(context), token, insecure)
    else:
        raise InvalidInput("give the survey's file, or --survey with its name: one of them")
    write = codegen_typescript.module if typescript else module
    text = write(plan, with_plan=with_plan)
    if out is None:
        say(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"cannot write {out}: {error}") from None


def _resolved(file: Path) -> bytes:
    """Return the plan of a survey's file; raise `InvalidInput` where registering it adds keys."""
    plan = surveys.resolve(surveys.from_file(file))
    parsed = hearsay.plans.plan.parse(plan)
    if parsed.sealing is not None or parsed.two_servers:
        raise InvalidInput(
            f"{file}: the server makes the keys of this survey's records when it registers it, and "
            f"they are part of the plan: register it, and give --survey {parsed.survey} with "
            "--target in the place of the file"
        )
    return plan


def _fetched(survey: str, target: str, tls: Tls | None, token: str | None, insecure: bool) -> bytes:
    """Return a survey's plan from a server."""
    transport = to_server(target, tls=tls, token=token, insecure=insecure)
    try:
        with contextlib.closing(transport):
            plan: bytes = transport.get_plan(survey, _TIMEOUT).plan
            parsed = hearsay.plans.plan.parse(plan)
    except InvalidInput as error:
        raise InvalidInput(
            f"the server at {target} gives no plan: {error}; `hearsay survey list` names its "
            "surveys, and `hearsay survey create` registers one"
        ) from None
    if parsed.survey != survey:
        raise AnswerRefused(
            f"the server at {target} gives the plan of {parsed.survey!r} for {survey!r}: a module "
            "of it would record answers to another survey"
        )
    return plan


def module(plan: bytes, *, with_plan: bool = True) -> str:
    """Return the source of the Python module for a plan; raise `InvalidInput` for other bytes."""
    parsed = hearsay.plans.plan.parse(plan)
    attributes = parsed.attributes.values()
    names = _identifiers([a.name for a in attributes], {"client", "answers"})
    types, parameters, answers, described = [], [], [], []
    wanted = ["".join(p.title() for p in re.split(r"\W|_", a.name)) for a in attributes]
    with_maps = [a.name for a in attributes if parsed.maps(a.name)]
    of_maps = [f"{w}Map" for w, a in zip(wanted, attributes, strict=True) if a.name in with_maps]
    kinds = _identifiers(
        [*wanted, *of_maps],
        {"Agreement", "Client", "Collection", "Literal", "Mapping", "Person", "Recorded"},
    )
    maps_of = dict(zip(with_maps, kinds[len(wanted) :], strict=True))
    kinds = kinds[: len(wanted)]
    for attribute, name, kind in zip(attributes, names, kinds, strict=True):
        domain, typed = attribute.domain, TYPED[attribute.domain]
        if typed.names_labels:
            types.append(_one_of(kind, domain.labels))
        if domain.map_names:
            types.append(_one_of(maps_of[attribute.name], domain.map_names))
        shown, allowed = typed.python.format(kind), _plain(typed.allowed(domain))
        if companions := _companions(parsed, attribute.name):
            allowed += f"; asked together with {_plain(companions)}: give them in one call"
        parameters.append(f"    {name}: {shown} | None = None,\n")
        answers.append(f"        {_quoted(attribute.name)}: {name},\n")
        described.append(f"    {name}: {_plain(attribute.title or attribute.name)} ({allowed}).\n")
    function = _identifiers([f"record_{parsed.survey}"], set())[0]
    imports = "from base64 import b64decode\n" if with_plan else ""
    generic = [name for name in ("Collection", "Mapping") if f": {name}[" in "".join(parameters)]
    imports += f"from collections.abc import {', '.join(generic)}\n" if generic else ""
    imports += "from typing import Literal\n" if types else ""
    survey = _plain(parsed.survey)
    return (
        f'"""The survey {survey!r}: what an app agrees to, typed. Written by `hearsay codegen`.\n\n'
        "Pass AGREEMENT to `hearsay.Client`: it takes this plan and no other. Another version of\n"
        "hearsay may resolve the same file into another plan: the revision below must be the one\n"
        f"that `hearsay survey show {survey}` prints.\n"
        '"""\n\n'
        + (f"{imports}\n" if imports else "")
        + "from hearsay import Agreement, Client, Person, Recorded\n\n"
        + _agreement(Agreement.on(plan), with_plan=with_plan)
        + "".join(f"\n{each}" for each in types)
        + f"\n\ndef {function}(\n    client: Client | Person,\n    *,\n{''.join(parameters)}"
        ") -> Recorded:\n"
        f'    """Record answers to: {_plain(parsed.title or parsed.survey)}\n\n'
        f"{''.join(described)}\n"
        "    What is None is withheld. Returns what was taken, and why the rest was not.\n"
        '    """\n'
        f"    answers = {{\n{''.join(answers)}    }}\n"
        "    return client.record(**answers)\n"
    )


def _one_of(name: str, values: Iterable[str]) -> str:
    """Return the assignment of a type that is one of some texts."""
    listed = "".join(f"    {_quoted(value)},\n" for value in values)
    return f"{name} = Literal[\n{listed}]\n"


def _companions(plan: hearsay.plans.plan.Plan, attribute: str) -> str:
    """Return the attributes that are asked together with one, view by view; "" for none."""
    views = [view.attributes for view in plan.views.values() if attribute in view.attributes]
    others = (" and ".join(name for name in view if name != attribute) for view in views)
    return ", and with ".join(others)


def _agreement(agreement: Agreement, *, with_plan: bool) -> str:
    """Return the assignment of AGREEMENT, formatted."""
    given: dict[str, object] = {
        "survey": agreement.survey,
        "revision": agreement.revision,
        "period": agreement.period,
        "domains": agreement.domains,
        "levels": agreement.levels,
    }
    optional = ("default_level", "may_reveal", "maps", "may_tell_changes", "views")
    for name in (*optional, "panels", "properties"):
        if value := getattr(agreement, name):
            given[name] = value
    lines = [f"    {name}={_literal(value, 1)},\n" for name, value in given.items()]
    if with_plan:
        pieces = wrap(b64encode(agreement.plan).decode(), 72)
        encoded = "".join(f'        "{piece}"\n' for piece in pieces)
        lines.append(f"    plan=b64decode(\n{encoded}    ),\n")
    return f"AGREEMENT = Agreement(\n{''.join(lines)})\n"


def _literal(value: object, depth: int) -> str:
    """Return the source of a text, a number, or a mapping or tuple of them, `depth` deep."""
    if isinstance(value, str):
        return _quoted(value)
    inner, outer = "    " * (depth + 1), "    " * depth
    if isinstance(value, Mapping):
        items = [f"{_quoted(key)}: {_literal(item, depth + 1)}" for key, item in value.items()]
        return "{\n" + "".join(f"{inner}{item},\n" for item in items) + outer + "}"
    if isinstance(value, tuple) and isinstance(value[0], str | tuple):
        if len(value) == 1 and isinstance(value[0], str):
            return f"({_quoted(value[0])},)"
        items = [_literal(item, depth + 1) for item in value]
        return "(\n" + "".join(f"{inner}{item},\n" for item in items) + outer + ")"
    return repr(value).replace("e+", "e")  # a number, or the two ends of a range


def _identifiers(names: Iterable[str], taken: set[str]) -> list[str]:
    """Return a unique valid Python identifier for each name, none of them in `taken`."""
    found: list[str] = []
    for name in names:
        # As Python reads a name: of characters that look alike some are the same to it.
        composed = unicodedata.normalize("NFKC", name)
        plain = "".join(c if f"a{c}".isidentifier() else "_" for c in composed)
        if not plain.isidentifier():
            plain = f"_{plain}"
        if keyword.iskeyword(plain):
            plain = f"{plain}_"
        unique, number = plain, 2
        while unique in found or unique in taken:
            unique, number = f"{plain}_{number}", number + 1
        found.append(unique)
    return found


def _quoted(text: str) -> str:
    """Return the source of a text, in the quotes that need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote


def _plain(text: str) -> str:
    """Return text that a docstring can hold."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())
