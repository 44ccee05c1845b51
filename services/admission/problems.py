"""Every refusal, in the form of RFC 9457: title, status, reason, and the wrong field if there is one."""

from schemas.ids import JobId
from schemas.views import Problem
from shared.domain.states import JobState

RETRY_AFTER_S = 2
"""real seconds, sent with 429 and 503"""


class Refusal(Exception):
    """Carries a problem from a handler to the response."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def invalid(field: str, reason: str) -> Problem:
    return Problem(title="Invalid", status=422, detail=reason, field=field)


def malformed(reason: str, field: str | None = None) -> Problem:
    return Problem(title="Malformed", status=400, detail=reason, field=field)


NEEDED = "a token is needed: set HOPYARD_API_TOKEN to it, or HOPYARD_API_TOKEN_FILE to a file that holds it"
WRONG = "this token is not valid here: it was revoked, has expired, or is of another stack"


def unauthorized(reason: str) -> Problem:
    return Problem(title="Unauthorized", status=401, detail=reason)


def forbidden(reason: str, field: str | None = None) -> Problem:
    return Problem(title="Forbidden", status=403, detail=reason, field=field)


def unknown(what: str) -> Problem:
    return Problem(title="Unknown", status=404, detail=f"there is no {what}")


def not_found(reason: str) -> Problem:
    return Problem(title="Unknown", status=404, detail=reason)


def conflict(reason: str) -> Problem:
    return Problem(title="Conflict", status=409, detail=reason)


def key_taken(key: str, job_id: JobId) -> Problem:
    reason = (
        f"{job_id}, a job that differs from this one, was submitted under the key {key}; choose another key"
    )
    return Problem(title="Another job", status=422, detail=reason)


def too_large(limit: int) -> Problem:
    return Problem(title="Too large", status=413, detail=f"the body is larger than {limit} bytes")


def too_slow(limit_s: float) -> Problem:
    return Problem(title="Too slow", status=408, detail=f"the body did not arrive within {limit_s:g} s")


def unsupported(kinds: str) -> Problem:
    return Problem(title="Unsupported", status=415, detail=f"the body's type has to be {kinds}")


def too_many(what: str) -> Problem:
    return Problem(title="Too many", status=429, detail=what)


def behind(job_id: JobId) -> Problem:
    return unavailable(f"job {job_id} exists, but the monitor has not read of it yet; ask again")


def forgotten(job_id: JobId, state: JobState) -> Problem:
    reason = f"job {job_id} has ended ({state}), so many jobs ago that the monitor no longer keeps it"
    detail = f"{reason}; see `hopyard events {job_id}`"
    return Problem(title="Forgotten", status=410, detail=detail, state=state)


def failed(reason: str = "the service failed") -> Problem:
    return Problem(title="Failed", status=500, detail=f"{reason}; its log says how")


def unavailable(reason: str) -> Problem:
    return Problem(title="Unavailable", status=503, detail=reason)
