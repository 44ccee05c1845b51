"""Every round that the authors' scheduler recorded, decided by the shipped policy from views."""

import pytest

from services.planner.policies.gavel.policy import GavelOptions
from tests.services.planner.policies.gavel.gavel_replay import OBJECTIVES, Json, Recorded, rounds
from tests.services.planner.policies.gavel.test_golden import every_run


def replayer(run: Json) -> Recorded:
    return Recorded(
        GavelOptions(objective=OBJECTIVES[run["policy"]], faithful=True, reset_s=run["reset_interval_s"])
    )


@every_run
def test_every_round_of_a_run_is_the_authors(run: Json) -> None:
    """Who is there and when, whether shares are computed, and the workers of every job, ids included."""
    for record, ours in rounds(run, replayer(run)):
        assert ours.time == pytest.approx(record["time"], rel=1e-12)
        assert ours.jobs == list(record["jobs"])
        assert ours.computed is record["planner_ran"], ours.time
        theirs = {job: tuple(own["worker_ids"]) for job, own in record["assignment"].items()}
        assert ours.workers == theirs, ours.time


@every_run
def test_deficits_of_a_run_are_the_authors(run: Json) -> None:
    for record, ours in rounds(run, replayer(run)):
        if record["planner_ran"]:
            for job, owed in ours.deficit.items():
                for name, theirs in record["deficit"][job].items():
                    assert owed.get(name, 0.0) == pytest.approx(theirs, abs=1e-6), (ours.time, job)


@every_run
def test_shares_of_a_run_are_as_good_as_the_authors(run: Json) -> None:
    """With what the policy knows, the authors' shares are the best that its objective can have.

    Of finish-time fairness this holds only while the time on 1/m of the cluster is computed as theirs is.
    """
    policy = replayer(run)
    for _ in rounds(run, policy):
        pass
    assert bool(policy.objectives) is (run["policy"] != "fifo_perf")
    for theirs, own in policy.objectives:
        assert theirs == pytest.approx(own, rel=1e-5)
