"""Which jobs a page of the job list holds: filters, orders, and the token of the next page.

A token is the place of the page's last job in the order, so it stays valid when that job is forgotten. In an
order by a quantity that changes (such as waiting time) a job may appear on two pages or on none.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest

import msgspec

from schemas.ids import JobId
from schemas.questions import JOBS_PER_PAGE, ListJobs
from schemas.views import JobSorting
from shared.domain.ledger.records import JobRecord
from shared.domain.states import JobState

Place = tuple[float, float, JobId]
"""sort key of a job; a page lists ascending keys"""


class InvalidPage(ValueError):
    """The question asks for no page: its token or one of its states is invalid."""


def page_of(question: ListJobs, jobs: Iterable[JobRecord], now: float) -> tuple[list[JobRecord], str | None]:
    """The jobs of a page, and the token of the next page; None: this is the last. Raises InvalidPage."""
    for state in question.states:
        if state not in list(JobState):
            raise InvalidPage(f"state: {state} is none of {', '.join(JobState)}")

    def place(job: JobRecord) -> Place:
        return PLACES[question.sort](job, now)

    after = None if question.after is None else _place(question.after, question.sort)
    limit = min(max(question.limit, 1), JOBS_PER_PAGE)
    wanted = (job for job in jobs if _is_wanted(job, question) and (after is None or place(job) > after))
    found = nsmallest(limit + 1, wanted, key=place)
    more = len(found) > limit
    return found[:limit], _token(question.sort, place(found[limit - 1])) if more else None


def _is_wanted(job: JobRecord, question: ListJobs) -> bool:
    return (
        (not question.states or job.state.value in question.states)
        and question.project in (None, job.spec.project)
        and question.user in (None, job.spec.user)
    )


def _newest(first: Callable[[JobRecord, float], float]) -> Callable[[JobRecord, float], Place]:
    """Order by a quantity, ascending; where it is equal, the newest submission comes first."""
    return lambda job, now: (first(job, now), -job.submitted_at, job.job_id)


def _latest(at: float | None) -> float:
    """A key that puts later times first and None last.

    Finite, since a token is JSON, which has no infinity.
    """
    return 0.0 if at is None else -1.0 - max(at, 0.0)


PLACES: Mapping[JobSorting, Callable[[JobRecord, float], Place]] = {
    JobSorting.SUBMITTED: lambda job, _: (0.0, job.submitted_at, job.job_id),
    JobSorting.NEWEST: _newest(lambda _, __: 0.0),
    JobSorting.ACTIVE: _newest(lambda job, _: float(job.ended)),
    JobSorting.STARTED: _newest(lambda job, _: _latest(job.started_at)),
    JobSorting.ENDED: _newest(lambda job, _: _latest(job.ended_at)),
    JobSorting.WAITED: _newest(lambda job, now: -job.wait_s(now)),
}


def _token(sort: JobSorting, place: Place) -> str:
    return msgspec.json.encode((sort, place)).decode()


def _place(token: str, sort: JobSorting) -> Place:
    """The place that a token holds. Raises InvalidPage."""
    try:
        made_for, place = msgspec.json.decode(token.encode(), type=tuple[JobSorting, Place])
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidPage("this is no page token; give `next` of the page before") from None
    if made_for is not sort:
        raise InvalidPage(f"this token is of a page in the order {made_for}")
    return place
