"""False messages from each account of a stack, on every subject on which it may publish.

A service sends what every reader must refuse: noise, facts that are nearly valid but impossible, repeated
facts out of order, facts on wrong subjects. With `lying` it also sends possible facts that are not true. The
rogue agent of one node sends any facts of its node.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from hopyard.local.accounts import OF_STACK, agent_of, permissions_of
from loadgen.simulation import simulate
from schemas.base import Event
from schemas.codec import Malformed
from schemas.events import FACTS
from schemas.subjects import STATE_SUBJECT, is_subject_of
from shared.domain.invariants import read_fact
from tests.fuzz.inputs import QUESTIONS, SAMPLES
from tests.fuzz.mutation import Mutator, Raw, as_it_travels, encoded, with_node
from tests.simulation.storms import SMALL

TRIES = 8
NAMES = ("distributed-1", "plan-0-0", "nobody", "x", "planner")
KINDS = frozenset(FACTS)
NEVER = (
    f"{STATE_SUBJECT}.lease/",
    "$JS.API.STREAM.CREATE.",
    "$JS.API.STREAM.UPDATE.",
    "$JS.API.STREAM.PURGE.",
)
"""subjects by which an account may end its own lead and change or empty its streams; they are left out"""


class Letter(NamedTuple):
    user: str
    """account that sends it"""
    subject: str
    data: bytes
    headers: dict[str, str]
    asks: bool
    """whether it asks for a reply"""


class Place(NamedTuple):
    """A subject on which an account may publish, with its wildcards."""

    user: str
    subject: str
    group: str


WEIGHTS = {
    "fact": 50,
    "sample": 10,
    "ask": 12,
    "value": 8,
    "read": 8,
    "parts": 2,
    "dead": 2,
    "snapshot": 3,
    "api": 3,
    "reply": 3,
    "led": 0.5,
}
GROUPS = (
    ("hopyard.service.", "led"),
    ("hopyard.ask.", "ask"),
    ("hopyard.", "fact"),
    ("hopyard-sample.", "sample"),
    ("hopyard-read.", "read"),
    ("hopyard-parts.", "parts"),
    ("hopyard-dead.", "dead"),
    (f"{STATE_SUBJECT}.", "value"),
    ("$O.", "snapshot"),
    ("$JS.", "api"),
    ("_INBOX.", "reply"),
    ("_R_.", "reply"),
)


def places(users: tuple[str, ...]) -> list[Place]:
    """Every place that the server's permissions have, except those of NEVER."""
    found = [
        Place(user, subject, next(group for prefix, group in GROUPS if subject.startswith(prefix)))
        for user in users
        for subject in permissions_of(user).publish
        if not subject.startswith(NEVER)
    ]
    return list(dict.fromkeys(found))  # one may be allowed twice


