"""Which jobs a page holds: filters, orders, and the token of where the next page begins.

A token holds the place of the last job in the order, not the job, so it outlives that job. In orders that
jobs move in while they run, a job may be met twice or not at all between two pages.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest

import msgspec

from schemas.ids import JobId
from schemas.questions import ListJobs
from schemas.views import JobOrder
from shared.domain.ledger.records import JobRecord
from shared.domain.states import JobState

PAGE_AT_MOST = 500
"""jobs"""

Place = tuple[float, float, JobId]
"""of a job in an order: ascending"""


class InvalidPage(ValueError):
    """There is no such page."""


def page_of(question: ListJobs, jobs: Iterable[JobRecord], now: float) -> tuple[list[JobRecord], str | None]:
    """The jobs, and the token of the next page if there is one. Raises InvalidPage."""
    for state in question.states:
        if state not in list(JobState):
            raise InvalidPage(f"state: {state} is none of {', '.join(JobState)}")

    def place(job: JobRecord) -> Place:
        return PLACES[question.order](job, now)

    after = None if question.after is None else _place(question.after, question.order)
    limit = min(max(question.limit, 1), PAGE_AT_MOST)
    wanted = (job for job in jobs if _is_wanted(job, question) and (after is None or place(job) > after))
    found = nsmallest(limit + 1, wanted, key=place)
    more = len(found) > limit
    return found[:limit], _token(question.order, place(found[limit - 1])) if more else None


def _is_wanted(job: JobRecord, question: ListJobs) -> bool:
    return (
        (not question.states or job.state.value in question.states)
        and question.project in (None, job.spec.project)
        and question.user in (None, job.spec.user)
    )


def _newest(first: Callable[[JobRecord, float], float]) -> Callable[[JobRecord, float], Place]:
    """By a quantity, ascending, then by submission, newest first."""
    return lambda job, now: (first(job, now), -job.submitted_at, job.job_id)


def _latest(at: float | None) -> float:
    """Never is after everything; JSON has no infinity."""
    return 0.0 if at is None else -1.0 - max(at, 0.0)


PLACES: Mapping[JobOrder, Callable[[JobRecord, float], Place]] = {
    JobOrder.SUBMITTED: lambda job, _: (0.0, job.submitted_at, job.job_id),
    JobOrder.NEWEST: _newest(lambda _, __: 0.0),
    JobOrder.ACTIVE: _newest(lambda job, _: float(job.ended)),
    JobOrder.STARTED: _newest(lambda job, _: _latest(job.started_at)),
    JobOrder.ENDED: _newest(lambda job, _: _latest(job.ended_at)),
    JobOrder.WAITED: _newest(lambda job, now: -job.wait_s(now)),
}


def _token(order: JobOrder, place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((order, place))).decode()


def _place(token: str, order: JobOrder) -> Place:
    """Raises InvalidPage."""
    try:
        data = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        made_for, place = msgspec.json.decode(data, type=tuple[JobOrder, Place])
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidPage("after: this is not a token of an earlier page") from None
    if made_for is not order:
        raise InvalidPage(f"after: this token is of a page in the order {made_for}")
    return place
