"""What a mechanism sends, and how often it is true, in words for the person who is asked."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from hearsay.plans.kinds import Domain, Grid, Numeric, Ratings, SetOf
from hearsay_server.pages.person.chances import EDGE, counted, factor, of_many, people
from hearsay_server.pages.person.odds_of_items import of_items
from hearsay_server.pages.person.odds_of_numbers import of_mean, of_ranges
from hearsay_server.pages.person.sentences import LISTED, Odds, listed, name, say
from hearsay_server.surveys import revealing
from ldp import Mechanism, PrefixHashing, SetBits, SetSelection
from ldp.core.exact import ONE
from ldp.core.mechanism import FrequencyOracle
from ldp.mechanisms import (
    RAPPOR,
    DBitFlip,
    PolicyMechanism,
    PolicySubsets,
    PolicyUnary,
    Waves,
)
from ldp.mechanisms.numbers.mean import MeanMechanism

_CELLS = 1 << 18
"""The most entries of a channel that is looked at value by value."""


def odds(domain: Domain | Grid, mechanism: Mechanism) -> Odds:
    """Return what a mechanism sends for a question, and the exact odds, in words.

    The odds are those of one report. They are computed from the plan's integers, and are only
    rounded to be shown; of tables and numbers in doubles.
    """
    match mechanism:
        case MeanMechanism():
            assert isinstance(domain, Numeric)
            return of_mean(domain, mechanism)
        case Waves():
            return of_ranges(mechanism)
        case SetBits() | SetSelection():
            assert isinstance(domain, SetOf | Ratings)
            return of_items(domain, mechanism)
        case PrefixHashing():
            return _word(mechanism)
        case RAPPOR():
            return _filter(mechanism)
        case DBitFlip():
            return _asked_bits(mechanism)
        case PolicyUnary() | PolicySubsets():
            found = revealing.chances(mechanism)
            return _by_value(
                domain.labels,
                [each.own for each in found],
                [each.other for each in found],
                [each.reveals for each in found],
            )
        case FrequencyOracle():
            return _oracle(domain.labels, mechanism)
    return _table(domain.labels, mechanism)


def _oracle(labels: Sequence[str], mechanism: FrequencyOracle) -> Odds:
    p, q = mechanism.support
    own, other = of_many(p, q)
    k = f"{len(labels):,}"
    if mechanism.named == (1, 1):
        sent = say("One of the {k} answers: your own, or another one drawn at random.", k=k)
        if len(labels) == 2:
            return Odds(sent, _yes_no(labels, p, q))
        also = "Your answer is also sent by {q} people who gave another one."
        return Odds(sent, (say("{p} people send their own answer.", p=own), say(also, q=other)))
    if mechanism.named is None:
        sent = say(
            "A number that names no answer. It fits {share} of all {k} answers, more or less.",
            share=other,
            k=k,
        )
        names = "The number that {p} people send fits their own answer."
        also = "It also fits your answer for {q} people who gave another one."
    else:
        least, most = mechanism.named
        sent = (
            say("A list of {n} of the {k} answers: chance decides which.", n=most, k=k)
            if least == most
            else say(
                "A list that may name several of the {k} answers, or none: chance decides which.",
                k=k,
            )
        )
        names = "The list of {p} people has their own answer on it."
        also = "It also has your answer on it for {q} people who gave another one."
    return Odds(sent, (say(names, p=own), say(also, q=other)))


def _yes_no(labels: Sequence[str], p: Fraction, q: Fraction) -> tuple[Markup, ...]:
    a, b = map(name, labels[::-1])  # "yes" mostly stands last
    many = people(p, q)
    return (
        say("Of {n} people who say {a}, {p} send {a}.", n=f"{many:,}", a=a, p=counted(p, many)),
        say("Of {n} who say {b}, {q} send {a} too.", n=f"{many:,}", a=a, b=b, q=counted(q, many)),
    )


def _table(labels: Sequence[str], mechanism: Mechanism) -> Odds:
    """Say the odds of a mechanism by value, from its channel in doubles."""
    k = len(labels)
    matrix = mechanism.matrix() if k * mechanism.tally_size <= _CELLS else None
    if matrix is None:
        return Odds(
            say("A code that was drawn at random; your answer changes its chances.", k=k),
            (_bounded(labels, mechanism),),
        )
    likely = matrix >= matrix.max(axis=0) * (1 - 1e-9)  # the values that each code speaks for
    own = (matrix * likely).sum(axis=1)
    spoken = matrix @ likely.T.astype(float)  # [w, v]: how often w's code speaks for v
    np.fill_diagonal(spoken, -1)
    other: NDArray[np.float64] = spoken.max(axis=0)
    alone = (matrix > 0).sum(axis=0) == 1
    reveals = (matrix * (alone & (matrix > 0))).sum(axis=1)
    return _by_value(labels, own.tolist(), other.tolist(), reveals.tolist())


def _by_value(
    labels: Sequence[str],
    own: Sequence[Fraction | float],
    other: Sequence[Fraction | float],
    reveals: Sequence[Fraction | float],
) -> Odds:
    """Say odds that differ from value to value, as the operator declared how each is protected."""
    if len(labels) == 2:
        for proven in (0, 1):
            hidden = 1 - proven
            whole = min(own[hidden], 1 - other[proven], 1 - own[proven] + reveals[proven])
            if whole >= 1 - 2 * EDGE and EDGE < reveals[proven] < 1 - EDGE:
                return _proof(labels[proven], labels[hidden], reveals[proven])
    sent = say(
        "A code that was drawn at random and speaks for some of the {k} answers more than for "
        "others. How often depends on the answer.",
        k=len(labels),
    )
    kinds: dict[tuple[str, ...], list[str]] = {}
    for label, *chances in zip(labels, own, other, reveals, strict=True):
        p, q, r = chances
        many = people(p, q)
        said = (f"{counted(p, many)} of {many:,}", f"{counted(q, many)} of {many:,}")
        kinds.setdefault((*said, *of_many(r)), []).append(label)
    lines = []
    for (p_, q_, r_), values in kinds.items():
        listed = Markup(", ").join(name(value) for value in values[:LISTED])
        if len(values) > LISTED:
            listed += f" and {len(values) - LISTED} more"
        said_of = []
        if p_ != r_ or not q_.startswith("none"):
            most = "" if len(labels) == 2 else " at most"
            words = "{p} people whose answer it is send a code that speaks for it; so do {q}{most} "
            said_of.append(say(words + "whose answer is another one.", p=p_, q=q_, most=most))
        if not r_.startswith("none"):
            words = "{r} people whose answer it is send a code that nobody else sends, which "
            said_of.append(say(words + "reveals their answer.", r=r_))
        lines.append(Markup("{}: {}").format(listed, Markup(" And ").join(said_of)))
    return Odds(sent, tuple(lines))


def _proof(proven: str, hidden: str, chance: Fraction | float) -> Odds:
    """Say the odds where codes speak for one of two answers only by proving it."""
    a, b = name(proven), name(hidden)
    many = people(chance)
    sent = say(
        "A code that was drawn at random. Some codes are sent by people who say {a} alone, the "
        "others by everybody.",
        a=a,
    )
    line = say(
        "Of {n} people who say {a}, {r} send a report that proves it. The other {rest} send "
        "what people who say {b} send, too.",
        n=f"{many:,}",
        a=a,
        b=b,
        r=counted(chance, many),
        rest=f"{many - round(chance * many):,}",
    )
    return Odds(sent, (line,))


def _word(mechanism: PrefixHashing) -> Odds:
    p, q = of_many(*mechanism.support)
    return Odds(
        say(
            "How many letters of your word it is about, a random number, and one of {n} boxes. By "
            "that number all beginnings of words are spread over the boxes.",
            n=mechanism.buckets,
        ),
        (
            say("{p} people send the box that their word is in.", p=p),
            say("That box is also the one of {q} other words.", q=q),
        ),
    )


def _filter(mechanism: RAPPOR) -> Odds:
    p, q = of_many(*mechanism.support)
    return Odds(
        say(
            "A row of {n} bits. Your word stands for {h} of them.",
            n=mechanism.bits,
            h=mechanism.hashes,
        ),
        (
            say("A bit that your word stands for is sent as 1 by {p} people.", p=p),
            say("Any other bit is sent as 1 by {q} people.", q=q),
        ),
    )


def _asked_bits(mechanism: DBitFlip) -> Odds:
    true = 1 - Fraction(mechanism.flip, ONE)
    return Odds(
        say(
            "A yes or no about each of {d} of the {k} answers, which your device draws once.",
            d=mechanism.d,
            k=f"{mechanism.k:,}",
        ),
        (
            say(
                "Each yes or no is true for {p} people, and the opposite for the others.",
                p=of_many(true)[0],
            ),
        ),
    )


def _bounded(labels: Sequence[str], mechanism: Mechanism) -> Markup:
    """Say how much a code may tell: a bound where there is one, or what it may prove."""
    if mechanism.guarantee == "pure":
        return say(
            "A code is at most {f} times as likely for one answer as for another.",
            f=factor(mechanism.realised_epsilon),
        )
    ordinary: Sequence[str] = ()
    if isinstance(mechanism, PolicyMechanism):
        promise = mechanism.promise
        ordinary = [
            label
            for label, own in zip(labels, promise.classes, strict=True)
            if own in promise.ordinary
        ]
    if ordinary:
        return say("A report may prove that you answered {listed}.", listed=listed(ordinary))
    return say("A report may prove that you did not give some of the answers.")
