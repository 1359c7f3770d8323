"""An analyst's questions about words: which are frequent, and how frequent listed ones are."""

from collections.abc import Sequence
from typing import Unpack

from hearsay.asking.answer import Answer
from hearsay.asking.selection import LONG, Selection, fields, warned
from hearsay.checking.calls import AnalystCalls
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput


class Words:
    """The questions of `Analyst` that are about attributes of strings."""

    _calls: AnalystCalls

    def heavy_hitters(
        self,
        survey: str,
        attribute: str,
        *,
        top: int = 20,
        confidence: float = 0.95,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return the frequent words that are found, the largest shares first: a row per word. Where
        the survey lists words, they are of its list, since its reports tell of no others.

        There are `top` rows at most. Columns: estimate, standard_error, low and high, of the share
        of people. With the probability `confidence` no word is found that nobody has, in the whole
        answer. `figures["findable"]` is the smallest share that a word of 1, 2, ... letters has
        to have to be found every second time: rarer words are missing. Where more than `top`
        words were found, the intervals hold for all of them at once
        (`Answer.simultaneous`). The server reads all the reports: that takes time. Ask
        about several periods to find more.
        """
        if top < 1:
            raise InvalidInput(f"top must be >= 1, got {top}")
        request = analyst_pb2.WordsRequest(
            survey=survey,
            attribute=attribute,
            discover=True,
            top=top,
            confidence=confidence,
            **fields(selection, Selection),
        )
        return self._words(request)

    def frequencies_of(
        self,
        survey: str,
        attribute: str,
        words: Sequence[str] = (),
        *,
        confidence: float = 0.95,
        **selection: Unpack[Selection],
    ) -> Answer:
        """Return the share of people who have each of some words: a row per word.

        Without `words` those that the survey lists. Columns are those of `heavy_hitters`, and so is
        the time. A word that no report tells of has the estimate nan and the interval [0, 1].
        Raises `InvalidInput` for a word that the survey's alphabet cannot write.
        """
        if isinstance(words, str):
            raise InvalidInput(f"words must be a list of words, got {words!r}")
        request = analyst_pb2.WordsRequest(
            survey=survey,
            attribute=attribute,
            candidates=words,
            confidence=confidence,
            **fields(selection, Selection),
        )
        return self._words(request)

    def _words(self, request: analyst_pb2.WordsRequest) -> Answer:
        return warned(self._calls.ask("Answers/Words", request, LONG))
