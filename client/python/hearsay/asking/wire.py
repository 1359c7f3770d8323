"""An `Answer` as the message that a server sends, and back."""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from google.protobuf import struct_pb2

from hearsay.asking.answer import (
    Answer,
    Cohort,
    Column,
    FigureValue,
    Level,
    Note,
    Role,
    Subject,
    Table,
    Unit,
)
from hearsay.v1 import answer_pb2
from ldp.errors import InvalidInput

_ROLES: Mapping[Role, Any] = {
    role: answer_pb2.Answer.Role.Value(role.upper()) for role in get_args(Role)
}
_UNITS: Mapping[Unit, Any] = {
    unit: answer_pb2.Answer.Unit.Value(unit.upper().replace(" ", "_")) for unit in get_args(Unit)
}
_ROLE_NAMES: dict[int, Role] = {number: name for name, number in _ROLES.items()}
_UNIT_NAMES: dict[int, Unit] = {number: name for name, number in _UNITS.items()}


def to_message(answer: Answer) -> answer_pb2.Answer:
    """Return an answer as a message, from which `from_message` makes an equal one."""
    message = answer_pb2.Answer(
        view=answer.view,
        survey=answer.survey,
        subjects=[answer_pb2.Answer.Subject(**vars(each)) for each in answer.subjects],
        statistic=answer.statistic,
        tables=map(_table, answer.tables),
        confidence=answer.confidence,
        simultaneous=answer.simultaneous,
        reports=answer.reports,
        parts=[answer_pb2.Answer.Part(name=name, reports=n) for name, n in answer.parts.items()],
        repeats=answer.repeats,
        method=answer.method,
        notes=[answer_pb2.Answer.Note(**vars(each)) for each in answer.notes],
        cohorts=[answer_pb2.Answer.Cohort(**vars(each)) for each in answer.cohorts],
    )
    message.figures.update(answer.figures)
    return message


def from_message(message: answer_pb2.Answer) -> Answer:
    """Return the answer of a message; raise `InvalidInput` for one that is no answer.

    A table has a label, a number or a text for each of its rows in each level and column, and names
    each level and column once.
    """
    tables = tuple(map(_table_of, message.tables))
    for kind, names in (
        ("tables", [table.name for table in tables]),
        ("parts", [part.name for part in message.parts]),
    ):
        if len(set(names)) != len(names):
            raise InvalidInput(f"{kind}: one comes twice")
    if not tables or not message.subjects:
        raise InvalidInput("an answer has a table, and is about an attribute")
    return Answer(
        message.view,
        message.survey,
        tuple(Subject(each.name, each.title) for each in message.subjects),
        message.statistic,
        tables,
        message.confidence,
        message.simultaneous,
        message.reports,
        {part.name: part.reports for part in message.parts},
        message.repeats,
        message.method,
        tuple(Note(each.words, each.part) for each in message.notes),
        {name: _figure(value) for name, value in message.figures.fields.items()},
        tuple(
            Cohort(c.revision, c.level, c.period, c.map, c.epsilon, c.mechanism, c.reports)
            for c in message.cohorts
        ),
    )


def _table(table: Table) -> answer_pb2.Answer.Table:
    return answer_pb2.Answer.Table(
        name=table.name,
        index=map(_level, table.index),
        columns=map(_column, table.columns),
        left_out=table.left_out,
        statistic=table.statistic,
    )


def _level(level: Level) -> answer_pb2.Answer.Level:
    """Return a level, whose labels stand once each where some come again."""
    message = answer_pb2.Answer.Level(name=level.name)
    if level.labels and not isinstance(level.labels[0], str):
        message.numbers.extend(level.labels)  # type: ignore[arg-type]
        return message
    places = {label: place for place, label in enumerate(dict.fromkeys(level.labels))}
    message.labels.extend(places)  # type: ignore[arg-type]
    if len(places) < len(level.labels):
        message.places.extend([places[label] for label in level.labels])
    return message


def _column(column: Column) -> answer_pb2.Answer.Column:
    message = answer_pb2.Answer.Column(
        name=column.name,
        role=_ROLES[column.role],
        unit=_UNITS[column.unit],
        whole=column.whole,
    )
    if column.role == "text":
        message.texts.extend(map(str, column.values))
    else:
        message.numbers.extend(np.asarray(column.values).tolist())
    return message


def _table_of(message: answer_pb2.Answer.Table) -> Table:
    index = tuple(map(_level_of, message.index))
    columns = tuple(map(_column_of, message.columns))
    if not index or len({each.name for each in columns}) < len(columns):
        raise InvalidInput(f"{message.name}: a table has an index, and names a column once")
    rows = len(index[0].labels)
    sizes = [(level.name, len(level.labels)) for level in index]
    sizes += [(column.name, len(column.values)) for column in columns]
    for name, size in sizes:
        if size != rows:
            raise InvalidInput(f"{message.name}: {name!r} has {size} of {rows} rows")
    return Table(message.name, index, columns, message.left_out, message.statistic)


def _level_of(message: answer_pb2.Answer.Level) -> Level:
    if message.numbers:
        return Level(message.name, list(message.numbers))
    labels = list(message.labels)
    if not message.places:
        return Level(message.name, labels)
    if {*message.places} != {*range(len(set(labels)))} or len(set(labels)) < len(labels):
        raise InvalidInput(f"{message.name!r}: rows have other labels than the {len(labels)} given")
    return Level(message.name, [labels[place] for place in message.places])


def _column_of(message: answer_pb2.Answer.Column) -> Column:
    if message.role not in _ROLE_NAMES or message.unit not in _UNIT_NAMES:
        raise InvalidInput(f"{message.name!r} is nothing that a column can be, or has no unit")
    role, unit = _ROLE_NAMES[message.role], _UNIT_NAMES[message.unit]
    if role == "text":
        return Column(message.name, role, unit, list(message.texts))
    values = np.array(message.numbers, dtype=np.float64)
    return Column(message.name, role, unit, values, message.whole)


def _figure(value: struct_pb2.Value) -> FigureValue:
    """Return a figure as it was; integers are floats, and tuples lists."""
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [_plain(each) for each in value.list_value.values]
    if kind == "struct_value":
        return {name: _plain(each) for name, each in value.struct_value.fields.items()}
    found: FigureValue = _plain(value)
    return found


def _plain(value: struct_pb2.Value) -> Any:
    """Return a number, a text, a flag, or None."""
    kind = value.WhichOneof("kind")
    if kind in ("list_value", "struct_value"):
        raise InvalidInput("figures: a list holds numbers or texts")
    return None if kind in (None, "null_value") else getattr(value, kind)
