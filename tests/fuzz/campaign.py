"""One fuzz campaign: accounts of a running stack send false messages; then the stack is checked.

No process may end during the campaign. Afterwards every service must be ready, jobs must end, and the audit
may find nothing but what the rogue agent did to its own node. Then all processes are killed and started
again, and must come up over the same stream.
"""

import asyncio
import itertools
import os
import signal
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec
import nats
from nats.aio.client import Client as Nats
from nats.js.errors import NotFoundError

from hopyard.api.client import Client, LoggedEvent
from hopyard.api.connect import patiently
from hopyard.local.accounts import agent_of, expel
from hopyard.local.credentials import account_of
from hopyard.local.stack import Stack, is_ready
from loadgen.scenarios import arrivals, load_scenario
from schemas.base import Event
from schemas.codec import Malformed
from schemas.events import JobCompleted, ProfileEvent, StartOrdered
from schemas.ids import JobId
from schemas.subjects import DEAD_STREAM
from schemas.views import JobView, StatusView
from shared.domain.audit import Violation, audit
from shared.domain.states import ENDED, JobState
from shared.runtime.bus.accounts import OPERATOR, inbox_of
from tests.fuzz.senders import Letter, Senders
from tests.live.live_builders import QUICK, stack_and_client
from tests.stack_watch import until

AT_ONCE = 10
"""messages that are sent between two looks at the time"""
LEARN_EVERY_S = 2.0
OPEN_JOBS = 4
LAST_LETTERS = 30
READY_LIMIT_S = 120.0
AHEAD_MOST_S = 60.0
"""real seconds by which cluster time may be ahead: services accept facts that are ten seconds ahead"""
MALFORMED = "hopyard_bus_malformed_total"


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    seed: str
    seconds: float
    rate: float
    """messages a second"""
    lying: bool = False
    """services also send possible facts that are not true; then the log is not audited"""


class Outcome(msgspec.Struct, kw_only=True):
    faults: list[str] = []
    sent: Counter[str] = msgspec.field(default_factory=Counter)
    """messages by group of subjects"""
    unspoken: int = 0
    """number of subjects of accounts on which nothing was sent"""
    dead: dict[str, int] = {}
    """messages that each service could not read"""
    reasons: Counter[str] = msgspec.field(default_factory=Counter)
    """reasons of the dead letters that the stream still has"""
    jobs: dict[str, int] = {}
    facts: int = 0
    blamed: int = 0
    """number of rules broken by what the rogue said of its own node"""


async def run_campaign(data: Path, campaign: Campaign) -> Outcome:
    outcome = Outcome()
    async with stack_and_client(data, speed=QUICK) as (stack, client):
        nodes = sorted(view.node.node_id for view in (await client.nodes()).nodes)
        rogue = "" if campaign.lying else nodes[-1]
        storm = _Storm(stack, client, campaign, rogue)
        began_at, began = (await client.status()).at, time.monotonic()
        await storm.rage(outcome)
        outcome.faults += await _unready(stack, rogue)
        outcome.dead, outcome.reasons = await _dead_letters(stack)
        if rogue:
            expel(data, rogue)
            await _look(client, storm, rogue, outcome)
        await _reborn(stack, rogue, outcome)
        if rogue:
            await _look(client, storm, rogue, outcome)
            ahead_s = ((await client.status()).at - began_at) / QUICK - (time.monotonic() - began)
            if ahead_s > AHEAD_MOST_S:
                outcome.faults.append(f"cluster time is {ahead_s:,.0f} s of the wall clock ahead")
    return outcome


