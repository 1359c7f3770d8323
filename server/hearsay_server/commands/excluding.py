"""Which options of `hearsay query` exclude each other, and which need another one."""

import typer

from ldp.errors import InvalidInput

_ALL = "all"
"""Given where none is named."""

_CHANGES = "--change --trend --breaks"
_TWO = "--joint --independent --given"
_WAYS = f"--by --compare {_CHANGES} --suspicions --pairs --watch --distribution"
_WORDS = "--discover --candidates"

_EXCLUDED = (
    ("--json", "--csv", "choose one of --json and --csv"),
    (_CHANGES, _CHANGES, "choose one of --change, --trend and --breaks"),
    (
        "--change",
        "--period --from --to",
        "--change names its two periods: leave out --period, --from and --to",
    ),
    (
        _WAYS,
        _WAYS,
        "choose one of --by, --compare, --change, --trend, --breaks, --suspicions, --pairs, "
        "--watch and --distribution, of which --between, --quantile and --cdf are parts",
    ),
    (
        "--shuffled",
        f"--json --csv {_TWO} {_WORDS}",
        "--shuffled is said beside estimates of one attribute, in tables: "
        "hearsay account --shuffled SURVEY --json has its figures",
    ),
    (
        "--shuffled",
        _WAYS.removeprefix("--by "),
        "--shuffled is said beside estimates: leave out the other questions",
    ),
    (
        "--sizes",
        "--compare --suspicions --distribution --pairs",
        "--sizes is about the numbers of items: leave out --compare, --suspicions, "
        "--distribution and --pairs",
    ),
    (_WORDS, _WORDS, "choose one of --discover and --candidates"),
    (_WORDS, _ALL, "--discover and --candidates are about one attribute: name it"),
    (
        _WORDS,
        "other --simultaneous --method --consistent --forged --recover --values --sum --sizes "
        f"--margins {_WAYS}",
        "words are asked for with --top, --confidence and a selection: leave out {option}",
    ),
    (_TWO, _TWO, "choose one of --joint, --independent and --given"),
    (_TWO, _ALL, "name two attributes after the survey"),
    (
        _TWO,
        f"--top --values --sum --sizes --consistent --forged --recover {_WAYS}",
        "{option} is about one attribute, got two",
    ),
    (
        "--margins",
        f"{_TWO} --other-between --compare {_CHANGES} --suspicions --pairs",
        "--margins weights the estimates of one attribute: leave out --compare, --change, "
        "--trend, --breaks, --suspicions, --pairs, and questions about two attributes",
    ),
    ("--pairs", "--values", "--pairs takes --top, not --values"),
    (
        "--top --values",
        f"--suspicions --distribution --compare {_CHANGES}",
        "--top and --values choose among the rows of frequencies",
    ),
    (
        "--compare",
        "--sum --method --consistent --forged --recover",
        "--compare compares stratified estimates of values: leave out --sum, --method, "
        "--consistent, --forged and --recover",
    ),
    (
        _CHANGES,
        "--sizes --method --consistent --forged --recover",
        "--change, --trend and --breaks compare stratified estimates: leave out --sizes, "
        "--method, --consistent, --forged and --recover",
    ),
    (
        "--sum",
        "--distribution --suspicions",
        "--sum is about values: leave out --distribution and --suspicions",
    ),
    (
        _ALL,
        "--sum --suspicions --distribution --watch --sizes --pairs --between",
        "{option} is about one attribute: name it after the survey",
    ),
    ("--plot", "--watch", "--plot does not draw --watch: the page of the survey does"),
)
"""Options, others that exclude them, and what is said of the first of these, the `option`."""

_NEEDED = (
    ("--nonnegative", "--joint", "--nonnegative is of --joint: name two attributes"),
    ("--reference", "--given", "--reference is a value of the attribute that --given names"),
)
"""Options, another that it needs, and what is said where it is missing."""


def given(context: typer.Context) -> set[str]:
    """Return what has a value in a call of `hearsay query`: options and arguments, by their names.

    The parts of --distribution give this, too.
    """
    names = {each.name: each.opts[0] for each in context.command.params}
    values = {names[name]: value for name, value in context.params.items()}
    found = {name for name, value in values.items() if value or type(value) in (int, float)}
    if found & {"--quantile", "--cdf"} or ("--between" in found and not found & _set(_CHANGES)):
        found.add("--distribution")
    return found


def check(found: set[str]) -> None:
    """Raise `InvalidInput` for options that exclude each other, and for one that needs another."""
    if "attribute" not in found:
        found = found | {_ALL}
    for some, others, words in _EXCLUDED:
        for one in found & _set(some):
            for option in others.split():
                if option in found and option != one:
                    named = "the second attribute" if option == "other" else option
                    raise InvalidInput(words.format(option=named))
    for option, needed, words in _NEEDED:
        if option in found and needed not in found:
            raise InvalidInput(words)


def _set(names: str) -> set[str]:
    return set(names.split())
