"""What is sent of a number, and how often it is true."""

import math
from fractions import Fraction

import numpy as np
from markupsafe import Markup

from hearsay.plans.kinds import Numeric
from hearsay_server.pages.person.chances import counted, factor, of_many, people
from hearsay_server.pages.person.sentences import Odds, figure, plain, say
from hearsay_server.surveys import revealing
from hearsay_server.surveys.readings import regions
from ldp import Waves
from ldp.core.exact import ONE
from ldp.mechanisms import PolicyMeanTable
from ldp.mechanisms.numbers.mean import MeanMechanism


def of_mean(domain: Numeric, mechanism: MeanMechanism) -> Odds:
    """Return the odds of reports that count as numbers."""
    scores = [float(score) for score in mechanism.scores]
    half = (domain.high - domain.low) / 2
    middle = domain.low + half
    least, most = (middle + half * edge for edge in (min(scores), max(scores)))
    typical = half * math.sqrt(mechanism.largest_report_variance)
    matrix = mechanism.matrix()
    assert matrix is not None  # of every mechanism of numbers
    above = (matrix[[0, -1]] * (np.array(scores) > 0)).sum(axis=1)
    many = people(float(above[0]), float(above[1]))
    sent = say(
        "One of {m} codes, each of which counts as a number: the least as {least}, the greatest as "
        "{most}, also where no answer can be so low or so high.",
        m=f"{mechanism.codes:,}",
        least=figure(least, typical),
        most=figure(most, typical),
    )
    return Odds(
        sent,
        (
            say(
                "Of {n} people at {high}, {p} send a code that counts as more than {middle}; of "
                "{n} at {low}, {q} do so too.",
                n=f"{many:,}",
                high=plain(domain.high),
                low=plain(domain.low),
                middle=plain(middle),
                p=counted(float(above[1]), many),
                q=counted(float(above[0]), many),
            ),
            say(
                "One report is wrong by about {error} or less, the average of 1,000 reports by "
                "about {mean}.",
                error=figure(typical, typical),
                mean=figure(typical / math.sqrt(1000), typical / math.sqrt(1000)),
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
            say(
                "Of {n} people at {x}, {p} send a code that tells that their number is not in "
                "{regions}: it is more than {f} times as likely for them as for anybody there.",
                n=f"{many:,}",
                x=plain(float(points[most])),
                p=counted(share, many),
                regions=regions(domain),
                f=factor(mechanism.epsilon),
            )
        )
    return lines


def of_ranges(mechanism: Waves) -> Odds:
    """Return the odds of reports that name bins of a number."""
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
        say(
            "Some of the {k} ranges, {n} on average, drawn at random so that your own is likelier "
            "to be among them.",
            k=mechanism.k,
            n=round(float(size)),
        ),
        (
            say("{p} people send ranges with their own among them.", p=mine),
            say(
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
