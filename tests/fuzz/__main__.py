"""`python -m tests.fuzz --minutes 10`: sends false messages to a stack, on every subject.

Half of the time services send impossible facts, and the rogue agent of one node any facts of that node: no
process may end, jobs must end, and the log must keep the rules of the audit. Half of the time services also
send possible facts that are not true: no process may end. `--seed`: random by default; messages follow from
it and from the stack's log. `--rate`: messages a second. The exit code is 1 if a fault was found.
"""

import argparse
import asyncio
import resource
import secrets
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import Campaign, Outcome, run_campaign
from tests.programs import run

SEEDS = 2**31
REASONS = 12


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default=str(secrets.randbelow(SEEDS)))
    parser.add_argument("--rate", type=float, default=60.0)
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    faults = 0
    for lying in (False, True):
        campaign = Campaign(seed=chosen.seed, seconds=chosen.minutes * 30.0, rate=chosen.rate, lying=lying)
        with tempfile.TemporaryDirectory(prefix="hopyard-fuzz-") as folder:
            outcome = asyncio.run(run_campaign(Path(folder) / "data", campaign))
        print("services send possible facts, too:" if lying else "a rogue agent, and impossible facts:")
        _say(outcome)
        faults += len(outcome.faults)
    for who, what in (("this process", resource.RUSAGE_SELF), ("the stacks", resource.RUSAGE_CHILDREN)):
        used = resource.getrusage(what)
        print(f"{used.ru_utime + used.ru_stime:.0f} s of CPU: {who}")
    return 1 if faults else 0


def _say(outcome: Outcome) -> None:
    print(f"  {outcome.sent.total()} messages: {dict(outcome.sent.most_common())}")
    print(f"  not said on {outcome.unspoken} subjects")
    print(f"  jobs {outcome.jobs}; {outcome.facts} facts; {outcome.blamed} rules broken by the rogue at home")
    print(f"  dead letters {outcome.dead}")
    for reason, count in outcome.reasons.most_common(REASONS):
        print(f"  {count:6} {reason}")
    for fault in outcome.faults:
        print(f"  FOUND {fault}")
    sys.stdout.flush()


if __name__ == "__main__":
    run(main)
