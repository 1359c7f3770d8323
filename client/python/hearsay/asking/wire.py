"""An `Answer` as the message that a server sends, and back."""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from hearsay.asking import cautions
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


_FEW = 64
"""Tables, columns, figures and the like of an answer, at most; notes, besides those of parts."""

_MANY = 1 << 19
"""Parts, and cohorts, of an answer at most: an empty one takes two bytes, and a value hundreds."""


def to_message(answer: Answer) -> answer_pb2.Answer:
    """Return an answer as a message, from which `from_message` makes an equal one."""
    return answer_pb2.Answer(
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
        notes=map(_note, answer.notes),
        figures=[_figure(name, value) for name, value in answer.figures.items()],
        cohorts=[answer_pb2.Answer.Cohort(**vars(each)) for each in answer.cohorts],
    )


def from_message(message: answer_pb2.Answer) -> Answer:
    """Return the answer of a message; raise `InvalidInput` for one that is no answer.

    A table has a label, a number or a text for each of its rows in each level and column, and names
    each level and column once. How much there is of anything is checked before a value is made.
    """
    for several, most in (
        ("tables", _FEW),
        ("subjects", _FEW),
        ("figures", _FEW),
        ("parts", _MANY),
        ("cohorts", _MANY),
        ("notes", _FEW + len(message.parts)),
    ):
        _check_few(several, len(getattr(message, several)), most)
    tables = tuple(map(_table_of, message.tables))
    for kind, names in (
        ("tables", [table.name for table in tables]),
        ("parts", [part.name for part in message.parts]),
        ("figures", [figure.name for figure in message.figures]),
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
        tuple(map(_note_of, message.notes)),
        {figure.name: _figure_of(figure) for figure in message.figures},
        tuple(
            Cohort(c.revision, c.level, c.period, c.map, c.epsilon, c.mechanism, c.reports)
            for c in message.cohorts
        ),
    )


def _note(note: Note) -> answer_pb2.Answer.Note:
    given = [_figure(name, value) for name, value in note.given.items()]
    return answer_pb2.Answer.Note(part=note.part, words=note.words, code=note.code, given=given)


def _note_of(message: answer_pb2.Answer.Note) -> Note:
    """Return a note; its words are made here, of what it is given."""
    _check_few("given", len(message.given), _FEW)
    given = {each.name: _figure_of(each) for each in message.given}
    return Note(message.code, cautions.checked(message.code, given), message.part)


def _check_few(name: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidInput(f"{name}: {count:,} are more than an answer has, which is {most:,}")


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
    _check_few("index", len(message.index), _FEW)
    _check_few("columns", len(message.columns), _FEW)
    index = tuple(map(_level_of, message.index))
    columns = tuple(map(_column_of, message.columns))
    names = [level.name for level in index], [column.name for column in columns]
    if not index or any(len(set(each)) < len(each) for each in names):
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


def _figure(name: str, value: FigureValue) -> answer_pb2.Answer.Figure:
    figure = answer_pb2.Answer.Figure(name=name)
    if isinstance(value, Mapping):
        numbers = {each: float(number) for each, number in value.items()}
        figure.numbers.names.extend(numbers)
        figure.numbers.numbers.extend(numbers.values())
    elif isinstance(value, str):
        figure.text = value
    elif isinstance(value, bool):
        figure.flag = value
    elif isinstance(value, int):
        figure.count = value
    elif isinstance(value, float):
        figure.number = value
    elif value and isinstance(value[0], str):
        figure.texts.texts.extend(map(str, value))
    elif value is not None:
        figure.numbers.numbers.extend(map(float, value))
        figure.numbers.SetInParent()
    return figure


def _figure_of(figure: answer_pb2.Answer.Figure) -> FigureValue:
    """Return a figure as it was; tuples are lists."""
    kind = figure.WhichOneof("value")
    if kind is None:
        return None
    if kind == "texts":
        return list(figure.texts.texts)
    if kind != "numbers":
        found: FigureValue = getattr(figure, kind)
        return found
    names, numbers = list(figure.numbers.names), list(figure.numbers.numbers)
    if not names:
        return numbers
    if len(set(names)) < len(names) or len(names) != len(numbers):
        raise InvalidInput(f"figures: {figure.name!r} has a number for each of its names")
    return dict(zip(names, numbers, strict=True))
