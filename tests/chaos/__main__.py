"""`python -m tests.chaos --events 1e6`: random cases until there are so many facts; then the figures.

A case that breaks a rule is run again with ever fewer faults, and the shortest that still breaks it is
printed; then the exit code is 1. `--seed`: the seed of the first case; by default it is drawn.
"""

import argparse
import logging
import resource
import secrets
import time
from collections import Counter

import structlog

from tests.chaos.faults import FAULTS
from tests.chaos.storm import Case, CaseResult, random_case, run_case, shortest
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
        result = run_case(random_case(seed))
        hits.update(result.hits)
        before, events = events, events + result.events
        if events // SAY_EVERY > before // SAY_EVERY:
            print(f"{events} events, {_cpu_s():.0f} s of CPU", flush=True)
        if result.broken:
            _say_shortest(result)
            return 1
        seed += 1
    _say_figures(seed - first, events, hits)
    return 0


def _say_figures(cases: int, events: int, hits: Counter[int]) -> None:
    print(f"{events} events in {cases} cases; {_cpu_s():.0f} s of CPU; all rules held")
    for number, fault in FAULTS.items():
        print(f"{number:2} {fault.words:50} {hits[number]:7}")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say_shortest(result: CaseResult) -> None:
    print(f"seed {result.case.seed} breaks: {result.broken[0]}")
    began = time.perf_counter()
    kind = result.broken[0].partition(":")[0]

    def fails(fewer: Case) -> bool:
        return any(one.startswith(kind) for one in run_case(fewer).broken)

    short = shortest(result.case, fails)
    faults = f"{len(short.actions)} of {len(result.case.actions)} faults"
    print(f"still breaks with {faults} ({time.perf_counter() - began:.0f} s to find out):")
    for action in short.actions:
        print(f"  {FAULTS[action.fault].words}: {action}")


if __name__ == "__main__":
    run(main)
