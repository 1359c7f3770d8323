"""Formulas of regressions, as "wage ~ age + C(sex)": what is asked of the server, column by column.

The grammar is that of formulaic, which parses them. Only what randomised answers can be asked is
taken: sums and products of attributes. A transformation of an answer cannot be had afterwards.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from hearsay.plans.kinds import ByKind, Categorical, Domain, Numeric
from hearsay.plans.plan import Attribute
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput, needs

_CATEGORICAL = re.compile(
    r"""C\( \s* (?P<name>[A-Za-z_][A-Za-z0-9_]*) \s*
    (?: , \s* (?:contr\.treatment|Treatment) \( \s* (?:(?:base|reference) \s* = \s*)?
    (?P<quote>['"]) (?P<reference>.*) (?P=quote) \s* \) \s* )? \)""",
    re.VERBOSE,
)
"""C(a), or C(a, Treatment("value")), which names the value that the others are compared with."""


@dataclass(frozen=True)
class Model:
    """A regression that a server can be asked for.

    Labels name the columns as statsmodels does, such as "C(sex)[T.male]". `response` has a value
    where it is whether an attribute has the value.
    """

    response: analyst_pb2.Variable
    columns: Sequence[analyst_pb2.Product]


@dataclass(frozen=True)
class _Factor:
    """An attribute in a formula: its variables without those of a reference, and all of them."""

    name: str
    shown: str
    variables: Sequence[tuple[str, analyst_pb2.Variable]]
    all_variables: Sequence[tuple[str, analyst_pb2.Variable]]


def parse(
    formula: str, attributes: Mapping[str, Attribute], *, logistic: bool, success: str = ""
) -> Model:
    """Return the model of a formula about these attributes.

    The response is a number, or whether an attribute has the value `success`: of a logistic
    regression by default the last of two values. Values are told apart by indicators of all but a
    reference, the first or the one that is named; where a formula has no intercept ("- 1"), its
    first categorical term has all values. An interaction needs its main effects.

    Raises `InvalidInput`, saying what is not taken and what is; `MissingExtra` without formulaic.
    """
    with needs("a formula", "analyst"):
        from formulaic import Formula
        from formulaic.errors import FormulaicError

    try:
        parsed = Formula(formula)
    except FormulaicError as error:
        reason = re.sub(r"\x1b\[[0-9;]*m|[\u29da\u29db]", "", str(error)).strip()
        raise InvalidInput(f"the formula {formula!r} cannot be read: {reason}") from None
    left, right = getattr(parsed, "lhs", None), getattr(parsed, "rhs", None)
    if left is None or right is None or isinstance(right, tuple) or len(left) != 1:
        raise InvalidInput(
            f"a formula explains one attribute by others, as 'wage ~ age + C(sex)', got {formula!r}"
        )
    response = _response(str(left[0]), attributes, logistic, success)
    terms = [[factor.expr for factor in term.factors] for term in right]
    intercept = ["1"] in terms
    terms = [term for term in terms if term != ["1"]]
    factors = {expr: _factor(expr, attributes) for term in terms for expr in term}
    _check_main_effects(terms, factors)
    columns = [analyst_pb2.Product(label="Intercept")] if intercept else []
    full = None if intercept else _first_categorical(terms, factors)
    for term in terms:
        for label, variables in _columns(term, factors, full):
            columns.append(analyst_pb2.Product(variables=variables, label=label))
    if not columns:
        raise InvalidInput(f"the formula {formula!r} has nothing that explains")
    return Model(response, columns)


def _response(
    name: str, attributes: Mapping[str, Attribute], logistic: bool, success: str
) -> analyst_pb2.Variable:
    domain = _attribute(name, attributes).domain
    if isinstance(domain, Categorical):
        if not success:
            if not logistic or len(domain.values) != 2:
                raise InvalidInput(
                    f"{name!r} has values, {domain}: say which one is explained (success)"
                )
            success = domain.values[1]
        if success not in domain.values:
            raise InvalidInput(f"{name!r} has no value {success!r}; its values are {domain}")
        return analyst_pb2.Variable(attribute=name, value=success)
    if logistic:
        raise InvalidInput(f"{name!r} is a number: a logistic regression explains a value")
    if success:
        raise InvalidInput(f"{name!r} is a number: it has no value {success!r}")
    return analyst_pb2.Variable(attribute=name)


def _attribute(name: str, attributes: Mapping[str, Attribute]) -> Attribute:
    if name in attributes:
        return attributes[name]
    raise InvalidInput(
        f"a formula is of attributes ({', '.join(attributes)}), categories as C(name) or name, and "
        f"the operators + : * - and 1, got {name!r}: answers are randomised on the device, and "
        "cannot be transformed afterwards"
    )


def _factor(expr: str, attributes: Mapping[str, Attribute]) -> _Factor:
    """Return the factor that an expression is."""
    found = _CATEGORICAL.fullmatch(expr)
    name = found["name"] if found else expr
    domain = _attribute(name, attributes).domain
    return _FACTORS[domain](name, expr, found, domain)


def _another(name: str, expr: str, found: re.Match[str] | None, domain: Domain) -> _Factor:
    raise InvalidInput(f"{name!r} is {domain}: a regression is on values and numbers")


def _number(name: str, expr: str, found: re.Match[str] | None, domain: Numeric) -> _Factor:
    if found:
        raise InvalidInput(f"{name!r} is a number, which has no values: write {name}")
    variable = [(name, analyst_pb2.Variable(attribute=name))]
    return _Factor(name, expr, variable, variable)


def _categories(name: str, expr: str, found: re.Match[str] | None, domain: Categorical) -> _Factor:
    reference = (found and found["reference"]) or domain.values[0]
    if reference not in domain.values:
        raise InvalidInput(f"{name!r} has no value {reference!r}; its values are {domain}")
    each = {v: analyst_pb2.Variable(attribute=name, value=v) for v in domain.values}
    contrasts = [(f"{expr}[T.{v}]", own) for v, own in each.items() if v != reference]
    return _Factor(name, expr, contrasts, [(f"{expr}[{v}]", own) for v, own in each.items()])


_FACTORS: ByKind[Callable[[str, str, re.Match[str] | None, Any], _Factor]] = ByKind.otherwise(
    _another, category=_categories, number=_number
)
"""The factor of an attribute, by its name, its expression and what "C(...)" has of it."""


def _check_main_effects(terms: Sequence[Sequence[str]], factors: Mapping[str, _Factor]) -> None:
    """Raise `InvalidInput` for an attribute twice in a term, and an interaction alone."""
    alone = {term[0] for term in terms if len(term) == 1}
    names = [factors[expr].name for expr in alone]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{name!r} is in the formula in two ways: write it in one")
    for term in terms:
        if len(term) > 1:
            mine = [factors[expr].name for expr in term]
            if len(set(mine)) < len(mine):
                raise InvalidInput(
                    f"{':'.join(term)} multiplies an attribute by itself: powers cannot be had of "
                    "randomised answers"
                )
            if missing := [expr for expr in term if expr not in alone]:
                raise InvalidInput(
                    f"the interaction {':'.join(term)} needs the term {missing[0]} too: write "
                    f"{'*'.join(term)}"
                )


def _first_categorical(
    terms: Sequence[Sequence[str]], factors: Mapping[str, _Factor]
) -> str | None:
    for term in terms:
        if len(term) == 1 and factors[term[0]].all_variables != factors[term[0]].variables:
            return term[0]
    return None


def _columns(
    term: Sequence[str], factors: Mapping[str, _Factor], full: str | None
) -> Iterator[tuple[str, list[analyst_pb2.Variable]]]:
    """Yield the label and the variables of each column of a term."""
    alone = len(term) == 1
    each = [
        factors[expr].all_variables if alone and expr == full else factors[expr].variables
        for expr in term
    ]
    for combination in product(*each):
        yield (
            ":".join(label for label, _ in combination),
            [variable for _, variable in combination],
        )
