"""Attempts without the right: at the API with bad tokens, and at NATS with an agent's credentials."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
from structlog.testing import capture_logs

from hopyard.local.accounts import OF_STACK
from schemas.events import FACTS
from schemas.samples import Heartbeat, ThroughputObserved
from schemas.subjects import FACTS_STREAM, SNAPSHOT_BUCKET, STATE_BUCKET, sample_subject, state_subject
from schemas.tokens import Role
from services.admission.http.operations import OPERATIONS
from tests.fact_builders import joined, plan
from tests.guarded_nats import API, NODES, OWN, ROGUE, STREAMS, Guarded, Raw, subject_of
from tests.services.admission.admission_world import Served, job_body
from tests.services.admission.guarded_api import Tokens, guarded

TRIES = int(os.environ.get("FUZZ_ACCESS", "2500"))
"""attempts at the API, and at NATS"""
SEED = os.environ.get("FUZZ_SEED", "1")
AT_ONCE = 250
"""messages between two counts of the server's refusals"""
IDS = ("j-1", "n-0", "plan-0-0", "...", "%25", "a" * 300, "*", "é", "1;2", "x y")
ROLES = {each.name: each.role for each in OPERATIONS}


class BadHeaders:
    """Makes headers of callers who may not do what they ask the API for."""

    def __init__(self, random: Random, tokens: Tokens) -> None:
        self._random = random
        self.valid = {role: tokens.make(role, "ada", expires_s=1e9) for role in Role}
        expired = [tokens.make(role, "ada", expires_s=-1.0) for role in Role]
        revoked = [tokens.make(role, "ada", expires_s=1e9) for role in Role]
        for token in revoked:
            tokens.change(token, project=None)
        self._invalid = (*expired, *revoked)
        self.secrets = (*self.valid.values(), *self._invalid)

    def to(self, needed: Role) -> tuple[str, bool]:
        """A header, and whether its token is valid: then only its role is insufficient."""
        smaller = [token for role, token in self.valid.items() if not role.covers(needed)]
        if smaller and self._random.random() < 0.4:
            return f"Bearer {self._random.choice(smaller)}", True
        return self._random.choice(
            (self._invalid_token, self._spoilt, self._other_scheme, self._noise)
        )(), False

    def _invalid_token(self) -> str:
        return f"Bearer {self._random.choice(self._invalid)}"

    def _spoilt(self) -> str:
        """A valid token with one character changed, missing or added, or with another token's secret."""
        token = self._random.choice(list(self.valid.values()))
        place = self._random.randrange(len(token))
        other = self._random.choice("abcdefghXYZ0123456789-_~")
        if other == token[place]:
            other += "~"
        mark, token_id, _ = token.split("_", 2)
        wrong = (
            token[:place] + other + token[place + 1 :],
            token[:place],
            token + other,
            f"{mark}_{token_id}_" + self._random.choice(self._invalid).split("_", 2)[2],
            token.swapcase(),
        )
        return f"Bearer {self._random.choice(wrong)}"

    def _other_scheme(self) -> str:
        scheme = self._random.choice(("Basic", "Token", "Bearer:", "Bear er", ""))
        return f"{scheme} {self.valid[Role.OPERATOR]}"

    def _noise(self) -> str:
        letters = [
            chr(self._random.choice((*range(33, 127), 0xE9))) for _ in range(self._random.randrange(90))
        ]
        return self._random.choice(("Bearer ", "bearer ", "")) + "".join(letters)


def routes_of(document: dict[str, dict[str, dict[str, dict[str, object]]]]) -> list[tuple[str, str, Role]]:
    """Method, path and role of every operation that needs a token."""
    return [
        (method.upper(), path, ROLES[str(operation["operationId"])])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation.get("operationId") in ROLES
    ]


def body_of(random: Random) -> bytes | None:
    malformed = (b"", b"{", b"[[" * 500, b"\xff\xfe", bytes(random.randrange(2_000)))
    well_formed = (msgspec.json.encode(each) for each in (job_body(), {"policy": "fifo"}, {"policy": 3}))
    return random.choice((None, *well_formed, *malformed))


def refused_of(api: Served) -> float:
    return sum(metric.value for metric in api.authorization.metrics())


async def test_no_request_is_accepted_without_a_sufficient_token(tmp_path: Path) -> None:
    print(f"FUZZ_SEED={SEED}")
    random = Random(SEED)
    async with guarded(tmp_path) as (api, tokens):
        bad_headers = BadHeaders(random, tokens)
        routes = routes_of((await api.call("GET", "/openapi.json"))[0])
        assert len(routes) == len(OPERATIONS)
        with capture_logs() as logs:
            for number in range(TRIES):
                method, path, needed = random.choice(routes)
                header, known = bad_headers.to(needed)
                async with api.client.request(
                    method,
                    path.replace("{id}", random.choice(IDS)),
                    data=body_of(random),
                    headers={"Authorization": header, "Idempotency-Key": f"k-{random.randrange(50)}"},
                ) as answer:
                    assert answer.status in ({403} if known else {401, 429}), (number, method, path, header)
        assert api.driver.published == []
        assert api.asked == []
        assert refused_of(api) == TRIES
        said = str(logs)
        assert not [secret for secret in bad_headers.secrets if secret.split("_", 2)[2] in said]


