"""What is sent of a set and of ratings, and how often it is true."""

from fractions import Fraction

from markupsafe import Markup

from hearsay.plans.kinds import Domain, Grid, Ratings, SetOf
from hearsay_server.pages.person.chances import of_many
from hearsay_server.pages.person.sentences import Odds, name, plain, say
from ldp import SetBits, SetSelection
from ldp.core.exact import ONE


def of_one(domain: Domain | Grid, mechanism: SetBits) -> Odds:
    """Return the odds of reports that are about one item each."""
    true = 1 - Fraction(mechanism.flip, ONE)
    what = _item_words(domain)
    return Odds(
        say(
            "A yes or no about one {what} of {n}, which is drawn at random for each report. The "
            "report says nothing of the others.",
            what=what,
            n=f"{mechanism.items:,}",
        ),
        (
            *_rounded(domain),
            say("{p} people send what is true; the others send the opposite.", p=of_many(true)[0]),
            *_cut(domain),
        ),
    )


def of_some(domain: Domain | Grid, mechanism: SetSelection) -> Odds:
    """Return the odds of reports that name some items and blanks."""
    p, q = of_many(*mechanism.support)
    what = _item_words(domain)
    return Odds(
        say(
            "{size} of the {n} {what}s and blanks, drawn at random so that yours are likelier "
            "to be among them.",
            size=mechanism.size,
            n=f"{mechanism.tally_size:,}",
            what=what,
        ),
        (
            *_rounded(domain),
            say(
                "Of people whose rating of {key} became high, {p} send that it is high.",
                key=name(domain.keys[0]),
                p=p,
            )
            if isinstance(domain, Ratings)
            else say("Of people who have a certain {what}, {p} send it.", what=what, p=p),
            say("Of people without it, {q} send it too.", q=q),
            *_cut(domain),
        ),
    )


def _rounded(domain: Domain | Grid) -> list[Markup]:
    """Say of ratings that each is first rounded to an end of the scale."""
    if not isinstance(domain, Ratings):
        return []
    return [
        say(
            "Your rating is first rounded to high or low at random: of 100 who rate {middle} of "
            "{low} to {high}, 50 become high.",
            middle=plain((domain.low + domain.high) / 2),
            low=plain(domain.low),
            high=plain(domain.high),
        )
    ]


def _cut(domain: Domain | Grid) -> list[Markup]:
    """Say of sets and ratings that are cut that the odds are those of what is kept."""
    assert isinstance(domain, SetOf | Ratings)
    if not domain.clamp or domain.most == len(domain.labels):
        return []
    return [
        say(
            "Of more than {most} {what}s {most} are kept, drawn at random: these odds are those "
            "of what is kept.",
            most=domain.most,
            what=_item_words(domain),
        )
    ]


def _item_words(domain: Domain | Grid) -> str:
    if isinstance(domain, Ratings):
        return "rating"
    assert isinstance(domain, SetOf)
    return "item"
