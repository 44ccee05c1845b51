"""What the planner says of a policy before it is chosen."""

from schemas.questions import JudgePolicy, PolicyVerdict, Refused
from schemas.settings import Settings
from services.planner.core.planner import Planner
from services.planner.core.tasks import Judge, Judged, Look
from services.planner.solver.effort import Effort
from shared.domain.core import Asked, Effects, Reply, Work, WorkFailed

LAS = "las+thresholds=1"


def planner() -> Planner:
    core = Planner(Settings(), effort=Effort(), grace_s=1.0)
    core.resume(0.0)
    return core


def asked(core: Planner, ticket: int, policy: str = LAS) -> Effects:
    return core.handle(Asked(ticket, JudgePolicy(policy=policy)), 1.0)


def test_a_policy_check_is_answered_once_the_policy_was_judged() -> None:
    core = planner()
    assert asked(core, 1) == [Work(Judge(policy=LAS))]
    assert core.handle(Judged(policy=LAS, unfit="it has none"), 2.0) == [
        Reply(1, PolicyVerdict(unfit="it has none"))
    ]


def test_equal_policy_checks_share_one_judgement() -> None:
    core = planner()
    looks = [asked(core, 1), asked(core, 2), asked(core, 3, "fifo")]
    assert looks == [[Work(Judge(policy=LAS))], [], [Work(Judge(policy="fifo"))]]
    assert core.handle(Judged(policy=LAS, unfit=""), 2.0) == [
        Reply(1, PolicyVerdict(unfit="")),
        Reply(2, PolicyVerdict(unfit="")),
    ]
    assert asked(core, 4) == [Work(Judge(policy=LAS))]


def test_a_look_that_failed_is_no_verdict() -> None:
    core = planner()
    asked(core, 1)
    [reply] = core.handle(WorkFailed(Judge(policy=LAS), "TimeoutError"), 2.0)
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, Refused)


def test_judging_a_policy_does_not_choose_it() -> None:
    core = planner()
    asked(core, 1, "nobody")
    core.handle(Judged(policy="nobody", unfit="unknown"), 2.0)
    assert core.troubles() == ()
    assert core.handle(WorkFailed(Look(policy="hops"), "late"), 3.0) == []
