"""No fact, sample or question ends a service, now or at a replay."""

import os
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from random import Random

import pytest

from loadgen.simulation import simulate
from schemas.base import Message
from tests.fuzz.fed import CORES, Fed
from tests.fuzz.inputs import QUESTIONS, SAMPLES
from tests.fuzz.mutation import Mutator, Raw, as_it_travels, encoded, in_another_story, names_in, out_of_order
from tests.simulation.storms import SMALL

MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "15000"))
"""number of messages for each service"""
SEED = os.environ.get("FUZZ_SEED", "1")
POLICIES = ("hops", "hadare", "jps")
"""their gangs are of every mode"""


@cache
def logs() -> tuple[list[Raw], ...]:
    return tuple(
        [as_it_travels(event) for event in simulate(SMALL, policy=policy).events] for policy in POLICIES
    )


def wild_facts(seed: str) -> Iterator[bytes]:
    """Whole logs one after the other, out of order, some of their messages nearly valid."""
    random = Random(seed)
    mutator = Mutator(seed, [raw for log in logs() for raw in log])
    stories = [(log, names_in(log)) for log in logs()]
    for number in count():
        log, names = random.choice(stories)
        moved = [in_another_story(raw, names, number, number * 3_000.0) for raw in log]
        for raw in out_of_order(random, moved):
            yield mutator.mutated(raw) if random.random() < 0.4 else encoded(raw)


def wild_inputs(seed: str, messages: Sequence[Message]) -> Iterator[bytes]:
    random = Random(seed)
    plain = [as_it_travels(message) for message in messages]
    mutator = Mutator(seed, [*plain, *logs()[0]])
    while True:
        yield mutator.mutated(random.choice(plain))


@pytest.mark.parametrize("name", CORES)
def test_no_fact_ends_a_service(name: str) -> None:
    seed = f"{name}/{SEED}"
    print(f"FUZZ_SEED={SEED}")
    fed, facts = Fed(name), wild_facts(seed)
    for seq in range(1, MESSAGES + 1):
        data = next(facts)
        try:
            fed.fact(seq, data)
            if seq % 2_000 == 0:
                fed.reborn()
        except Exception as error:
            raise AssertionError(f"{seed}: message {seq}: {data!r}") from error
    assert fed.read > fed.dead > MESSAGES // 100


@pytest.mark.parametrize("name", CORES)
def test_no_sample_and_no_question_ends_a_service(name: str) -> None:
    seed = f"{name}/inputs/{SEED}"
    print(f"FUZZ_SEED={SEED}")
    fed = Fed(name)
    facts, samples, questions = wild_facts(seed), wild_inputs(seed, SAMPLES), wild_inputs(seed, QUESTIONS)
    for seq in range(1, MESSAGES // 10):
        fed.fact(seq, next(facts))
        for give, inputs in ((fed.sample, samples), (fed.question, questions)):
            data = next(inputs)
            try:
                give(data)
            except Exception as error:
                raise AssertionError(f"{seed}: {data!r}") from error
    assert fed.read > MESSAGES // 10
