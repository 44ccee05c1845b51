"""One trial in a process of its own: `python -m hopyard.lab.runs.worker OUTCOME [EVENTS] < TRIAL`.

Ends with 0 and the outcome in its file, or with a line or a traceback and without one. While it runs it
prints the share of a simulation that is done, a number a line.
"""

import gzip
import sys
import time
from pathlib import Path

import msgspec

from hopyard.lab.runs.cache import keep
from hopyard.lab.runs.outcomes import simulated
from hopyard.lab.runs.trials import Bounding, Outcome, Simulation, Solving, StoredOutcome, Trial
from loadgen.progress import Progress, Watch
from schemas.settings import Settings
from shared.domain.audit import audit
from shared.runtime.disk import naming, sync
from shared.runtime.process.logs import configure_logs

PRINT_EVERY_S = 0.5


def main() -> None:
    configure_logs(Settings(log_level="error", log_format="console"))
    trial = msgspec.json.decode(sys.stdin.buffer.read(), type=Trial)
    events = Path(sys.argv[2]) if len(sys.argv) > 2 else None  # noqa: PLR2004 - the second argument
    began = time.monotonic()
    outcome = performed(trial, events, _printed())
    keep(Path(sys.argv[1]), StoredOutcome(trial=trial, outcome=outcome, wall_s=time.monotonic() - began))


def _printed() -> Watch:
    """A watch that prints the progress, at most once in PRINT_EVERY_S."""
    last = -PRINT_EVERY_S

    def watch(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PRINT_EVERY_S:
            last = now
            sys.stdout.write(f"{progress.share:.4f}\n")
            sys.stdout.flush()

    return watch


def performed(trial: Trial, events_file: Path | None = None, watch: Watch | None = None) -> Outcome:
    """`events_file`: for a simulation's event log, compressed; `watch`: called with the progress."""
    match trial:
        case Simulation():
            return _simulate(trial, events_file, watch)
        case Solving():
            from hopyard.lab.runs.solving import solved  # noqa: PLC0415 - brings the solver

            return solved(trial)
        case Bounding():
            from hopyard.lab.runs.bounding import bounded  # noqa: PLC0415 - brings a solver

            return bounded(trial)


def _simulate(trial: Simulation, events_file: Path | None, watch: Watch | None) -> Outcome:
    from loadgen.simulation import simulate  # noqa: PLC0415 - brings every service
    from loadgen.stack import Endless  # noqa: PLC0415 - as above

    try:
        run = simulate(
            trial.scenario, policy=trial.policy, seed=trial.seed, overrides=trial.overrides, watch=watch
        )
    except Endless as error:  # no bug, but a job that is too long
        sys.exit(str(error))
    if events_file is not None:
        with naming(events_file):
            with gzip.open(events_file, "wb") as file:
                file.writelines(msgspec.json.encode(event) + b"\n" for event in run.events)
            sync(events_file)
    drained = not run.result.waiting
    return simulated(run.result, run.events, audit(run.events, drained=drained, seqs=run.seqs))


if __name__ == "__main__":
    main()
