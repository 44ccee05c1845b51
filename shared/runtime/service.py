"""What `build(settings, ports)` of every service returns, and the ports it may use."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from schemas.base import Event, Sample
from shared.domain.core import Core
from shared.runtime.bus.contract import Answer, Bus, Streams
from shared.runtime.clock import Clock
from shared.runtime.offload import INLINE, Offload
from shared.runtime.tasks import LOOP_TASKS, Tasks

Worker = Callable[[Any], Awaitable[Any]]
"""does one kind of work outside the core: task in, answer out (None: nothing to handle)"""

Task = Callable[["Inbox"], Awaitable[None]]
"""runs beside the core for as long as the service does"""


def the_only_one() -> int:
    """The fencing token of a service without other instances."""
    return 1


class Ports(msgspec.Struct, frozen=True):
    """The ports that a service may use; it imports none of their implementations (an import contract)."""

    bus: Bus
    clock: Clock
    offload: Offload = INLINE
    tasks: Tasks = LOOP_TASKS
    sources: Mapping[str, str] = {}
    """source of each setting that is set"""
    fencing_token: Callable[[], int] = the_only_one
    """valid once the service acts; larger in every later life that acts"""
    streams: Streams | None = None
    """None: nothing is kept for long, as in a simulation"""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of a service's own."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}
    counter: bool = False


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A core and what connects it with the bus and its process."""

    name: str
    """unique on the bus: `planner`, `agent-<node id>`"""
    core: Core
    facts: Sequence[str]
    """subjects it reads"""
    quiet_facts: frozenset[type[Event]] = frozenset()
    """facts that never lead to an effect or another wakeup: a conductor gives the service no turn for them,
    and hands them over with the next message"""
    own_facts: tuple[type[Event], ...] = ()
    """facts that only this service publishes; it must not pass over any of them"""
    samples: Sequence[type[Sample]] = ()
    samples_kept: int = 0
    """how many of the newest samples an instance keeps while it does not lead, to handle once it leads"""
    answers: str | None = None
    """subject of the questions it answers"""
    standby_answers: Mapping[str, Answer] = {}
    """by other subjects of questions: what it answers from its start on, whether it leads or not"""
    workers: Mapping[type, Worker] = {}
    """workers by kind of work"""
    long_tasks: tuple[type, ...] = ()
    """kinds of work that may take as long as the settings let them"""
    progress_messages: tuple[type[Event | Sample], ...] = ()
    """messages whose handling counts as progress; empty: any"""
    tasks: Sequence[Task] = ()
    """what else runs beside the core for as long as the service does: an HTTP API, a lease"""
    routes: Callable[[], Any] | None = None
    """makes the aiohttp route table of the service's own web server, beside health and metrics"""
    metrics: Callable[[], Sequence[Metric]] | None = None
    """what the metrics endpoint shows beside the shell's counts; called at every scrape"""
    troubles: Callable[[], Sequence[str]] = tuple
    """what it lacks at the moment, in words, for instance a disk, or a setting that is not in effect"""
    close: Callable[[], Awaitable[None]] | None = None


class Inbox(msgspec.Struct, frozen=True):
    """How a service's own tasks reach its core."""

    put: Callable[[Any], None]
    """put an input before the core"""
    ask: Callable[[Any], Awaitable[Any]]
    """put a question before the core and wait for its Reply, stored facts included"""
    replayed: Callable[[], bool]
    """whether the core has caught up with the stream and runs"""
    seq: Callable[[], int]
    """sequence up to which the core has been handed all facts that concern it"""
    why_idle: Callable[[], str] = str
    """why the core is handed nothing at the moment; empty: it is"""


ServiceFactory = Callable[[Ports, str], Service]
"""The second argument distinguishes the lives of a service."""