# ---- NATS

ENTITIES = ("n-2", "job-1", "plan-0-0", "*", "n-1.x", "n-10")
SERVICES = tuple(name for name in OWN if name != "agent")


def forbidden(random: Random) -> Iterator[str]:
    """Subjects on which the agent of n-1 may not publish."""
    agents_own = {kind.tag() for kind in OWN["agent"]}
    facts = tuple(kind for kind in FACTS.values() if kind.tag() not in agents_own)
    keys = ("cursor/{}", "service/{}", "quarantine/{}", "lease/{}", "settings", "planner/policy")
    agents_keys = ("cursor/agent-{}", "claim/{}", "snapshot/agent-{}", "quarantine/agent-{}")
    requests = ("CREATE", "UPDATE", "DELETE", "PURGE", "INFO", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE")
    reads = ("facts", "value", "place")
    consumers = ("CREATE", "DURABLE.CREATE", "DELETE", "INFO", "MSG.NEXT", "PAUSE", "LIST", "NAMES")
    makers = (
        lambda: subject_of(random.choice(facts), "n-1"),
        lambda: subject_of(random.choice(tuple(FACTS.values())), random.choice(ENTITIES)),
        lambda: sample_subject(
            random.choice((Heartbeat, ThroughputObserved)), random.choice(("n-2", "n-10"))
        ),
        lambda: state_subject(random.choice(keys).format(random.choice(SERVICES))),
        lambda: state_subject(random.choice(agents_keys).format("n-2")),
        lambda: f"$KV.{STATE_BUCKET}.{random.choice(agents_keys).format('n-1')}",
        lambda: f"$O.{SNAPSHOT_BUCKET}.{random.choice('MC')}.{random.choice(SERVICES)}",
        lambda: f"{API}.{random.choice(requests)}.{random.choice(STREAMS)}",
        lambda: f"$JS.API.CONSUMER.{random.choice(consumers)}.{random.choice(STREAMS)}.x",
        lambda: f"$JS.API.CONSUMER.CREATE.{FACTS_STREAM}.x.hopyard.node.n-1.joined",
        lambda: f"$JS.API.DIRECT.GET.{random.choice(STREAMS)}",
        lambda: random.choice(("$JS.API.INFO", "$JS.ACK.x", "$JS.FC.x", "$SYS.REQ.SERVER.PING", "$SRV.PING")),
        lambda: f"hopyard.ask.{random.choice((*SERVICES, 'agent.n-1', 'agent.n-2'))}",
        lambda: f"hopyard-read.{random.choice(('n-2', '*', '_'))}.{random.choice(reads)}",
        lambda: f"hopyard-parts.{random.choice(NODES)}.x",
        lambda: f"hopyard-dead.{random.choice(SERVICES)}",
        lambda: f"_INBOX.{random.choice((*OF_STACK, 'agent-n-2', ROGUE))}.x",
        lambda: "".join(random.choice("hopyard.$_-*jn12") for _ in range(12)).strip(".").replace("..", ".x."),
    )
    while True:
        subject = random.choice(makers)()
        if subject:
            yield subject


async def stored_in(service: Raw) -> dict[str, int]:
    """How many messages each stream has taken."""
    stream = service.client.jetstream()
    names = (*STREAMS, "HOPYARD-SAMPLES", "HOPYARD-DEAD")
    return {name: (await stream.stream_info(name)).state.last_seq for name in names}


@asynccontextmanager
async def guarded_bus(folder: Path) -> AsyncIterator[Guarded]:
    guarded = Guarded(folder)
    await guarded.server.start()
    try:
        async with guarded.bus("admission"):
            yield guarded
    finally:
        await guarded.server.stop()


async def test_no_message_of_an_agent_is_stored_on_a_subject_it_may_not_use(tmp_path: Path) -> None:
    print(f"FUZZ_SEED={SEED}")
    random = Random(SEED)
    subjects = forbidden(random)
    data = (b"", b"{}", msgspec.json.encode(plan()), msgspec.json.encode(joined("n-2")), bytes(300))
    async with (
        guarded_bus(tmp_path) as guarded,
        guarded.bus("planner") as planner,
        guarded.raw("admission") as service,
        guarded.raw(ROGUE) as client,
    ):
        await planner.put("lease/planner", b"me")
        before = await stored_in(service)
        refused = tries = 0
        while tries < TRIES:
            for _ in range(AT_ONCE):
                subject, reply = next(subjects), random.choice(("", "", state_subject("lease/planner")))
                await client.client.publish(subject, random.choice(data), reply=reply)
            tries += AT_ONCE
            refused += await client.refusals()
        assert refused == tries
        assert await stored_in(service) == before
        log = (tmp_path / "nats" / "nats-server.log").read_text()
        assert log.count("Publish Violation") == tries
        assert (
            msgspec.json.decode((tmp_path / "credentials/nats/agent-n-1.json").read_bytes())["password"]
            not in log
        )