class _Storm:
    """Sends messages at the campaign's rate, and submits jobs meanwhile."""

    def __init__(self, stack: Stack, client: Client, campaign: Campaign, rogue: str) -> None:
        self.submitted = 0
        self._stack = stack
        self._client = client
        self._senders = Senders(campaign.seed, rogue, lying=campaign.lying)
        self._rogue = agent_of(rogue) if rogue else ""
        self._campaign = campaign
        self._read = 0
        self._jobs = itertools.cycle([arrival.job for arrival in arrivals(load_scenario("tiny"), seed=1)])
        self._last: deque[Letter] = deque(maxlen=LAST_LETTERS)

    async def rage(self, outcome: Outcome) -> None:
        pids = _pids(self._stack, self._rogue)
        learning = asyncio.create_task(self._work())
        try:
            async with _connected(self._stack, {place.user for place in self._senders.places}) as by:
                await self._speak(by, pids, outcome)
            if learning.done():
                learning.result()
        finally:
            learning.cancel()
            await asyncio.gather(learning, return_exceptions=True)
        spoke = self._senders.spoke
        for place, count in spoke.items():
            outcome.sent[place.group] += count
        outcome.unspoken = len(self._senders.places) - len(spoke)

    async def _speak(self, by: dict[str, Nats], pids: dict[str, int], outcome: Outcome) -> None:
        began = time.monotonic()
        for number, letter in enumerate(self._senders.letters(), start=1):
            connection = by[letter.user]
            reply = connection.new_inbox() if letter.asks else ""
            self._last.append(letter)
            await connection.publish(letter.subject, letter.data, reply=reply, headers=letter.headers or None)
            if number % AT_ONCE:
                continue
            if ended := _ended(self._stack, pids):
                outcome.faults += [*ended, *(f"  said last: {one}" for one in self._last)]
                return
            if time.monotonic() - began > self._campaign.seconds:
                return
            await asyncio.sleep(max(0.0, began + number / self._campaign.rate - time.monotonic()))

    async def _work(self) -> None:
        """Keep OPEN_JOBS jobs unfinished, and learn their facts."""
        while True:
            status = await patiently(self._client.status)
            if _open(status) < OPEN_JOBS:
                job, key = next(self._jobs), f"fuzz-{self.submitted}"
                await patiently(lambda job=job, key=key: self._client.submit(job, key))  # type: ignore[misc]
                self.submitted += 1
            for line in await patiently(lambda: _lines(self._client, self._read)):
                self._read = line.seq
                if (event := _known(line)) is not None:
                    self._senders.learn(event)
            await asyncio.sleep(LEARN_EVERY_S)


def _open(status: StatusView) -> int:
    return sum(count for state, count in status.jobs.items() if state not in ENDED)


async def _open_jobs(client: Client) -> Sequence[JobView]:
    open_states = [state for state in JobState if state not in ENDED]
    return (await patiently(lambda: client.jobs(states=open_states))).jobs


async def _standing(client: Client, job_id: JobId) -> str:
    why = await patiently(lambda: client.why(job_id))
    return f"{job_id} is {why.state}: {why.detail}"


async def _lines(client: Client, after: int) -> list[LoggedEvent]:
    return [line async for line in client.events(after=after)]


def _known(line: LoggedEvent) -> Event | None:
    try:
        return line.fact()
    except Malformed:
        return None


def _pids(stack: Stack, but: str) -> dict[str, int]:
    """Process ids by name, without `but`: the rogue's agent may end, since a false one can supersede it."""
    return {one.program.name: one.process.pid for one in stack.running if one.program.name != but}


def _ended(stack: Stack, pids: dict[str, int]) -> list[str]:
    return [
        f"{one.program.name} ended: {one.last_error or one.process.returncode}"
        for one in stack.running
        if one.program.name in pids
        and (one.process.pid != pids[one.program.name] or one.process.returncode is not None)
    ]


@asynccontextmanager
async def _connected(stack: Stack, users: set[str]) -> AsyncIterator[dict[str, Nats]]:
    by = {user: await _client_of(stack, user) for user in sorted(users)}
    try:
        yield by
        for each in by.values():
            await each.flush()
    finally:
        for each in by.values():
            await each.close()


async def _client_of(stack: Stack, user: str) -> Nats:
    own = msgspec.json.decode(account_of(stack.data, user).read_bytes(), type=dict[str, str])

    async def refused(error: Exception) -> None:
        """A rogue may use subjects that are not its own."""
        assert "permissions violation" in str(error), error

    prefix = inbox_of(user).encode()
    return await nats.connect(stack.nats.url, **own, inbox_prefix=prefix, error_cb=refused)


# ---- afterwards


