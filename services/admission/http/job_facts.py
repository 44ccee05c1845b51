"""Fetches the facts about one job from the places that the monitor names, without reading the stream."""

from typing import NamedTuple, Protocol

from schemas.ids import JobId
from schemas.questions import FactPlaces, FindFacts
from shared.runtime.bus.contract import Facts, Questions, Record, Unavailable


class FactsAndQuestions(Facts, Questions, Protocol):
    """The part of the bus that is needed."""


class Wanted(NamedTuple):
    job: str
    after: int
    """stream sequence after which facts are wanted"""
    last: int | None
    """the last sequence that is wanted; None: that of the newest fact"""
    newest: int | None = None
    """number of facts, the newest ones; None: all"""


class Fetched(NamedTuple):
    records: list[Record]
    after: int
    """sequence after which to read the stream for the facts that are missing"""


async def fetched(bus: FactsAndQuestions, wanted: Wanted, limit_real_s: float) -> Fetched:
    """The job's facts; none if the monitor is away or does not know enough of them.

    The stream then has to be read from `after` on, the latest sequence at which no fact is missed.
    """
    nothing = Fetched([], wanted.after)
    try:
        places = await bus.ask(FindFacts(job_id=JobId(wanted.job)), limit_real_s)
    except Unavailable:
        return nothing
    if not isinstance(places, FactPlaces):
        return nothing
    seqs = [seq for seq in places.seqs if wanted.after < seq <= (wanted.last or seq)]
    first, *newer = places.seqs
    enough = places.complete or wanted.after >= newer[0] - 1
    if wanted.newest is not None:
        enough = enough or wanted.newest < len(seqs)
        seqs = seqs[len(seqs) - min(wanted.newest, len(seqs)) :]
    if not enough:
        return nothing._replace(after=max(wanted.after, first - 1))
    return Fetched(await bus.fetch(seqs), max(wanted.after, places.last_seq))
