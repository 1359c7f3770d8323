"""What a mechanism sends, and how often it is true, in words for the person who is asked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from hearsay.plans.domains import Domain, Grid, Numeric, Ratings, SetOf, Strings
from hearsay_server.pages.words import shown
from hearsay_server.surveys import revealing
from ldp import Mechanism, PrefixHashing, SetBits, SetSelection
from ldp.core.exact import ONE
from ldp.core.mechanism import FrequencyOracle
from ldp.mechanisms import (
    HRR,
    KRR,
    LOLOHA,
    RAPPOR,
    CountMeanSketch,
    DBitFlip,
    HadamardCountMeanSketch,
    HadamardResponse,
    KRRChain,
    LocalHashing,
    PolicyMeanTable,
    PolicyMechanism,
    PolicySubsets,
    PolicyUnary,
    ProjectiveGeometry,
    Waves,
)
from ldp.mechanisms.numbers.mean import MeanMechanism

_LISTED = 8
"""The most values that have odds of their own: the rest are told in one sentence."""

_CELLS = 1 << 18
"""The most entries of a channel that is looked at value by value."""

_MOST_PEOPLE = 10**6
"""The most people of whom a chance speaks."""

_EDGE = 1e-12
"""A chance in doubles that is this small is none."""

_HASHED = (
    LocalHashing,
    LOLOHA,
    HRR,
    HadamardResponse,
    ProjectiveGeometry,
    CountMeanSketch,
    HadamardCountMeanSketch,
)
"""Mechanisms whose code names no value, but fits some of them."""


@dataclass(frozen=True)
class Odds:
    """What leaves for one question at one level: `sent` says what it is, `lines` how true it is.

    The texts are safe HTML: values that an operator wrote are escaped and isolated in them.
    """

    sent: Markup
    lines: tuple[Markup, ...]


def of_many(*chances: Fraction | float) -> tuple[str, ...]:
    """Return chances as so many of 100 people, or of the power of ten that tells them apart.

    Chances in doubles that are within 10**-12 of 0 or 1 count as these.
    """
    many = people(*chances)
    return tuple(f"{_counted(chance, many)} of {many:,}" for chance in chances)


def people(*chances: Fraction | float) -> int:
    """Return of how many people to speak: 100, or the power of ten that tells the chances apart,
    and from none and all."""
    many = 100
    while many < _MOST_PEOPLE and not _are_apart(chances, many):
        many *= 10
    return many


def _are_apart(chances: Sequence[Fraction | float], many: int) -> bool:
    edges = [chance for chance in chances if _EDGE < chance < 1 - _EDGE]
    rounded = [round(chance * many) for chance in edges]
    return len({*rounded}) == len({*edges}) and not {0, many} & {*rounded}


def _counted(chance: Fraction | float, many: int) -> str:
    if chance <= _EDGE:
        return "none"
    return "all" if chance >= 1 - _EDGE else f"{round(chance * many):,}"


def factor(epsilon: float) -> str:
    """Return e**epsilon, rounded up: the most that a report changes anybody's odds by."""
    odds = math.exp(epsilon)
    step = 10.0 ** (math.floor(math.log10(odds)) - 1)
    up = math.ceil(odds / step * (1 - 1e-12)) * step
    return f"{up:,.0f}" if up >= 10 else f"{up:.1f}"


def odds(domain: Domain | Grid, mechanism: Mechanism) -> Odds:
    """Return what a mechanism sends for a question, and the exact odds, in words.

    The odds are those of one report. They are computed from the plan's integers, and are only
    rounded to be shown; of tables and numbers in doubles.
    """
    match mechanism:
        case MeanMechanism():
            assert isinstance(domain, Numeric)
            return _number(domain, mechanism)
        case Waves():
            return _waves(mechanism)
        case SetBits():
            return _one_item(domain, mechanism)
        case SetSelection():
            return _some_items(domain, mechanism)
        case PrefixHashing():
            return _word(mechanism)
        case RAPPOR():
            return _filter(mechanism)
        case DBitFlip():
            return _asked_bits(mechanism)
        case PolicyUnary() | PolicySubsets():
            found = revealing.chances(mechanism)
            return _by_value(
                _labels(domain),
                [each.own for each in found],
                [each.other for each in found],
                [each.reveals for each in found],
            )
        case FrequencyOracle() if not isinstance(mechanism, PolicyMechanism):
            return _oracle(_labels(domain), mechanism)
    return _table(_labels(domain), mechanism)


