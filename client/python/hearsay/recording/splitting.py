"""Split an answer between two servers: where its noise is drawn, and its epsilon is spent."""

import os
from collections.abc import Mapping, Sequence

from hearsay.choices import Caps
from hearsay.plans.kinds import Value
from hearsay.recording.account import Account
from hearsay.recording.randomize import SPENT
from hearsay.recording.terms import Terms
from hearsay.sealed import shares
from hearsay.v1 import collector_pb2
from ldp import Coins
from ldp.two_servers.shares import split as split_shares


def split(
    report: collector_pb2.Batch,
    values: Mapping[str, Value | None],
    terms: Terms,
    account: Account,
    caps: Sequence[Caps],
    coins: Coins,
) -> tuple[list[str], dict[str, str]]:
    """Add the answers, split and sealed to the two servers of the plan, to a report as its column;
    and give the report the id that they are sealed with.

    `values` are as `randomize` takes them; an answer outside the domain counts as none. A record
    is all answers of one call: whoever answers again in the same period is dropped as "spent".
    Neither the record without its noise nor an unsealed share is kept. Returns the attributes that
    were taken and the reasons why others were left out.

    Guarantee: that of `Plan.two_servers`, of the sums; each share by itself is uniform. What leaves
    has the same size, and the account spends the same, whatever the values are.
    """
    two = shares.of(terms.plan)
    (name,) = terms.levels
    epsilon = terms.level.epsilon
    if not account.may_report(terms, name, epsilon, caps) or not account.allows(
        "calls", terms, name, epsilon, caps
    ):
        return [], dict.fromkeys(values, SPENT)
    # Where memos of other surveys have used up a cap for life, the record is empty.
    affordable = account.allows("life", terms, name, epsilon, caps)
    given = values if affordable else {}
    cells = two.layout.randomize(given, two.variance, coins)
    seed, rest = split_shares(cells, two.bits, coins)
    report.id = os.urandom(shares.ID_BYTES)  # never from seeded coins: no two simulations share ids
    account.report(
        name,
        epsilon,
        calls=epsilon,
        life=epsilon if affordable else 0.0,
        variation=None,
        delta=two.delta,
    )
    report.columns.add(
        attribute=name,
        level=terms.level.name,
        codes=shares.seal(shares.splitting(terms.plan), report.period, report.id, seed, rest),
    )
    return list(values), {}
