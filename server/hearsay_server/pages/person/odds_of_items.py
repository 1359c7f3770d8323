"""What is sent of a set and of ratings, and how often it is true."""

from fractions import Fraction

from markupsafe import Markup

from hearsay.plans.kinds import Ratings, SetOf
from hearsay_server.pages.person.chances import of_many
from hearsay_server.pages.person.sentences import Odds, name, plain, say
from ldp import SetBits, SetSelection
from ldp.core.exact import ONE


def of_items(domain: SetOf | Ratings, mechanism: SetBits | SetSelection) -> Odds:
    """Return the odds of reports of sets and of ratings."""
    if isinstance(mechanism, SetBits):
        return _of_one(domain, mechanism)
    return _of_some(domain, mechanism)


def _of_one(domain: SetOf | Ratings, mechanism: SetBits) -> Odds:
    """Return the odds of reports that are about one item each."""
    true = 1 - Fraction(mechanism.flip, ONE)
    return Odds(
        say(
            "A yes or no about one {what} of {n}, which is drawn at random for each report. The "
            "report says nothing of the others.",
            what=domain.item,
            n=f"{mechanism.items:,}",
        ),
        (
            say("{p} people send what is true; the others send the opposite.", p=of_many(true)[0]),
            *_cut(domain),
        ),
    )


def _of_some(domain: SetOf | Ratings, mechanism: SetSelection) -> Odds:
    """Return the odds of reports that name some items and blanks."""
    p, q = of_many(*mechanism.support)
    if isinstance(domain, Ratings):
        of = "Of people whose rating of {key} became high, {p} send that it is high."
        own = [_rounded(domain), say(of, key=name(domain.keys[0]), p=p)]
    else:
        of = "Of people who have a certain {what}, {p} send it."
        own = [say(of, what=domain.item, p=p)]
    return Odds(
        say(
            "{size} of the {n} {what}s and blanks, drawn at random so that yours are likelier "
            "to be among them.",
            size=mechanism.size,
            n=f"{mechanism.tally_size:,}",
            what=domain.item,
        ),
        (
            *own,
            say("Of people without it, {q} send it too.", q=q),
            *_cut(domain),
        ),
    )


def _rounded(domain: Ratings) -> Markup:
    """Say that each rating is first rounded to an end of the scale."""
    return say(
        "Your rating is first rounded to high or low at random: of 100 who rate {middle} of "
        "{low} to {high}, 50 become high.",
        middle=plain((domain.low + domain.high) / 2),
        low=plain(domain.low),
        high=plain(domain.high),
    )


def _cut(domain: SetOf | Ratings) -> list[Markup]:
    """Say of sets and ratings that are cut that the odds are those of what is kept."""
    if not domain.clamp or domain.most == len(domain.labels):
        return []
    return [
        say(
            "Of more than {most} {what}s {most} are kept, drawn at random: these odds are those "
            "of what is kept.",
            most=domain.most,
            what=domain.item,
        )
    ]