def _labels(domain: Domain | Grid) -> Sequence[str]:
    assert not isinstance(domain, Strings)
    return domain.labels


def _name(value: str) -> Markup:
    return Markup("<bdi>{}</bdi>").format(shown(value))


def _say(words: str, **values: object) -> Markup:
    return Markup(words).format(**values)


def _oracle(labels: Sequence[str], mechanism: FrequencyOracle) -> Odds:
    p, q = mechanism.support
    own, other = of_many(p, q)
    k = f"{len(labels):,}"
    if isinstance(mechanism, KRR | KRRChain):
        sent = _say("One of the {k} answers: your own, or another one drawn at random.", k=k)
        if len(labels) == 2:
            return Odds(sent, _yes_no(labels, p, q))
        also = "Your answer is also sent by {q} people who gave another one."
        return Odds(sent, (_say("{p} people send their own answer.", p=own), _say(also, q=other)))
    if isinstance(mechanism, _HASHED):
        sent = _say(
            "A number that names no answer. It fits {share} of all {k} answers, more or less.",
            share=other,
            k=k,
        )
        names = "The number that {p} people send fits their own answer."
        also = "It also fits your answer for {q} people who gave another one."
    else:
        sent = _say(
            "A list that may name several of the {k} answers, or none: chance decides which.",
            k=k,
        )
        names = "The list of {p} people has their own answer on it."
        also = "It also has your answer on it for {q} people who gave another one."
    return Odds(sent, (_say(names, p=own), _say(also, q=other)))


def _yes_no(labels: Sequence[str], p: Fraction, q: Fraction) -> tuple[Markup, ...]:
    a, b = map(_name, labels[::-1])  # "yes" mostly stands last
    many = people(p, q)
    return (
        _say("Of {n} people who say {a}, {p} send {a}.", n=f"{many:,}", a=a, p=_counted(p, many)),
        _say("Of {n} who say {b}, {q} send {a} too.", n=f"{many:,}", a=a, b=b, q=_counted(q, many)),
    )