async def _unready(stack: Stack, rogue: str) -> list[str]:
    """Wait until all but the rogue's agent are ready; the faults of those that are not in time."""
    ends = time.monotonic() + READY_LIMIT_S
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as session:
        while True:
            not_yet = [
                name
                for name, port in stack.ports.items()
                if name != agent_of(rogue) and not await is_ready(session, port, stack.scheme)
            ]
            if not not_yet or time.monotonic() > ends:
                return [f"{name} is not ready" for name in not_yet]
            await asyncio.sleep(0.2)


async def _look(client: Client, storm: _Storm, rogue: str, outcome: Outcome) -> None:
    """Wait until all jobs have ended, then audit the log; jobs that do not end in time are faults."""
    try:
        status = await until(
            client,
            lambda status: sum(status.jobs.values()) >= storm.submitted and not _open(status),
        )
    except TimeoutError:
        status = await patiently(client.status)
        outcome.faults.append(f"of {storm.submitted} jobs that were acknowledged: {status.jobs}")
        outcome.faults += [await _standing(client, job.job_id) for job in await _open_jobs(client)]
    lines = [line for line in await patiently(lambda: _lines(client, 0)) if _known(line) is not None]
    facts = [line.fact() for line in lines]
    outcome.jobs, outcome.facts = status.jobs, len(facts)
    found = audit(facts, drained=True, seqs=[line.seq for line in lines])
    ours = [one for one in found if not _is_of(one, facts, rogue)]
    outcome.blamed = len(found) - len(ours)
    outcome.faults += [f"{one.rule}: {one.detail} ({one.event_id})" for one in ours]
    if not any(isinstance(fact, JobCompleted) for fact in facts):
        outcome.faults.append("no job completed")


def _is_of(violation: Violation, facts: Sequence[Event], rogue: str) -> bool:
    """Whether it is about the rogue's node, or about a job that was ordered or measured there."""
    event = next(fact for fact in facts if fact.event_id == violation.event_id)
    if getattr(event, "node_id", "") == rogue or rogue in violation.detail:
        return True
    touched = {
        fact.job_id
        for fact in facts
        if isinstance(fact, StartOrdered | ProfileEvent) and fact.node_id == rogue
    }
    return getattr(event, "job_id", "") in touched or any(job_id in violation.detail for job_id in touched)


async def _reborn(stack: Stack, rogue: str, outcome: Outcome) -> None:
    """Kill every process; each has to come up again over the same stream, and stay up."""
    others = [one for one in stack.running if one.program.name != agent_of(rogue)]
    before = {one.program.name: one.restarts for one in others}
    for one in others:
        os.killpg(one.process.pid, signal.SIGKILL)
    while any(one.restarts == before[one.program.name] for one in others):
        await asyncio.sleep(0.1)
    outcome.faults += await _unready(stack, rogue)
    outcome.faults += [
        f"{one.program.name} ended again: {one.last_error}"
        for one in others
        if one.restarts > before[one.program.name] + 1
    ]


async def _dead_letters(stack: Stack) -> tuple[dict[str, int], Counter[str]]:
    """The dead letters that each service has counted, and the reasons of those that the stream still has."""
    counts: dict[str, int] = {}
    async with aiohttp.ClientSession() as session:
        for name, port in stack.ports.items():
            with suppress(aiohttp.ClientError):  # the rogue's own agent may be down
                async with session.get(f"{stack.scheme}://127.0.0.1:{port}/metrics", ssl=False) as answer:
                    lines = (await answer.text()).splitlines()
                counts[name] = sum(int(float(one.split()[1])) for one in lines if one.startswith(MALFORMED))
    return counts, await _reasons(stack)


async def _reasons(stack: Stack) -> Counter[str]:
    found = Counter[str]()
    connection = await _client_of(stack, OPERATOR)
    try:
        js = connection.jetstream()
        seq = (await js.stream_info(DEAD_STREAM)).state.first_seq
        while True:
            try:
                letter = await js.get_msg(DEAD_STREAM, seq, "hopyard-dead.>", next=True)
            except NotFoundError:
                return found
            reason = (letter.headers or {}).get("Hopyard-Reason", "said to be dead by an account")
            found[str(reason)[:60]] += 1  # what is not ASCII is no plain text there
            assert letter.seq is not None
            seq = letter.seq + 1
    finally:
        await connection.close()
