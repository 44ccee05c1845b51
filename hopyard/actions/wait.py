"""Follows submitted jobs to their end, and prints their output if asked to."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from hopyard.actions.submit import Named, SubmitOutcome, failure_of, refusals, say_refusals, submit_all
from hopyard.api.client import ApiRefusal, Client
from hopyard.api.connect import LONG_LIMIT_S, on, patiently, reach
from hopyard.failures import CANCELLED, FAILED, REJECTED, Failure, Interrupted, JobEnded
from hopyard.show.columns import Column, Listing
from hopyard.show.jobs import ended_text, job_table
from hopyard.show.output import show_output
from hopyard.show.tables import state_text
from hopyard.show.terminal import put, say, show_ids, show_json
from hopyard.show.times import Times, dated
from hopyard.show.units import in_a_line
from schemas.events import JobSubmitted
from schemas.ids import JobId
from schemas.output import OutputLine
from schemas.views import JobView
from shared.domain.states import ENDED, MOVES, JobState

LOOK_EVERY_REAL_S = 1.0
OUTPUT_LIMIT_REAL_S = 30.0
"""seconds for the rest of a job's output once it has ended, since a half-open connection stays silent"""
LINES_AT_FIRST = 10_000
"""lines that a job printed before it is followed"""
CODES = {JobState.FAILED: FAILED, JobState.CANCELLED: CANCELLED, JobState.REJECTED: REJECTED}
"""exit codes of the command, by the end of a job"""

Print = Callable[[JobId, OutputLine], None]
Ends = Mapping[JobId, JobView]


class Wait:
    """One `submit --wait`: submits the jobs, follows them, and shows how they ended."""

    def __init__(self, *, quiet: bool, as_json: bool, show: Print | None) -> None:
        self._quiet = quiet
        self._as_json = as_json
        self._show = show
        self._answered: list[SubmitOutcome] = []

    def run(self, api: str | None, jobs: Sequence[Named], key: str | None, *, hold: bool = False) -> None:
        """Raises Failure unless all jobs completed."""

        async def submit_and_follow() -> tuple[Ends, Times]:
            async with reach(api) as client:
                self._answered = await submit_all(client, jobs, key, hold=hold)
                say(on(client))
                self._show_submitted(hold=hold)
                ends = await wait_all(client, self._jobs(), self._show, quiet=self._quiet)
                return ends, Times(client.clock)

        try:
            ends, times = asyncio.run(submit_and_follow())
        except KeyboardInterrupt:
            raise Interrupted(self._interrupted()) from None
        self._show_ends(ends, times)
        if errors := refusals(self._answered):
            raise failure_of(errors, len(self._answered))
        judge(ends)

    def _jobs(self) -> list[JobId]:
        return [one.submitted.job_id for one in self._answered if one.submitted is not None]

    def _show_submitted(self, *, hold: bool) -> None:
        if len(self._answered) == 1 and self._answered[0].error is not None:
            raise self._answered[0].error
        say_refusals(self._answered, as_json=self._as_json)
        if self._quiet and not self._as_json:
            show_ids(self._jobs())
        elif jobs := self._jobs():
            it, its = ("it", "its hold") if len(jobs) == 1 else ("them", "their holds")
            then = f"`hopyard release` ends {its}; Ctrl-C does not" if hold else f"Ctrl-C leaves {it} running"
            say(f"waiting for {', '.join(jobs)}; {then}")

    def _interrupted(self) -> str:
        """The error after Ctrl-C: before the answer it is not known whether the jobs were accepted."""
        jobs = self._jobs()
        if not jobs:
            return "interrupted; `hopyard ps --mine` shows what was submitted"
        if len(jobs) == 1:
            return f"{jobs[0]} is left as it is; `hopyard cancel {jobs[0]}` would stop it"
        return f"{', '.join(jobs)} are left as they are; `hopyard cancel JOB` would stop one"

    def _show_ends(self, ends: Ends, times: Times) -> None:
        if self._as_json:
            found = [_plain(one, ends, times) for one in self._answered]
            show_json(found[0] if len(found) == 1 else found)
        elif self._quiet:
            return
        elif len(self._answered) == 1:
            put(job_table(next(iter(ends.values())), times))
        elif ends:
            put(
                Listing(
                    _COLUMNS,
                    [(one.file, ends[one.submitted.job_id]) for one in self._answered if one.submitted],
                )
            )


async def wait_all(client: Client, jobs: Sequence[JobId], show: Print | None, *, quiet: bool) -> Ends:
    """Each job as it ended; `show` gets each line of output. Raises Failure.

    Unless `quiet`, says of a job that could not be measured why.
    """
    ends = await asyncio.gather(*[_wait(client, job, show, quiet=quiet) for job in jobs])
    return dict(zip(jobs, ends, strict=True))


