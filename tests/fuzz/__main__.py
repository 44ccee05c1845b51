"""`python -m tests.fuzz --minutes 10`: a stack hears, on every subject, what is not to be believed.

Half of the time services tell what cannot be, and the agent of one node what it likes of that node: no
process ends, jobs end, and the log keeps the rules of the audit. Half of the time services lie about what
could be as well: no process ends. `--seed`: by default of this moment; what is said follows from it and from
the stack's own log. `--rate`: messages a second. The exit code is 1 if something was found.
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
        print("services lie:" if lying else "a rogue agent, and what cannot be:")
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
