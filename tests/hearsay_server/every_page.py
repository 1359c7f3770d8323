"""Every page, by who may see it, and a server that has something to show on each."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import trained
from collected import DAYS, batch, register
from serving import submit, tokens_of
from visiting import Browser, Site, showing

from hearsay_server.storage.database import open_folder

PICTURED = """
name = "commute"
title = "How people come to work"
period = "P1D"
default_level = "standard"
[page]
public = true
results = true
answers = true
[levels]
strict = 2.0
standard = 8.0
open = 20.0
[[properties]]
name = "platform"
title = "The phone"
values = ["ios", "android"]
[[attributes]]
name = "how"
title = "How did you come to work?"
[attributes.categorical]
values = ["by bus or tram", "by bike", "on foot", "by car"]
[[attributes]]
name = "late"
title = "Were you late?"
[attributes.categorical]
values = ["no", "yes"]
maps = { if_late = { sensitive = ["yes"] } }
[[attributes]]
name = "minutes"
title = "How many minutes did it take?"
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 120
step = 5
[[attributes]]
name = "apps"
title = "Which apps did you use on the way?"
mechanism = "set_pairs"
[attributes.set]
values = ["maps", "tickets", "news", "music"]
at_most = 2
[[attributes]]
name = "stars"
title = "How was it, from 1 to 5?"
[attributes.ratings]
keys = ["comfort", "price"]
low = 1
high = 5
at_most = 2
"""

MARKUP = "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>"
# Registration refuses what turns the direction of text, and control characters: letters of such
# scripts may stand in titles, and a label of a token may hold anything.
LABEL = MARKUP + "\u202e\u2066\u0007\x1b[31m turned"
HOSTILE = """
name = "hostile"
title = "MARKUP שלום עולם"
[page]
public = true
results = true
[levels]
strict = 4.0
[[attributes]]
name = "what"
title = "MARKUP مرحبا"
[attributes.categorical]
values = ["MARKUP", "שלום", "{{ 7 * 7 }}", "'\\" onmouseover=alert(3) x='"]
""".replace("MARKUP", MARKUP)

PLANNED = """
name = "planned"
[levels]
strict = 1.0
standard = 4.0
[[attributes]]
name = "late"
title = "Were you late?"
[attributes.categorical]
values = ["no", "yes"]
[[attributes]]
name = "minutes"
[attributes.numeric]
low = 0
high = 120
"""

ANALYST, ADMIN, NOBODY = "analyst", "admin", ""


@dataclass(frozen=True)
class Shown:
    """A page: a name, who sees it, where, and what is done there before it is looked at.

    `{token}` and `{training}` in an address stand for one that the server has.
    """

    name: str
    role: str
    path: str
    act: Callable[[Any], None] | None = None
    status: int = 200
    alike: bool = False
    """Whether another page has the same controls."""


def _plan(page: Any) -> None:
    page.fill("#text", PLANNED)
    page.click("text=Plan >> nth=-1")
    page.wait_for_selector("h2")


def _make_token(page: Any) -> None:
    page.fill("#label", "a laptop")
    page.click("main button")
    page.wait_for_selector("#secret")


def _try(page: Any) -> None:
    page.check("#try-form [name=how] >> nth=1")
    page.click("#try-many")
    page.wait_for_selector("#tried table, #tried dl, #tried p")


def _open_code(page: Any) -> None:
    page.click("details.code summary")


WEIGHTS = "platform,share\nios,0.3\nandroid,0.7\n"

_VIEW = "/analyst/commute/{}"
_VIEWS = {
    "estimate": "how",
    "estimate ratings": "stars",
    "sizes": "apps",
    "pairs": "apps",
    "by level": "how&by=level",
    "by period": "late&by=period",
    "by platform": "how&by=platform",
    "estimate weighted": f"how&margins={quote(WEIGHTS)}",
    "compare": "how&compare=level%3Dstrict%2Copen",
    "change": f"how&change={DAYS[0]}&change={DAYS[1]}",
    "trend": "late",
    "breaks": "late",
    "joint": "how&other=late",
    "independent": "how&other=late",
    "given": "how&given=late",
    "differences": "how&given=late",
    "distribution": "minutes",
    "quantiles": "minutes",
    "cdf": "minutes",
    "between": "minutes&between=20&between=40",
    "forged": "how&forged=100",
    "suspicions": "how",
    "forecast": "how&goal=0.01",
}

SHOWN: tuple[Shown, ...] = (
    Shown("start", NOBODY, "/"),
    Shown("sign-in", NOBODY, "/sign-in"),
    Shown("no-page", NOBODY, "/nowhere", status=404),
    Shown("asked", NOBODY, "/asked"),
    Shown("asked-survey", NOBODY, "/asked/commute"),
    Shown("asked-tried", NOBODY, "/asked/commute?level=strict", _try),
    Shown("asked-hostile", NOBODY, "/asked/hostile"),
    Shown("start-admin", ADMIN, "/"),
    Shown("operator", ADMIN, "/operator"),
    Shown("operator-survey", ADMIN, "/operator/surveys/commute"),
    Shown("operator-hostile", ADMIN, "/operator/surveys/hostile"),
    Shown("operator-close", ADMIN, "/operator/surveys/commute/close"),
    Shown("operator-delete", ADMIN, "/operator/surveys/commute/delete"),
    Shown("operator-training", ADMIN, "/operator/trainings/{training}"),
    Shown("operator-tokens", ADMIN, "/operator/tokens"),
    Shown("operator-token-made", ADMIN, "/operator/tokens", _make_token),
    Shown("operator-rotate", ADMIN, "/operator/tokens/{token}/rotate"),
    Shown("operator-revoke", ADMIN, "/operator/tokens/{token}/revoke"),
    Shown("operator-audit", ADMIN, "/operator/audit"),
    Shown("planner", ADMIN, "/planner"),
    Shown("planner-planned", ADMIN, "/planner", _plan),
    Shown("not-allowed", ADMIN, "/analyst", status=403),
    Shown("start-analyst", ANALYST, "/"),
    Shown("analyst", ANALYST, "/analyst"),
    Shown("analyst-survey", ANALYST, "/analyst/commute"),
    Shown("analyst-hostile", ANALYST, "/analyst/hostile"),
    Shown("analyst-hostile-view", ANALYST, "/analyst/hostile/estimate?attribute=what"),
    Shown("analyst-refused", ANALYST, _VIEW.format("estimate?attribute=how&period=2020-01-01")),
    Shown("analyst-code", ANALYST, _VIEW.format("estimate?attribute=late"), _open_code),
    *(
        Shown(
            f"analyst-{view.replace(' ', '-')}",
            ANALYST,
            _VIEW.format(f"{view.partition(' ')[0]}?attribute={options}"),
            alike=view not in ("estimate", "distribution"),
        )
        for view, options in _VIEWS.items()
    ),
)

DRAWN = """() => !document.querySelector('[hx-trigger="load"], figure.chart:not(:has(svg))')"""
"""Whether a page has all its parts, and its charts are drawn."""

PARTS = {"/operator/live", "/asked/{survey}/crowd"}
"""Addresses of what is part of a page."""


@dataclass(frozen=True)
class Filled:
    """A server whose pages have something to show, as each role sees it."""

    sites: Mapping[str, Site]
    tokens: Mapping[str, str]
    names: Mapping[str, str]

    def path(self, shown: Shown) -> str:
        """Return the address of a page on this server."""
        return re.sub(r"\{(\w+)\}", lambda found: self.names[found[1]], shown.path)

    def opened(
        self, browser: Browser, role: str, width: int = 1280, alike: bool = True, **options: Any
    ) -> Iterator[tuple[Shown, Any]]:
        """Yield each page of a role, drawn whole in one tab of a browser.

        Without `alike`, of pages with the same controls one.
        """
        tab = browser.open(self.sites[role], "/", width=width, **options)
        for shown in of_role(role):
            if shown.alike and not alike:
                continue
            self.show(tab, shown)
            yield shown, tab
        # The console tells the status of what is no page, as it is meant to be.
        for status in {each.status for each in of_role(role)} - {200}:
            browser.forget(f"responded with a status of {status} ")

    def show(self, tab: Any, shown: Shown) -> None:
        """Open a page in a tab, and wait until its charts are drawn."""
        answer = tab.goto(self.sites[shown.role].origin + self.path(shown))
        assert answer.status == shown.status, shown
        if shown.act:
            shown.act(tab)
        tab.wait_for_function(DRAWN, timeout=10_000)


def of_role(role: str) -> list[Shown]:
    """Return the pages that a role is shown."""
    return [each for each in SHOWN if each.role == role]


def _answers(rows: int, seed: int) -> dict[str, Any]:
    source = np.random.default_rng(seed)
    sets = np.array([[0, 1], [0, -1], [-1, -1], [3, -1], [2, 3]])
    stars = np.array([[0, 3], [0, -1], [1, 2], [1, 3], [-1, -1]])
    return {
        "how": source.choice(4, rows, p=[0.37, 0.28, 0.1, 0.25]),
        "late": source.choice(2, rows, p=[0.8, 0.2]),
        "minutes": source.beta(2, 5, rows) * 2 - 1,
        "apps": sets[source.integers(0, 5, rows)],
        "stars": stars[source.integers(0, 5, rows)],
    }


@contextlib.contextmanager
def filling(folder: Path, rows: int = 1500, hostile: bool = True) -> Iterator[Filled]:
    """Serve pages of a survey and a training, with so many people a day at each level.

    With `hostile` there are a survey and a token whose texts hold markup, too.
    """
    with contextlib.closing(open_folder(folder)) as database:
        training = trained.register(database).name
    made = tokens_of(folder)
    if hostile:
        made.create("device", LABEL)
    created = {role: made.create(role, f"the {role}'s") for role in ("device", ANALYST, ADMIN)}
    tokens = {role: secret for role, (_, secret) in created.items()}
    with showing(folder, keep_batches_days=30) as site:
        _, plan = register(site.grpc, PICTURED, tokens[ADMIN])
        cohorts = [(level, day) for day in DAYS for level in plan.levels]
        for seed, (level, day) in enumerate(cohorts):
            one = batch(plan, level, day, _answers(rows, seed), 100 * seed)
            one.properties.append("ios" if seed % 2 else "android")
            submit(site.grpc, one, token=tokens["device"])
        if hostile:
            _, plan = register(site.grpc, HOSTILE, tokens[ADMIN])
            what = {"what": np.arange(rows) % 4}
            submit(site.grpc, batch(plan, "strict", "once", what, 7), token=tokens["device"])
        sites = {NOBODY: site} | {role: site.signed_in(tokens[role]) for role in (ANALYST, ADMIN)}
        token = created["device"][0]
        yield Filled(sites, tokens, {"training": training, "token": token.id})
