"""The tables of which options of `hearsay query` exclude each other."""

import pytest
import typer

from hearsay_server.commands import excluding
from hearsay_server.commands.excluding import check, given
from hearsay_server.commands.query import query
from ldp.errors import InvalidInput

app = typer.Typer()
app.command()(query)
COMMAND = typer.main.get_command(app)
PLACES = {"other", "all"}


def names() -> set[str]:
    """Return all options that the tables name."""
    of_two = {*excluding._EXCLUDED, *excluding._NEEDED}
    return {name for some, others, _ in of_two for name in f"{some} {others}".split()}


def test_the_tables_name_options_that_there_are() -> None:
    assert names() - PLACES <= {name for each in COMMAND.params for name in each.opts}


@pytest.mark.parametrize(("some", "others", "words"), excluding._EXCLUDED)
def test_two_options_that_exclude_each_other_are_refused(
    some: str, others: str, words: str
) -> None:
    for one in some.split():
        for option in set(others.split()) - {one}:
            # Whatever else is asked, some rule refuses these two.
            found = {one, option} | ({"attribute"} if "all" not in (one, option) else set())
            with pytest.raises(InvalidInput):
                check(found - {"all"})


def test_an_option_without_the_one_that_it_needs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="--nonnegative is of --joint"):
        check({"attribute", "other", "--nonnegative"})
    check({"attribute", "other", "--nonnegative", "--joint"})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["s"], {"survey"}),
        (["s", "a", "--forged", "0", "--json"], {"survey", "attribute", "--forged", "--json"}),
        (["s", "--values", "", "--sum", "a,b"], {"survey", "--sum"}),
        (["s", "--cdf"], {"survey", "--cdf", "--distribution"}),
        (["s", "--between", "0", "1"], {"survey", "--between", "--distribution"}),
        (["s", "--between", "0", "1", "--trend"], {"survey", "--between", "--trend"}),
    ],
)
def test_an_option_counts_as_given_where_it_has_a_value(
    arguments: list[str], expected: set[str]
) -> None:
    with COMMAND.make_context("query", arguments) as context:
        defaults = {"--confidence", "--bins", "--target"}
        assert given(context) - defaults == expected  # type: ignore[arg-type]