async def _wait(client: Client, job_id: JobId, show: Print | None, *, quiet: bool) -> JobView:
    if show is None:
        return await _end_of(client, job_id, quiet=quiet)
    ending = asyncio.ensure_future(_end_of(client, job_id, quiet=quiet))
    printing = asyncio.ensure_future(_print(client, job_id, show))
    try:
        await asyncio.wait([ending, printing], return_when=asyncio.FIRST_COMPLETED)
        if printing.done():
            printing.result()  # raises its error, as when stdout is closed
        ended = await ending
        await asyncio.wait([printing], timeout=OUTPUT_LIMIT_REAL_S)  # it ends by itself
        if printing.done():
            printing.result()
    finally:
        ending.cancel()
        printing.cancel()
    return ended


async def _end_of(client: Client, job_id: JobId, *, quiet: bool) -> JobView:
    unmeasured = ""
    try:
        while True:
            view = await patiently(lambda: client.job(job_id), LONG_LIMIT_S)
            if view.state in ENDED:
                return view
            if view.unmeasured not in ("", unmeasured) and not quiet:
                say(f"{job_id} could not be measured {in_a_line(view.unmeasured)}")
            unmeasured = view.unmeasured
            await asyncio.sleep(LOOK_EVERY_REAL_S)
    except ApiRefusal as error:
        refusal = error
    return await patiently(lambda: _forgotten(client, job_id, refusal), LONG_LIMIT_S)


async def _forgotten(client: Client, job_id: JobId, refusal: ApiRefusal) -> JobView:
    """A job that the monitor no longer keeps, by its facts. Raises any other `refusal` again."""
    if (state := refusal.problem.state) is None:
        raise refusal
    facts = [fact async for line in client.events(job=job_id) if (fact := line.known()) is not None]
    begin = next((fact for fact in facts if isinstance(fact, JobSubmitted)), None)
    end = next((fact for fact in reversed(facts) if MOVES.get(type(fact), (None, ""))[1] == state), None)
    if begin is None or end is None:
        raise refusal
    return JobView(
        job_id=job_id,
        state=state,
        spec=begin.spec,
        submitted_at=begin.at,
        ended_at=end.at,
        reason=getattr(end, "reason", ""),
        samples_done=getattr(end, "samples_done", 0.0),
    )


async def _print(client: Client, job_id: JobId, show: Print) -> None:
    """Print the job's output; if that fails, go on waiting."""
    try:
        first, rest = await patiently(lambda: _output(client, job_id))
        async with aclosing(rest):
            for line in first:
                show(job_id, line)
            async for line in rest:
                show(job_id, line)
    except Failure as error:
        say(f"the output of {job_id} breaks off, `hopyard logs {job_id}` has it: {error}")


async def _output(client: Client, job_id: JobId) -> tuple[list[OutputLine], AsyncGenerator[OutputLine, None]]:
    """The job's lines from the first one on. Raises Failure.

    Unreachable is retried: the monitor may know a job a moment after it was submitted.
    """
    lines = client.output(job_id, newest=LINES_AT_FIRST, follow=True)
    try:
        return [await anext(lines)], lines
    except StopAsyncIteration:
        return [], lines
    except ApiRefusal as refusal:
        raise Failure(str(refusal)) from None


def printer(*, with_id: bool, beside: bool) -> Print:
    def show(job_id: JobId, line: OutputLine) -> None:
        show_output(line, job=job_id if with_id else "", beside=beside)

    return show


# ---- the results


def _plain(answered: SubmitOutcome, ends: Ends, times: Times) -> dict[str, object]:
    """The answer to the submission, with the ended job beside it."""
    if answered.submitted is None:
        return {**answered.plain()}
    return {**answered.plain(), "job": dated(ends[answered.submitted.job_id], times)}


_Row = tuple[str, JobView]
_COLUMNS = (
    Column[_Row]("job", lambda row: row[1].job_id),
    Column[_Row]("outcome", lambda row: state_text(row[1].state)),
    Column[_Row]("file", lambda row: row[0], spare=2),
    Column[_Row]("reason", lambda row: in_a_line(row[1].reason), spare=1, cut=20),
)


def judge(ends: Ends) -> None:
    """Raises JobEnded, with the lowest exit code, if a job did not complete."""
    bad = sorted(
        (CODES[JobState(view.state)], job_id) for job_id, view in ends.items() if view.state in CODES
    )
    if not bad:
        return
    code, job_id = bad[0]
    if len(ends) > 1:
        raise JobEnded(f"{len(bad)} of {len(ends)} jobs did not complete", code)
    view = ends[job_id]
    because = f": {in_a_line(view.reason)}" if view.reason else ""
    raise JobEnded(f"{job_id} {ended_text(view.state)}{because}", code)
