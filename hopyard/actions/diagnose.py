"""Checks whether a stack is well. Changes nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import msgspec

from hopyard.actions.archived import archived
from hopyard.api.ask import connected
from hopyard.api.client import ApiRefusal, Client
from hopyard.api.connect import connect
from hopyard.failures import Failure, Unanswered, Unreachable
from hopyard.local.damage import SERVICES
from hopyard.local.data_folder import StackFile
from hopyard.local.pids import alive
from hopyard.local.stack_settings import HOST
from hopyard.show.nodes import slow_text
from hopyard.show.tables import did_text, service_texts, status_facts
from hopyard.show.units import duration, withheld
from schemas.base import Message
from schemas.events import PlanPublished, PolicyChosen
from schemas.quarantine import Death
from schemas.subjects import AGENT, FACTS_STREAM, OF_NODES
from schemas.views import PolicyChoice, Problem, Readiness, ServiceState
from shared.domain.audit import Audit
from shared.domain.stand_in import stand_in
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.connection import Connection, in_words
from shared.runtime.bus.jetstream.integrity import flaws, lost_facts
from shared.runtime.damage import REMEDY, ranges_text
from shared.runtime.process.clock_sync import TOLERATED_S

TIMEOUT_S = 5.0
NATS_PORT = 4222
LOOKED_AT = 50
"""newest facts by which the clock is checked"""
NAMED_AT_MOST = 20
"""largest number of violations that are named"""


class Check(Message, frozen=True, kw_only=True):
    what: str
    ok: bool
    detail: str


class Diagnosis(Message, frozen=True, kw_only=True):
    api_url: str
    reachable: bool
    checks: tuple[Check, ...]
    versions: dict[str, str]

    def well(self) -> bool:
        return all(check.ok for check in self.checks)


async def diagnose(url: str, stack: StackFile | None, versions: dict[str, str]) -> Diagnosis:
    """All checks; those that need the API only while it answers.

    They are made at the same time, since what hangs is waited for.
    """
    async with connect(url) as client:
        api, *checks = await asyncio.gather(
            _check("API", lambda: _api(client)),
            *_stack_checks(stack),
            _check("services", lambda: _services(client)),
        )
        if api.ok:
            checks += await asyncio.gather(
                _check("nodes", lambda: _nodes(client)),
                _check("clock", lambda: _clock(client)),
                _check("policy", lambda: _policy(client)),
                _check("event log", lambda: _log(client)),
            )
    return Diagnosis(api_url=url, reachable=api.ok, checks=(api, *checks), versions=versions)


class _CheckFailed(Failure):
    """A check found something wrong; the text says what."""


async def _check(what: str, look: Callable[[], Awaitable[str]]) -> Check:
    try:
        return Check(what=what, ok=True, detail=await look())
    except Failure as error:
        return Check(what=what, ok=False, detail=str(error))


def _stack_checks(stack: StackFile | None) -> list[Coroutine[None, None, Check]]:
    if stack is None:
        return []
    return [
        _check("NATS", lambda: _nats(stack.nats_url)),
        _check("stored", lambda: connected(stored, stack.api_url)),
        *[_check(name, partial(_service, stack, name)) for name in stack.ports],
    ]


async def _api(client: Client) -> str:
    facts = status_facts(await client.status())
    return f"{client.url}: jobs {facts['jobs']}; GPUs {facts['GPUs']}"


async def _nodes(client: Client) -> str:
    """A lost node is a fault. A draining one is not: a user drained it, or its time is nearly over.

    Nor is a slow one, whose jobs go on; it is named.
    """
    nodes = (await client.nodes()).nodes
    if not nodes:
        raise _CheckFailed("no node has announced itself")
    apart = [f"{view.node.node_id} is {view.state}" for view in nodes if view.state != "alive"]
    there = ", ".join([f"{len(nodes) - len(apart)} of {len(nodes)} alive", *apart])
    kept = [f"{view.node.node_id}: {withheld(view.withheld)}" for view in nodes if view.withheld]
    slow = [
        f"{view.node.node_id} is {slow_text(view.speed)}" for view in nodes if view.speed and view.speed.slow
    ]
    text = "; ".join([there, *kept, *slow])
    now = client.clock.now if client.clock else 0.0
    if any(view.state == "lost" and (view.node.until is None or now < view.node.until) for view in nodes):
        raise _CheckFailed(text)
    return text


async def _clock(client: Client) -> str:
    """From a time before the newest facts of services, no round opens and no plan is made."""
    facts = [fact async for line in client.events(tail=LOOKED_AT) if (fact := line.known()) is not None]
    newest = max((fact.at for fact in facts if fact.tag().split(".")[0] not in OF_NODES), default=0.0)
    clock = client.clock
    if clock is None:
        return "not known"
    behind_s = (newest - clock.now) / clock.speed
    if behind_s > TOLERATED_S:
        raise _CheckFailed(
            f"cluster time is {duration(behind_s)} behind the newest fact: nothing is planned until then; "
            "stop `hopyard up`, and start it again"
        )
    return "cluster time is beyond the newest fact"


async def _policy(client: Client) -> str:
    found = await planned_by(client)
    if found.fault:
        raise _CheckFailed(found.text)
    return found.text


class PlannedBy(NamedTuple):
    """Which policy makes the plans, and whether it is the chosen one."""

    asked: PolicyChoice
    text: str
    fault: bool = False


async def planned_by(client: Client) -> PlannedBy:
    """A plan that another policy made has the name of the chosen one if that failed, else the other's.

    A policy that was chosen after the last plan has not planned yet, which is no fault.
    """
    asked, plan = await client.policy(), (await client.status()).plan
    if plan is None:
        return PlannedBy(asked, asked.policy)
    by, note = stand_in(plan.notes)
    if plan.policy != asked.policy:
        note = await _why_not(client, asked.policy)
    elif not by:
        return PlannedBy(asked, asked.policy)
    text = f"{asked.policy} was asked for, {by or plan.policy} made the last plan"
    return PlannedBy(asked, "; ".join([text, *([note] if note else [])]), fault=bool(note))


async def _why_not(client: Client, policy: str) -> str:
    """Why the chosen policy makes no plans; empty: nothing is known against it.

    It is noted once. What was noted before it was chosen, or before it made a plan, no longer holds.
    """
    note = ""
    async for line in client.events():
        match line.known():
            case PolicyChosen():
                note = ""
            case PlanPublished() as plan if plan.policy == policy:
                note = ""
            case PlanPublished() as plan:
                note = next((text for text in reversed(plan.notes) if policy in text), note)
            case _:
                pass
    return note


async def _log(client: Client) -> str:
    audit, count = Audit(), 0
    async for line in client.events():
        if (fact := line.known()) is not None:
            audit.take(line.seq, fact)
            count += 1
    if found := audit.found():
        named = [f"{one.rule}: {one.detail} ({one.event_id})" for one in found[:NAMED_AT_MOST]]
        more = [f"and {len(found) - NAMED_AT_MOST} more"] if len(found) > NAMED_AT_MOST else []
        raise _CheckFailed("; ".join([*named, *more]))
    return f"{count} facts break no rule"


async def _service(stack: StackFile, name: str) -> str:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
        found = await _readiness(session, f"{urlsplit(stack.api_url).scheme}://{HOST}:{stack.ports[name]}")
    pid, ended = stack.pids.get(name, 0), _ended(stack, name)
    if isinstance(found, Problem):
        why = f": {found.detail}" if found.detail else ""
        raise _CheckFailed(
            f"process {pid} {f'lives and is not ready{why}' if alive(pid) else 'is gone'}{ended}"
        )
    if deaths := _of_agent(found, name):
        raise _CheckFailed("; ".join([f"ready, process {pid}{ended}", *(one.text for one in deaths)]))
    return f"ready, process {pid}{ended}"


async def _readiness(session: aiohttp.ClientSession, url: str) -> Readiness | Problem:
    """What a service of this machine answers at /readyz, or why it is not ready."""
    try:
        async with session.get(f"{url}/readyz", ssl=False) as response:  # who it is need not be proven
            body = await response.read()
            if response.status == HTTPStatus.OK:
                return msgspec.json.decode(body, type=Readiness)
            return msgspec.json.decode(body, type=Problem)
    except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
        silent = f"it does not answer within {TIMEOUT_S:g} s" if isinstance(error, TimeoutError) else ""
        return Problem(title=str(error), status=HTTPStatus.SERVICE_UNAVAILABLE, detail=silent)


def _of_agent(found: Readiness, name: str) -> tuple[Death, ...]:
    """The facts that agents skip; services report theirs, agents do not."""
    own = [one for one in found.services if one.name == name and name.startswith(f"{AGENT}-")]
    return tuple([death for one in own for death in one.quarantined])


def _ended(stack: StackFile, name: str) -> str:
    """Restarts of a service, and how it ended last."""
    error = stack.last_errors.get(name)
    return f"; restarts: {stack.restarts.get(name, 0)}, it {error}" if error else ""


async def _services(client: Client) -> str:
    """The reports of all services, wherever they run; without texts if no monitor answers."""
    try:
        views = (await client.status()).services
    except Unanswered:  # it hangs
        raise
    except (ApiRefusal, Unreachable):
        views = (await client.ready()).services
    well = {ServiceState.UP, ServiceState.ENDED}
    wrong = [one for one in views if one.state not in well or one.troubles or one.quarantined]
    if wrong:
        raise _CheckFailed("; ".join(service_texts(wrong)))
    back = service_texts(one for one in views if one.restarts)
    did = [text for one in views if (text := did_text(one))]
    return "\n".join([f"{len(views)} report that they are well", *back, *did])


async def _nats(urls: str) -> str:
    """What each NATS server answers. One of several that does not answer is a fault; the stack goes on."""
    each = await asyncio.gather(*[_check(url, partial(_greeting_of, url)) for url in urls.split(",")])
    text = "; ".join([f"{check.what}: {check.detail}" for check in each])
    if not all(check.ok for check in each):
        raise _CheckFailed(text)
    return text


async def _greeting_of(url: str) -> str:
    """What the line says with which a NATS server greets its clients. Raises _CheckFailed."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or NATS_PORT)
            try:
                greeting = await reader.readline()
            finally:
                writer.close()
    except TimeoutError:
        raise _CheckFailed(f"does not answer within {TIMEOUT_S:g} s") from None
    except OSError as error:
        raise _CheckFailed(in_words(error)) from None
    if not greeting.startswith(b"INFO "):
        raise _CheckFailed("what answers there is no NATS server")
    return f"version {msgspec.json.decode(greeting[5:], type=_Greeting).version}"


async def stored(connection: Connection) -> str:
    """Check what NATS has stored for damage. Raises Failure."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            there = await archived(connection)
    except (Unavailable, Failure, TimeoutError):
        there = range(1, 1)  # another check says that the monitor does not answer
    found = await flaws(connection, (), SERVICES, there)
    grave = [flaw.text for flaw in found if flaw.grave]
    if not grave and (gaps := await lost_facts(connection)):
        grave = [f"NATS' stream {FACTS_STREAM} has lost facts {ranges_text(gaps)}"]
    if grave:
        raise _CheckFailed(". ".join([*grave, REMEDY]))
    return "; ".join(["all facts at NATS can be read", *(flaw.text for flaw in found)])


class _Greeting(Message, frozen=True, kw_only=True):
    version: str
