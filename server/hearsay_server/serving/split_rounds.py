"""The sum of a round whose updates are split: made once, with the helper, of a set both have."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hearsay.federated import splitting
from hearsay.sealed import hpke, shares
from hearsay.v1 import collector_pb2
from hearsay_server.serving.helping import KEPT, Helping, Part, handed_over_at_once, own_seed
from hearsay_server.storage import rounds, sums
from hearsay_server.storage.database import Database
from ldp.errors import InvalidInput, NotReady
from ldp.two_servers.shares import sum_seeds


class SplitRounds:
    """Sums closed rounds with a helper.

    The set is claimed, durably, before the helper is asked for its sum. So a process that is killed
    asks for the same set again, and gets the same sum: a round never has two.
    """

    def __init__(self, database: Database, helper: Helping | None) -> None:
        self._database = database
        self._helper = helper

    def total(self, work: rounds.Work, go_on: Callable[[], None]) -> NDArray[np.float64] | None:
        """Return the sum of a closed round's updates with its noise, shape (dimension,); None where
        fewer than `min_updates` can be summed: others are damaged, or the helper refuses them.

        `go_on` is called between steps, and ends the work by what it raises. Raises `NotReady`
        where the helper does not take shares yet, or has lost some of a set that is claimed, and
        `Unreachable`; `InvalidInput` where the server has no helper.
        """
        if self._helper is None:
            raise InvalidInput(
                "updates are split between two servers, and this one has no helper: start it with "
                "--helper"
            )
        training = work.training
        part = Part(training.splitting, round=work.round)
        claimed = self._claimed(part)
        if claimed is None:
            seeds = self._agreed(self._helper, work, part, go_on)
            if len(seeds) < training.min_updates:
                return None
            own = sum_seeds(seeds.values(), part.by.dim, part.by.bits).tobytes()
            sums.claim_round(self._database, training.name, part.bound, list(seeds), own)
            claimed = self._claimed(part)
            assert claimed is not None
        go_on()
        total = self._helper.total(part, claimed.ids, claimed.own)
        return splitting.decode_sum(training, total)

    def _claimed(self, part: Part) -> sums.Claimed | None:
        found = sums.claimed(self._database, part.by.name)
        return next((each for each in found if each.period == part.bound), None)

    def _agreed(
        self, helper: Helping, work: rounds.Work, part: Part, go_on: Callable[[], None]
    ) -> dict[bytes, bytes]:
        """Hand the helper its shares; return ours, by id, of the updates that both can sum."""
        assert work.seed is not None
        training, private = work.training, hpke.private_key(work.seed)
        seeds: dict[bytes, bytes] = {}
        waiting: list[tuple[bytes, bytes]] = []
        most = handed_over_at_once(part.by)

        def hand_over() -> None:
            go_on()
            for id_, found in helper.take(part, waiting):
                if found.status == collector_pb2.Result.RETRY:
                    raise NotReady(f"the helper does not take shares yet: {found.detail}")
                if found.status not in KEPT:
                    del seeds[id_]
            waiting.clear()

        for id_ in rounds.ids(self._database, training, work.round):
            code = rounds.payload(self._database, training.name, work.round, id_)
            seed = own_seed(part, id_, code, private)
            if seed is not None:
                seeds[id_] = seed
                waiting.append((id_, code[shares.LEADER_BYTES :]))
            if len(waiting) == most:
                hand_over()
        if waiting:
            hand_over()
        both = helper.agree(part, list(seeds))
        return {id_: seed for id_, seed in seeds.items() if id_ in both}