def _table(labels: Sequence[str], mechanism: Mechanism) -> Odds:
    """Say the odds of a mechanism by value, from its channel in doubles."""
    k = len(labels)
    matrix = mechanism.matrix() if k * mechanism.tally_size <= _CELLS else None
    if matrix is None:
        return Odds(
            _say("A code that was drawn at random; your answer changes its chances.", k=k),
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
            if whole >= 1 - 2 * _EDGE and _EDGE < reveals[proven] < 1 - _EDGE:
                return _proof(labels[proven], labels[hidden], reveals[proven])
    sent = _say(
        "A code that was drawn at random and speaks for some of the {k} answers more than for "
        "others. How often depends on the answer.",
        k=len(labels),
    )
    kinds: dict[tuple[str, ...], list[str]] = {}
    for label, *chances in zip(labels, own, other, reveals, strict=True):
        p, q, r = chances
        many = people(p, q)
        said = (f"{_counted(p, many)} of {many:,}", f"{_counted(q, many)} of {many:,}")
        kinds.setdefault((*said, *of_many(r)), []).append(label)
    lines = []
    for (p_, q_, r_), values in kinds.items():
        listed = Markup(", ").join(_name(value) for value in values[:_LISTED])
        if len(values) > _LISTED:
            listed += f" and {len(values) - _LISTED} more"
        said_of = []
        if p_ != r_ or not q_.startswith("none"):
            most = "" if len(labels) == 2 else " at most"
            words = "{p} people whose answer it is send a code that speaks for it; so do {q}{most} "
            said_of.append(_say(words + "whose answer is another one.", p=p_, q=q_, most=most))
        if not r_.startswith("none"):
            words = "{r} people whose answer it is send a code that nobody else sends, which "
            said_of.append(_say(words + "reveals their answer.", r=r_))
        lines.append(Markup("{}: {}").format(listed, Markup(" And ").join(said_of)))
    return Odds(sent, tuple(lines))


def _proof(proven: str, hidden: str, chance: Fraction | float) -> Odds:
    """Say the odds where codes speak for one of two answers only by proving it."""
    a, b = _name(proven), _name(hidden)
    many = people(chance)
    sent = _say(
        "A code that was drawn at random. Some codes are sent by people who say {a} alone, the "
        "others by everybody.",
        a=a,
    )
    line = _say(
        "Of {n} people who say {a}, {r} send a report that proves it. The other {rest} send "
        "what people who say {b} send, too.",
        n=f"{many:,}",
        a=a,
        b=b,
        r=_counted(chance, many),
        rest=f"{many - round(chance * many):,}",
    )
    return Odds(sent, (line,))


def _number(domain: Numeric, mechanism: MeanMechanism) -> Odds:
    scores = [float(score) for score in mechanism.scores]
    half = (domain.high - domain.low) / 2
    middle = domain.low + half
    least, most = (middle + half * edge for edge in (min(scores), max(scores)))
    typical = half * math.sqrt(mechanism.largest_report_variance)
    matrix = mechanism.matrix()
    assert matrix is not None  # of every mechanism of numbers
    above = (matrix[[0, -1]] * (np.array(scores) > 0)).sum(axis=1)
    many = people(float(above[0]), float(above[1]))
    sent = _say(
        "One of {m} codes, each of which counts as a number: the least as {least}, the greatest as "
        "{most}, also where no answer can be so low or so high.",
        m=f"{mechanism.codes:,}",
        least=_figure(least, typical),
        most=_figure(most, typical),
    )
    return Odds(
        sent,
        (
            _say(
                "Of {n} people at {high}, {p} send a code that counts as more than {middle}; of "
                "{n} at {low}, {q} do so too.",
                n=f"{many:,}",
                high=_plain(domain.high),
                low=_plain(domain.low),
                middle=_plain(middle),
                p=_counted(float(above[1]), many),
                q=_counted(float(above[0]), many),
            ),
            _say(
                "One report is wrong by about {error} or less, the average of 1,000 reports by "
                "about {mean}.",
                error=_figure(typical, typical),
                mean=_figure(typical / math.sqrt(1000), typical / math.sqrt(1000)),
            ),
            *_outside(domain, mechanism),
        ),
    )


def _outside(domain: Numeric, mechanism: MeanMechanism) -> list[Markup]:
    """Say how often a code tells that a number is in none of the protected regions: of each other
    range for the number for which it does so most often."""
    if not isinstance(mechanism, PolicyMeanTable) or not domain.sensitive:
        return []
    chances = (mechanism.matrix() * revealing.telling(mechanism)).sum(axis=1)
    points = np.linspace(domain.low, domain.high, len(chances))
    lines = []
    for low, high in domain.ordinary_ranges:
        within = np.flatnonzero((points >= low) & (points <= high))
        if not within.size:
            continue
        most = int(within[chances[within] >= chances[within].max() - 1e-9][0])
        share = float(chances[most])
        many = people(share)
        lines.append(
            _say(
                "Of {n} people at {x}, {p} send a code that tells that their number is not in "
                "{regions}: it is more than {f} times as likely for them as for anybody there.",
                n=f"{many:,}",
                x=_plain(float(points[most])),
                p=_counted(share, many),
                regions=regions(domain),
                f=factor(mechanism.epsilon),
            )
        )
    return lines


def regions(domain: Numeric) -> str:
    """Return the regions of a number that are protected, in words."""
    return " or ".join(f"{_plain(low)} to {_plain(high)}" for low, high in domain.sensitive)


def _waves(mechanism: Waves) -> Odds:
    own, other, size = Fraction(0), Fraction(0), Fraction(0)
    for chance, include, bins in zip(
        mechanism.chances, mechanism.include, pattern_sizes(mechanism), strict=True
    ):
        share, p = Fraction(chance, ONE), Fraction(include, ONE)
        own += share * p
        other += share * (bins - p) / (mechanism.k - 1)
        size += share * bins
    mine, others = of_many(own, other)
    return Odds(
        _say(
            "Some of the {k} ranges, {n} on average, drawn at random so that your own is likelier "
            "to be among them.",
            k=mechanism.k,
            n=round(float(size)),
        ),
        (
            _say("{p} people send ranges with their own among them.", p=mine),
            _say(
                "Yours is also among those of {q} people whose answer is in another range, on "
                "average over the ranges.",
                q=others,
            ),
        ),
    )


def pattern_sizes(mechanism: Waves) -> list[int]:
    """Return how many bins each pattern has."""
    words = -(-mechanism.k // 64)
    counts = [mask.bit_count() for mask in mechanism.masks]
    return [sum(counts[at : at + words]) for at in range(0, len(counts), words)]


def _one_item(domain: Domain | Grid, mechanism: SetBits) -> Odds:
    true = 1 - Fraction(mechanism.flip, ONE)
    what = _item_words(domain)
    return Odds(
        _say(
            "A yes or no about one {what} of {n}, which is drawn at random for each report. The "
            "report says nothing of the others.",
            what=what,
            n=f"{mechanism.items:,}",
        ),
        (
            *_rounded(domain),
            _say("{p} people send what is true; the others send the opposite.", p=of_many(true)[0]),
            *_cut(domain),
        ),
    )


def _some_items(domain: Domain | Grid, mechanism: SetSelection) -> Odds:
    p, q = of_many(*mechanism.support)
    what = _item_words(domain)
    return Odds(
        _say(
            "{size} of the {n} {what}s and blanks, drawn at random so that yours are likelier "
            "to be among them.",
            size=mechanism.size,
            n=f"{mechanism.tally_size:,}",
            what=what,
        ),
        (
            *_rounded(domain),
            _say(
                "Of people whose rating of {key} became high, {p} send that it is high.",
                key=_name(domain.keys[0]),
                p=p,
            )
            if isinstance(domain, Ratings)
            else _say("Of people who have a certain {what}, {p} send it.", what=what, p=p),
            _say("Of people without it, {q} send it too.", q=q),
            *_cut(domain),
        ),
    )


def _rounded(domain: Domain | Grid) -> list[Markup]:
    """Say of ratings that each is first rounded to an end of the scale."""
    if not isinstance(domain, Ratings):
        return []
    return [
        _say(
            "Your rating is first rounded to high or low at random: of 100 who rate {middle} of "
            "{low} to {high}, 50 become high.",
            middle=_plain((domain.low + domain.high) / 2),
            low=_plain(domain.low),
            high=_plain(domain.high),
        )
    ]


def _cut(domain: Domain | Grid) -> list[Markup]:
    """Say of sets and ratings that are cut that the odds are those of what is kept."""
    assert isinstance(domain, SetOf | Ratings)
    if not domain.clamp or domain.most == len(domain.labels):
        return []
    return [
        _say(
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


def _word(mechanism: PrefixHashing) -> Odds:
    p, q = of_many(*mechanism.support)
    return Odds(
        _say(
            "How many letters of your word it is about, a random number, and one of {n} boxes. By "
            "that number all beginnings of words are spread over the boxes.",
            n=mechanism.buckets,
        ),
        (
            _say("{p} people send the box that their word is in.", p=p),
            _say("That box is also the one of {q} other words.", q=q),
        ),
    )


def _filter(mechanism: RAPPOR) -> Odds:
    p, q = of_many(*mechanism.support)
    return Odds(
        _say(
            "A row of {n} bits. Your word stands for {h} of them.",
            n=mechanism.bits,
            h=mechanism.hashes,
        ),
        (
            _say("A bit that your word stands for is sent as 1 by {p} people.", p=p),
            _say("Any other bit is sent as 1 by {q} people.", q=q),
        ),
    )


def _asked_bits(mechanism: DBitFlip) -> Odds:
    true = 1 - Fraction(mechanism.flip, ONE)
    return Odds(
        _say(
            "A yes or no about each of {d} of the {k} answers, which your device draws once.",
            d=mechanism.d,
            k=f"{mechanism.k:,}",
        ),
        (
            _say(
                "Each yes or no is true for {p} people, and the opposite for the others.",
                p=of_many(true)[0],
            ),
        ),
    )


def _bounded(labels: Sequence[str], mechanism: Mechanism) -> Markup:
    """Say how much a code may tell: a bound where there is one, or what it may prove."""
    if mechanism.guarantee == "pure":
        return _say(
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
        return _say("A report may prove that you answered {listed}.", listed=_listed(ordinary))
    return _say("A report may prove that you did not give some of the answers.")


def _listed(values: Sequence[str], last: str = "or") -> Markup:
    """Return some values in words; of many the first ones and how many more there are."""
    names = [_name(value) for value in values[:_LISTED]]
    if more := len(values) - len(names):
        return Markup(", ").join(names) + f" {last} {more:,} more"
    head = Markup(", ").join(names[:-1])
    return Markup("{} {} {}").format(head, last, names[-1]) if head else names[-1]


def _plain(number: float) -> str:
    return f"{number:,.6g}"


def _figure(number: float, error: float) -> str:
    """Return a number with two digits of what is said to be wrong about it."""
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 0
    return f"{number:,.{min(digits, 6)}f}"
