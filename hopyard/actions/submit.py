"""Submits job files, and reports the outcome of each."""

import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hopyard.api.client import ApiRefusal, Client
from hopyard.failures import HERE, Failure, Unanswered, Unreachable
from hopyard.local.credentials import this_user
from hopyard.show.columns import Column, Listing
from hopyard.show.tables import facts_table
from hopyard.show.terminal import Complaint, complaint, put, say, show_ids, show_json
from schemas.jobs import JobFile
from schemas.views import Submitted
from shared.domain.demand import job_spec
from shared.domain.invalid_job import InvalidJob

if TYPE_CHECKING:
    from shared.runtime.files import InvalidFile

STDIN = Path("-")


class SubmitOutcome(NamedTuple):
    """The outcome of one file: a job or an error."""

    file: str
    submitted: Submitted | None = None
    error: Failure | None = None

    def plain(self) -> dict[str, str | bool | Complaint]:
        if self.submitted is not None:
            return {"file": self.file, **msgspec.structs.asdict(self.submitted)}
        assert self.error is not None
        return {"file": self.file, "error": complaint(self.error, self.error.code)}


def read_job(file: Path) -> JobFile:
    """The job in a file, checked as far as possible without the cluster. Raises InvalidFile."""
    from shared.runtime.files import fault, parse, text_in, text_of  # noqa: PLC0415 - brings the YAML parser

    name, text = (
        ("stdin", text_in(sys.stdin.buffer, "stdin")) if file == STDIN else (str(file), text_of(file))
    )
    job = parse(text, name, JobFile)
    try:
        job_spec(job)
    except InvalidJob as error:
        raise fault(name, error.field, error.reason, text) from None
    return job


Named = tuple[str, JobFile]
"""the name of a file, and the job in it"""


def in_this_folder(jobs: Sequence[Named]) -> list[Named]:
    """The jobs; one with a command but no `working_directory` gets the current folder, which is printed.

    Raises Failure.
    """
    without = [job for _, job in jobs if job.command and not job.working_directory]
    if not without:
        return list(jobs)
    try:
        folder = os.fsencode(Path.cwd()).decode()  # as UTF-8, which nodes use, whatever this shell uses
    except OSError as error:
        raise Failure(f"{HERE}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise Failure(f"{HERE}: its name is not UTF-8; name a `working_directory`") from None
    say(f"to be run in {folder}; `working_directory` in the job file names another folder")
    return [
        (file, msgspec.structs.replace(job, working_directory=folder) if job in without else job)
        for file, job in jobs
    ]


async def submit_all(
    client: Client, jobs: Sequence[Named], key: str | None, *, hold: bool = False
) -> list[SubmitOutcome]:
    """Submit the jobs in turn. After a refusal the others are still submitted, unless the API is unreachable.

    A job that names no user is the token holder's; without a token, of the account that runs the command.
    """
    user = "" if client.has_token else this_user()
    outcomes: list[SubmitOutcome] = []
    for file, job in jobs:
        own_key = key or uuid.uuid4().hex
        try:
            owned = job if job.user or not user else msgspec.structs.replace(job, user=user)
            submitted = await client.submit(owned, own_key, hold=hold)
        except ApiRefusal as refusal:
            outcomes.append(SubmitOutcome(file=file, error=_placed(file, refusal)))
        except Unreachable as gone:
            same = f"--hold --key {own_key}" if hold else f"--key {own_key}"
            advice = f"{gone}; the job may be stored all the same: submit it again with {same}"
            error = Unreachable(advice) if isinstance(gone, Unanswered) else gone
            outcomes.append(SubmitOutcome(file=file, error=error))
            rest = jobs[len(outcomes) :]
            return outcomes + [SubmitOutcome(file=name, error=gone) for name, _ in rest]
        else:
            outcomes.append(SubmitOutcome(file=file, submitted=submitted))
    return outcomes


class RefusedField(Failure):
    """A field that the API refused, with its place in the user's file."""

    def __init__(self, place: "InvalidFile") -> None:
        super().__init__(str(place))
        self.path, self.line, self.field = place.path, place.line, place.field


def _placed(file: str, refusal: ApiRefusal) -> Failure:
    from shared.runtime.files import fault  # noqa: PLC0415 - brings the YAML parser

    if not refusal.field or refusal.of_query or not Path(file).is_file():
        return refusal
    return RefusedField(fault(file, refusal.field, refusal.problem.detail))


def show_outcomes(outcomes: Sequence[SubmitOutcome], *, quiet: bool, as_json: bool) -> None:
    """Print the outcomes. Raises Failure if a job was not submitted; for a single job, its own failure."""
    errors = refusals(outcomes)
    done = [(outcome.file, outcome.submitted) for outcome in outcomes if outcome.submitted is not None]
    if len(outcomes) == 1 and errors:
        raise errors[0]
    if as_json:
        show_json(done[0][1] if len(outcomes) == 1 else [outcome.plain() for outcome in outcomes])
    else:
        _show(done, alone=len(outcomes) == 1, quiet=quiet)
    say_refusals(outcomes, as_json=as_json)
    if errors:
        raise failure_of(errors, len(outcomes))


def refusals(outcomes: Sequence[SubmitOutcome]) -> list[Failure]:
    return [outcome.error for outcome in outcomes if outcome.error is not None]


def say_refusals(outcomes: Sequence[SubmitOutcome], *, as_json: bool) -> None:
    """Print refusals; in JSON they are with their files."""
    for outcome in outcomes:
        if (error := outcome.error) is not None and not as_json:
            say(str(error) if isinstance(error, RefusedField) else f"{outcome.file}: {error}")


def _show(done: Sequence[tuple[str, Submitted]], *, alone: bool, quiet: bool) -> None:
    for _, submitted in done:
        if not submitted.created:
            say(f"the key was used before, for job {submitted.job_id}")
    if quiet:
        show_ids(submitted.job_id for _, submitted in done)
    elif alone:
        put(facts_table({"job": done[0][1].job_id}))
    elif done:
        columns = (
            Column[tuple[str, Submitted]]("job", lambda one: one[1].job_id),
            Column[tuple[str, Submitted]]("file", lambda one: one[0]),
        )
        put(Listing(columns, done))


def failure_of(errors: Sequence[Failure], of: int) -> Failure:
    kind = Unreachable if any(isinstance(error, Unreachable) for error in errors) else Failure
    return kind(f"{len(errors)} of {of} jobs were not submitted")
