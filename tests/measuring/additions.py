"""How many source files one touches to add a kind of attribute, a mechanism, a question.

`python -m measuring.additions` in the folder `tests` lists them. Tests, vectors, documentation and
what is generated come on top.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from measuring import kinds
from measuring.files import ANALYST, ROOT, naming, sources

MECHANISM = (
    "ldp/mechanisms/frequency/",
    "ldp/mechanisms/__init__.py",
    "client/web/src/mechanisms/",
    "client/web/src/mechanisms/index.ts",
    "client/web/src/mechanisms/rare.ts",
)
"""Where a mechanism is written whose code is one integer: a file of its own in each SDK,
and its name in both registries."""

QUESTION = (
    "client/python/hearsay/asking/views/",
    "client/python/hearsay/asking/",
    "server/hearsay_server/pages/analyst/charts.py",
)
"""Where a question is written that existing calls of the server answer: a `View` in a file of the
first folder, a method of `Analyst` in one of the second, and what a page draws."""


KIND = (
    "protos/hearsay/v1/survey.proto",
    "client/python/hearsay/plans/kinds/",
    "client/python/hearsay/plans/kinds/__init__.py",
    "client/python/hearsay/plans/kinds/kind.py",
    "client/web/src/plans/kinds/",
    "client/web/src/plans/kinds/index.ts",
    "client/web/src/plans/kinds/kind.ts",
    "client/web/src/plans/protobuf.ts",
)
"""Where a kind is written: on the wire, a file of its own in each SDK, and the lists of all."""

TELLING = (
    "server/hearsay_server/surveys/question.py",
    "server/hearsay_server/surveys/explain_protections.py",
    "server/hearsay_server/commands/codegen.py",
    "server/hearsay_server/commands/codegen_typescript.py",
    "server/hearsay_server/demo/exhibits.py",
    "server/hearsay_server/demo/play.py",
    "server/hearsay_server/pages/person/facts.py",
)
"""What else a kind touched that was added to try it, "yes or no", before no command, page or view
failed on it or said what is false. Views that it has no answer to refused it, and tables by
`ByKind.otherwise` had an entry for it that is true."""


def of_a_new_kind(sites: Sequence[str]) -> Sequence[str]:
    """Return the files that a new kind touches: of `TELLING` those that still tell a kind."""
    found = telling_a_kind(sites)
    return [*KIND, *(file for file in TELLING if file in found)]


def telling_a_kind(sites: Sequence[str]) -> Sequence[str]:
    """Return the files that tell a kind of attribute, or have a table or a list of all kinds.

    Files of TypeScript are not among them. `sites` are the places that tell a kind.
    """
    telling = {place.partition(":")[0] for place in sites}
    tables = {_name(file) for file in naming(r"\bByKind\b.*\(", sources())}
    return sorted(telling | tables | {_name(kinds.ROOM / "__init__.py")})


def of_calls() -> Mapping[str, Sequence[str]]:
    """Return, for each call that answers analysts, the files that name its messages.

    These are what a question touches that has a call of its own, besides those of `QUESTION`.
    """
    calls = re.findall(r"^  rpc (\w+)\((\w+)\)", ANALYST.read_text(encoding="utf-8"), re.M)
    files = [ANALYST, *naming("analyst_pb2", sources())]
    texts = {_name(file): file.read_text(encoding="utf-8") for file in files}
    return {
        call: [name for name, text in texts.items() if re.search(rf"\b{request}\b", text)]
        for call, request in calls
    }


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    sites = kinds.sites()
    listed: dict[str, Sequence[str]] = {
        "a kind": of_a_new_kind(sites),
        "telling a kind": telling_a_kind(sites),
    }
    listed |= {"a mechanism": MECHANISM, "a question": QUESTION, **of_calls()}
    for what, files in listed.items():
        sys.stdout.write("\n  ".join([f"{what}: {len(files)}", *files]) + "\n")
