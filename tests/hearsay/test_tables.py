"""Files that people bring: one reader of text, and one of tables, for all commands."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearsay import files, tables
from ldp import InvalidInput


def parse(text: str) -> tables.Table:
    return tables.parse(text, "data.csv")


def test_a_number_is_what_others_than_python_write_too() -> None:
    assert tables.number(" -1.5e3 ") == -1500
    for cell in ("1_000", "1e1_0", "_1", "", "1,5"):
        with pytest.raises(ValueError):
            tables.number(cell)


@pytest.mark.parametrize(
    "data",
    [
        "é,b\n1,2\n".encode(),
        "\ufeffé,b\n1,2\n".encode(),
        "\ufeff\ufeffé,b\n1,2\n".encode(),
        "é,b\n1,2\n".encode("utf-16"),
        "\ufeffé,b\n1,2\n".encode("utf-16-be"),
        "é,b\n1,2\n".encode("utf-32"),
        gzip.compress("\ufeffé,b\n1,2\n".encode()),
    ],
    ids=range(7),
)
def test_text_is_read_by_its_mark_and_packed_whatever_its_name(data: bytes, tmp_path: Path) -> None:
    for name in ("data.csv", "data.csv.gz"):
        file = tmp_path / name
        file.write_bytes(data)
        assert files.read(file) == "é,b\n1,2\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b\n1,caf\xe9\n", "line 2, character 6: byte 0xe9 is no UTF-8: save the file as text"),
        (b"\xef\xbb\xbfa\r1,\r\xe9", "line 3, character 1: byte 0xe9"),
        ("a,b\n".encode("utf-16")[:-1], "line 1, character 4: byte 0x0a is no UTF-16"),
        (b"a,b\r\n1,\0\n", "line 2: has a zero byte"),
        ("a,b\n".encode("utf-16-le"), "line 1: has a zero byte"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        files.decoded(data, "data.csv")
    assert str(refused.value).startswith(f"data.csv, {said}")


def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read .*none\.csv: No such file"):
        files.read(tmp_path / "none.csv")
    with pytest.raises(InvalidInput, match=r"cannot read .*: Is a directory"):
        files.read(tmp_path)
    packed = gzip.compress(b"a,b\n1,2\n" * 99)
    for cut in (packed[:9], packed[:-9], packed[:20] + b"xxxx" + packed[24:]):
        (tmp_path / "data.csv.gz").write_bytes(cut)
        with pytest.raises(InvalidInput, match="cannot read"):
            files.read(tmp_path / "data.csv.gz")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", " is empty"),
        ("\n ,\n", " is empty"),
        ("sep=,\n", " is empty"),
        ("a,b\n", " has no rows below its heading"),
        ("a,b\n1,2\n1\n", ", row 3 has 1 cell, the heading has 2: 'b' (column 2) is missing"),
        ("a,b\n1,2,x\n", ", row 2 has 3 cells, the heading has 2: 'x' is in column 3"),
        ("a,b\n\n1,2\n\n1,2,3\n", ", row 5 has 3 cells"),
        ('a,b\n"1\n1",2\n1\n', ", row 4 has 1 cell"),
        ("sep=;\na;b\n1\n", ", row 3 has 1 cell"),
        ('a,b\n"1,2\n3,4\n', ", row 2: unexpected end of data"),
        ('a,b\n1,2\n"1"2,3\n', ", row 3: ',' expected after '\"'"),
        ("a,b\n1,2\n3," + "x" * 200_000 + "\n", ", row 3: a cell has more than 131,072 characters"),
        ("a;b\n1;2\n", ", row 1: the heading has one column, 'a;b': save the table with columns"),
        ("\n a\tb\n1\t2\n", ", row 2: the heading has one column, 'a\\tb'"),
        ("sep=;\na,b\n1,2\n", "separated by semicolons, not by commas"),
        ("sep=x\naxb\n1x2\n", ", line 1: columns are separated by commas, semicolons, tabs, bars"),
        ("a, b,a \n1,2,3\n", ", row 1: two columns are called 'a'"),
        ("cafe\u0301,caf\u00e9\n1,2\n", ", row 1: two columns are called 'café'"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert str(refused.value).startswith("data.csv")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,x y\n,2\n",
        " a , b \n 1 , x y \n,2",
        "\n\na,b\n\n1,x y\n   \n,2\n\n",
        'a,b\r\n"1","x y"\r\n"",2\r\n',
        "a,b\r1,x y\r,2\r",
        "sep=,\na,b\n1,x y\n,2\n",
        "SEP=;\r\na;b\r\n1;x y\r\n;2\r\n",
        '"sep=;"\na;b\n1;x y\n;2\n',
        "sep=\t\na\tb\n1\tx y\n\t2\n",
        "sep=,,\na,b\n1,x y\n,2\n",
    ],
)
def test_one_table_is_written_in_many_ways(text: str) -> None:
    found = parse(text)
    assert found.headings == ("a", "b")
    assert found.columns == (("1", ""), ("x y", "2"))


def test_a_row_is_called_by_the_line_on_which_it_begins() -> None:
    assert parse('sep=,\n\na,"b\nb"\n1,"x\ny"\n\n2,z\n').rows == [5, 8]


def test_an_accent_that_is_a_character_of_its_own_is_one_with_its_letter() -> None:
    found = parse("cite\u0301,b\ncafe\u0301,1\ncaf\u00e9,2\nbar,3\n")
    assert found.headings == ("cit\u00e9", "b")
    assert found.columns[0] == ("caf\u00e9", "caf\u00e9", "bar")
    assert found.respelled == (frozenset({"caf\u00e9"}), frozenset())


def test_a_column_is_found_but_for_case_and_blanks() -> None:
    for heading in ("person", "Person", " PERSON ", "per\u00a0son", "person\t"):
        assert tables.find(["f0", heading], "person", "data.csv") == 1
    assert tables.find(["f0", "persons"], "person", "data.csv") is None
    with pytest.raises(InvalidInput, match="'Person' and 'person' may both be 'person'"):
        tables.find(["Person", "person"], "person", "data.csv")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode("utf-8")))
def test_any_bytes_are_a_table_or_are_refused(data: bytes) -> None:
    try:
        found = tables.parse(files.decoded(data, "data.csv"), "data.csv")
    except InvalidInput as error:
        assert str(error).startswith("data.csv")
    else:
        assert all(len(column) == len(found.rows) > 0 for column in found.columns)