class Senders:
    """Makes false messages from a seed. After `learn`, they name jobs and placements that exist."""

    def __init__(self, seed: str, rogue: str, *, lying: bool) -> None:
        """`rogue`: the node whose agent is rogue; empty: none."""
        self._random = Random(seed)
        self._rogue = rogue
        self._lying = lying
        story = [as_it_travels(event) for event in simulate(SMALL, policy="hops").events]
        self._inputs = {
            "ask": [as_it_travels(each) for each in QUESTIONS],
            "sample": [as_it_travels(each) for each in SAMPLES],
        }
        self._mutator = Mutator(seed, [*story, *self._inputs["ask"], *self._inputs["sample"]])
        self._facts: dict[str, list[Raw]] = {}
        for raw in story:
            self._facts.setdefault(raw["fact"], []).append(raw)
        self._said: dict[str, list[Event]] = {}
        """facts of the stack's log, by kind"""
        self._names = list(NAMES)
        users = (*OF_STACK, agent_of(rogue)) if rogue else OF_STACK
        self._places: dict[str, list[Place]] = {}
        for place in places(users):
            self._places.setdefault(place.group, []).append(place)
        self.spoke: Counter[Place] = Counter()
        self._make: dict[str, Callable[[str, str], bytes]] = {
            "fact": self._fact,
            "led": self._noise,
            "ask": lambda *_: self._mutator.mutated(self._random.choice(self._inputs["ask"])),
            "sample": lambda *_: self._mutator.mutated(
                self._node(self._random.choice(self._inputs["sample"]))
            ),
            "read": self._read,
        }

    @property
    def places(self) -> list[Place]:
        return [place for group in self._places.values() for place in group]

    def learn(self, event: Event) -> None:
        """Take in a fact of the stack's log."""
        raw = as_it_travels(event)
        self._mutator.learn(raw)
        self._said.setdefault(event.tag(), []).append(event)
        self._facts.setdefault(event.tag(), []).append(raw)
        self._names.append(event.subject.split(".")[2])

    def letters(self) -> Iterator[Letter]:
        groups = list(self._places)
        weights = [WEIGHTS[group] for group in groups]
        unheard = self.places  # each once, and then by weight
        self._random.shuffle(unheard)
        while True:
            (group,) = self._random.choices(groups, weights)
            place = unheard.pop() if unheard else self._random.choice(self._places[group])
            self.spoke[place] += 1
            yield self._letter(place)

    def _letter(self, place: Place) -> Letter:
        random = self._random
        if place.group == "fact" and random.random() < 0.25 and (again := self._again(place)):
            return again
        subject = self._filled(place)
        make = self._make.get(place.group, self._noise)
        data = make(place.user, subject)
        if place.group == "fact" and self._believed_of(place.user) and random.random() < 0.8:
            subject = self._where(place, data, subject)
        asks = place.group in {"ask", "read", "parts", "api"} or random.random() < 0.02
        return Letter(place.user, subject, data, self._headers(), asks)

    def _again(self, place: Place) -> Letter | None:
        """A late repetition of a fact in the log, on its own subject; None: there is no such fact."""
        kinds = self._said.get(_tag(place.subject), [])
        own = [event for event in kinds if not self._is_rogue(place.user) or self._rogue in event.subject]
        if not own:
            return None
        event = self._random.choice(own)
        headers = {} if self._random.random() < 0.7 else {"Nats-Msg-Id": event.event_id}
        return Letter(place.user, event.subject, encoded(as_it_travels(event)), headers, asks=False)

    def _filled(self, place: Place) -> str:
        """The subject, with names in place of its wildcards."""
        tokens = [
            self._random.choice(self._names) if each == "*" else each for each in place.subject.split(".")
        ]
        return ".".join(tokens).replace(">", self._random.choice(("x", "x.y", "HOPYARD.x")))

    def _where(self, place: Place, data: bytes, subject: str) -> str:
        """The right subject of a fact that the account may publish; for anything else, `subject`."""
        try:
            event = read_fact(data)
        except Malformed:
            return subject
        own = event is not None and event.tag() == _tag(subject)
        if (
            event is None
            or not own
            or (self._is_rogue(place.user) and f".{self._rogue}." not in event.subject)
        ):
            return subject
        return event.subject

    def _headers(self) -> dict[str, str]:
        """Mostly none; else the id of another fact, which is stored or may be later."""
        if self._random.random() < 0.9:
            return {}
        kind, name = self._random.choice(sorted(KINDS)), self._random.choice(self._names)
        known = self._said.get(kind)
        there = known and self._random.random() < 0.5
        return {"Nats-Msg-Id": self._random.choice(known).event_id if known and there else f"{kind}/{name}"}

    def _noise(self, *_: str) -> bytes:
        return self._random.choice(
            (b"", b"\xc1", b"{}", b"null", self._random.randbytes(self._random.randrange(400)))
        )

    def _read(self, *_: str) -> bytes:
        some: Raw = {"after": self._random.randrange(100), "key": f"cursor/agent-{self._rogue}"}
        return self._noise() if self._random.random() < 0.3 else self._mutator.mutated(some)

    def _fact(self, user: str, subject: str) -> bytes:
        for _ in range(TRIES):
            data = self._any_fact(subject)
            if self._believed_of(user) or not _believed(data, subject):
                return data
        return self._noise()

    def _any_fact(self, subject: str) -> bytes:
        random = self._random
        own = self._facts.get(_tag(subject)) if random.random() < 0.8 else None
        raw = random.choice(own or self._facts[random.choice(sorted(self._facts))])
        fate = random.random()
        if fate < 0.1:
            return self._noise()
        if self._rogue and f".{self._rogue}." in subject:
            raw = self._node(raw)
        return encoded(raw) if fate < 0.25 else self._mutator.mutated(raw)

    def _node(self, raw: Raw) -> Raw:
        """The message, in most cases about the rogue's node."""
        return with_node(raw, self._rogue) if self._rogue and self._random.random() < 0.9 else raw

    def _believed_of(self, user: str) -> bool:
        """Whether the account sends false facts that are possible, which readers believe."""
        return self._lying or self._is_rogue(user)

    def _is_rogue(self, user: str) -> bool:
        return user not in OF_STACK


def _tag(subject: str) -> str:
    _, entity, _, fact = subject.split(".")
    return f"{entity}.{fact}"


def _believed(data: bytes, subject: str) -> bool:
    """Whether a reader would accept it as a fact."""
    try:
        event = read_fact(data)
    except Malformed:
        return False
    return event is not None and is_subject_of(event, subject)
