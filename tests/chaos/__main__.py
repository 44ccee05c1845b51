"""`python -m tests.chaos --events 1e6`: stories by seeds until there are so many facts; then the figures.

A story that breaks a rule is played again with ever fewer strikes, and the shortest that still breaks it is
printed; then the exit code is 1. `--seed`: the first one, by default of this moment.
"""

import argparse
import logging
import resource
import secrets
import time
from collections import Counter

import structlog

from tests.chaos.faults import FAULTS
from tests.chaos.storm import Played, Story, shortest, story, tell
from tests.programs import run

SEEDS = 2**31
SAY_EVERY = 100_000
"""events between two lines about how far it is"""


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--events", type=float, default=1e6)
    parser.add_argument("--seed", type=int)
    chosen = parser.parse_args()
    first = secrets.randbelow(SEEDS) if chosen.seed is None else chosen.seed
    print(f"first seed {first}", flush=True)
    hits, events, seed = Counter[int](), 0, first
    while events < chosen.events:
        played = tell(story(seed))
        hits.update(played.hits)
        before, events = events, events + played.events
        if events // SAY_EVERY > before // SAY_EVERY:
            print(f"{events} events, {_cpu_s():.0f} s of CPU", flush=True)
        if played.broken:
            _say_shortest(played)
            return 1
        seed += 1
    _say_figures(seed - first, events, hits)
    return 0


def _say_figures(stories: int, events: int, hits: Counter[int]) -> None:
    print(f"{events} events in {stories} stories; {_cpu_s():.0f} s of CPU; all rules held")
    for number, fault in FAULTS.items():
        print(f"{number:2} {fault.words:50} {hits[number]:7}")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say_shortest(played: Played) -> None:
    print(f"seed {played.story.seed} breaks: {played.broken[0]}")
    began = time.perf_counter()
    kind = played.broken[0].partition(":")[0]

    def fails(fewer: Story) -> bool:
        return any(one.startswith(kind) for one in tell(fewer).broken)

    short = shortest(played.story, fails)
    strikes = f"{len(short.actions)} of {len(played.story.actions)} strikes"
    print(f"still breaks with {strikes} ({time.perf_counter() - began:.0f} s to find out):")
    for action in short.actions:
        print(f"  {FAULTS[action.fault].words}: {action}")


if __name__ == "__main__":
    run(main)
