"""The TypeScript module that `hearsay codegen --typescript` writes."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from textwrap import wrap

import hearsay.plans.plan
from hearsay.agreement import Agreement
from hearsay.plans.plan import Plan
from hearsay_server.commands.codegen_answers import TYPED
from hearsay_server.surveys.agreements import for_typescript

_COLUMNS = 80
"""Lines are broken as prettier breaks them by default."""

_IMPORTED = {"Agreement", "Client", "Person", "Promise", "Recorded"}
"""Types that the module refers to: it declares none of their names."""


def module(plan: bytes, *, with_plan: bool = True) -> str:
    """Return the source of the ES module for a plan, typed; raise `InvalidInput` for other bytes.

    It imports types of `hearsay-ldp` alone, and `tsc --strict` accepts it.
    """
    parsed = hearsay.plans.plan.parse(plan)
    attributes = parsed.attributes.values()
    chosen = [a.name for a in attributes if TYPED[a.domain].names_labels]
    with_maps = [name for name in chosen if parsed.maps(name)]
    answers, *named = _different(
        [
            f"{_pascal(parsed.survey)}Answers",
            *map(_pascal, chosen),
            *(f"{_pascal(name)}Map" for name in with_maps),
        ],
        _IMPORTED,
    )
    kinds = dict(zip(chosen, named[: len(chosen)], strict=True))
    of_maps = dict(zip(with_maps, named[len(chosen) :], strict=True))
    types, fields = [], []
    keys = _keys(parsed.attributes)
    for attribute, key in zip(attributes, keys, strict=True):
        domain, typed = attribute.domain, TYPED[attribute.domain]
        if typed.names_labels:
            types.append(_union(kinds[attribute.name], domain.labels))
        if domain.map_names:
            types.append(_union(of_maps[attribute.name], domain.map_names))
        shown = typed.typescript.format(kinds.get(attribute.name))
        allowed = _comment(typed.allowed(domain))
        fields.append(
            f"  /** {_comment(attribute.title or attribute.name)} ({allowed}). */\n"
            f"  readonly {key}?: {shown} | undefined;\n"
        )
    function = f"record{_pascal(parsed.survey)}"
    survey, title = _comment(parsed.survey), _comment(parsed.title or parsed.survey)
    return (
        "/**\n"
        f" * The survey {survey}: what an app agrees to, typed. Written by\n"
        " * `hearsay codegen --typescript`.\n"
        " *\n"
        " * Pass AGREEMENT to `new Client`: the client takes this plan and no other.\n"
        " * Another version of hearsay may resolve the same file into another plan: the\n"
        f" * revision below must be the one that `hearsay survey show {survey}` prints.\n"
        " */\n\n"
        'import type { Agreement, Client, Person, Recorded } from "hearsay-ldp";\n\n'
        f"{_agreement(Agreement.on(plan), parsed, with_plan=with_plan)}\n"
        f"{''.join(types)}"
        f"/**\n * Answers to: {title}\n *\n * An answer that is not there is withheld.\n */\n"
        f"export interface {answers} {{\n{''.join(fields)}}}\n\n"
        f"/**\n * Record answers to: {title}\n *\n"
        " * Returns what was taken, and why the rest was not.\n */\n"
        f"export function {function}(\n"
        "  client: Client | Person,\n"
        f"  answers: {answers},\n"
        "): Promise<Recorded> {\n"
        "  return client.record({ ...answers });\n"
        "}\n"
    )


def _union(name: str, values: Iterable[str]) -> str:
    """Return the declaration of the type that is one of some texts."""
    texts = [_text(value) for value in values]
    line, start = f"{' | '.join(texts)};", f"export type {name} ="
    if len(f"{start} {line}") <= _COLUMNS:
        return f"{start} {line}\n\n"
    if len(f"  {line}") > _COLUMNS:
        line = "\n  ".join(f"| {text}" for text in texts) + ";"
    return f"{start}\n  {line}\n\n"


def _agreement(agreement: Agreement, plan: Plan, *, with_plan: bool) -> str:
    """Return the declaration of AGREEMENT, whose plan is base64."""
    given = for_typescript(agreement, plan)
    lines = [_property(name, value, 1) for name, value in given.items()]
    if with_plan:
        pieces = wrap(b64encode(agreement.plan).decode(), 72)
        lines.append("  plan:\n" + " +\n".join(f'    "{piece}"' for piece in pieces) + ",\n")
    return f"export const AGREEMENT: Agreement = {{\n{''.join(lines)}}};\n"


def _property(key: str, value: object, depth: int) -> str:
    """Return the source of a property: a text, a number, a list of these or of lists, or a mapping
    to such properties."""
    indent = "  " * depth
    if isinstance(value, Mapping):
        keys = _keys(value)
        items = [_property(k, v, depth + 1) for k, v in zip(keys, value.values(), strict=True)]
        return f"{indent}{key}: {{\n{''.join(items)}{indent}}},\n"
    if isinstance(value, tuple):
        return f"{indent}{key}: {_list(value, depth, len(key) + 2)},\n"
    if isinstance(value, str):
        line = f"{indent}{key}: {_text(value)},"
        return (
            f"{line}\n" if len(line) <= _COLUMNS else f"{indent}{key}:\n{indent}  {_text(value)},\n"
        )
    return f"{indent}{key}: {_number(value)},\n"


def _list(values: tuple[object, ...], depth: int, before: int = 0) -> str:
    """Return the source of a list whose first line has so many characters before it."""
    indent = "  " * depth
    are_lists = all(isinstance(value, tuple) for value in values)
    if are_lists:
        items = [_list(value, depth + 1) for value in values if isinstance(value, tuple)]
    else:
        items = [_text(value) if isinstance(value, str) else _number(value) for value in values]
    line = f"[{', '.join(items)}]"
    fits = len(indent) + before + len(line) + 1 <= _COLUMNS and "\n" not in line
    if fits and not (are_lists and len(values) > 1):
        return line
    return "[\n" + "".join(f"{indent}  {item},\n" for item in items) + f"{indent}]"


def _keys(names: Iterable[str]) -> list[str]:
    """Return the source of the names of an object's properties, in quotes where they need them.

    `__proto__` is a computed name, as it would set the object's prototype otherwise.
    """
    return [
        '["__proto__"]'
        if name == "__proto__"
        else name
        if re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name)
        else _text(name)
        for name in names
    ]


def _number(value: object) -> str:
    """Return the source of a number, which JavaScript reads as the same double."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value)) if value else "0"
    return re.sub(r"e\+?(-?)0*", r"e\1", repr(value))


def _text(text: str) -> str:
    """Return the source of a text, in the quotes that need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote


def _comment(text: str) -> str:
    """Return text that a comment can hold: none of it ends the comment."""
    return " ".join(text.replace("*/", "* /").split())


def _pascal(name: str) -> str:
    """Return the words of a name as one identifier: `SleepHours` for "sleep hours"."""
    words = "".join(c if f"a{c}".isidentifier() and c != "_" else " " for c in name).split()
    joined = "".join(word[:1].upper() + word[1:] for word in words)
    return joined if joined.isidentifier() else f"Q{joined}"


def _different(names: Iterable[str], taken: set[str]) -> list[str]:
    """Return the names, with a number where an earlier one is the same or `taken` has it."""
    found: list[str] = []
    for name in names:
        unique, number = name, 2
        while unique in found or unique in taken:
            unique, number = f"{name}{number}", number + 1
        found.append(unique)
    return found
