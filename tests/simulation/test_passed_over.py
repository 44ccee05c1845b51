"""A service passes over a fact that others handled, as in quarantine: it costs progress, and nothing else.

What a service passes over it never hears of, so two services know unlike things from then on.
"""

from collections import Counter
from contextlib import suppress

import pytest

from loadgen.simulation import simulate
from schemas.base import Event
from schemas.events import FACTS
from services.table import TABLE
from shared.domain.audit import audit
from shared.domain.core import Effects, Input
from shared.runtime.bus.contract import Record
from shared.runtime.conductor import Conductor
from tests.simulation.storms import SMALL

UNTIL_S = 20_000.0
"""a hundred rounds: a job that goes no further for that fact keeps the stack waiting"""
FACTS_MOST = 1_000
"""by then; a stack at rest has three each round, a first plan and its refusal among them"""
PUBLISHES = {entry.name: entry.publishes for entry in TABLE}
AGENT = "agent-xp-0"


class EnoughError(Exception):
    """The run has shown what there is to see."""


class Deaf:
    """Has a service pass over the first fact of a kind that reaches it."""

    def __init__(self, service: str, kind: type[Event]) -> None:
        self._service = service
        self._kind = kind
        self.missed = ""
        self.facts: dict[str, Event] = {}

    async def disturb(self, stage: object) -> None:
        assert isinstance(stage, Conductor)
        stage.log.sinks.append(self._count)
        core = stage.shell(self._service).service.core
        handle = core.handle

        def partly(message: Input, now: float) -> Effects:
            if type(message) is self._kind:
                self.missed = self.missed or message.event_id
                if message.event_id == self.missed:
                    return []
            return handle(message, now)

        core.handle = partly  # type: ignore[method-assign] # a core is a plain object, and this is its whole input

    def _count(self, record: Record) -> None:
        self.facts[record.event.event_id] = record.event
        if record.event.at > UNTIL_S or len(self.facts) > FACTS_MOST:
            raise EnoughError


def kinds(service: str) -> list[type[Event]]:
    """Kinds of facts that a service may have to pass over: not its own."""
    own = PUBLISHES[service.partition("-")[0]]
    return [kind for kind in FACTS.values() if kind not in own]


def heard(service: str) -> set[type[Event]]:
    """Kinds that reach it where it passes over none: until it does, runs below are the same as this one."""
    found = set[type[Event]]()

    async def disturb(stage: object) -> None:
        assert isinstance(stage, Conductor)
        core = stage.shell(service).service.core
        handle = core.handle

        def noting(message: Input, now: float) -> Effects:
            if isinstance(message, Event):
                found.add(type(message))
            return handle(message, now)

        core.handle = noting  # type: ignore[method-assign] # as above

    simulate(SMALL, policy="hops", disturb=[disturb])
    return found


@pytest.mark.parametrize("service", ["placer", "monitor", AGENT])
def test_facts_that_a_service_misses_cost_only_progress(service: str) -> None:
    reach = heard(service)
    missed = [kind for kind in kinds(service) if kind in reach]
    for kind in missed:
        deaf = Deaf(service, kind)
        with suppress(EnoughError):
            simulate(SMALL, policy="hops", disturb=[deaf.disturb])
        assert deaf.missed
        facts = list(deaf.facts.values())
        assert audit(facts) == [], kind
        counts = Counter(type(fact).__name__ for fact in facts)
        assert len(facts) < FACTS_MOST, (kind, counts.most_common(4))
    assert len(missed) >= 2, "that service hears of so many kinds at least"
