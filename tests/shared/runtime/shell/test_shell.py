"""What both shells do with a core: recovery, effects, timers, work and questions, under virtual time."""

import math

import pytest

from schemas.base import Event
from schemas.events import NodeEvent
from schemas.questions import ListNodes, Refused, ShowStatus
from schemas.settings import Settings
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.memory import Faults
from shared.runtime.clock import Clock
from shared.runtime.shell.handling import AHEAD_LIMIT_REAL_S
from shared.runtime.shell.virtual import LoopTurns
from tests.shared.runtime.shell.stages import (
    AFTER_S,
    TASK_S,
    Done,
    RestoreTask,
    Stage,
    Tell,
    drained,
    tell_by_the_conductor,
    tell_on_the_loop,
)


@pytest.fixture(params=[tell_on_the_loop, tell_by_the_conductor], ids=["asyncio", "conductor"])
def tell(request: pytest.FixtureRequest) -> Tell:
    whole: Tell = request.param
    return whole


def times(events: list[Event]) -> dict[tuple[str, str], float]:
    return {(event.tag(), event.node_id): event.at for event in events if isinstance(event, NodeEvent)}


def test_a_timer_wakes_the_core_and_the_task_s_answer_becomes_a_fact(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.publish(drained("a"))
        await stage.sleep(60)
        assert times(await stage.log())["node.restored", "a"] == pytest.approx(AFTER_S + TASK_S)

    tell(story)


def test_timers_ring_at_their_times_in_their_order(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.publish(drained("late", at=5.0), drained("soon", at=2.0))
        await stage.sleep(60)
        assert stage.core.woken == pytest.approx([12.0, 15.0])
        assert stage.core.state.restored == ["soon", "late"]

    tell(story)


def test_a_fact_far_ahead_of_the_clock_is_one_of_now(tell: Tell) -> None:
    """An agent may state any time; what follows from its facts is not ahead as well."""

    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.publish(drained("a", at=1e12), drained("b", at=AHEAD_LIMIT_REAL_S / 2))
        await stage.sleep(60)
        assert stage.core.woken == pytest.approx([AFTER_S, AHEAD_LIMIT_REAL_S / 2 + AFTER_S])

    tell(story)


def test_a_restart_replays_to_the_same_state_and_publishes_no_fact_twice(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        first = stage.core
        await stage.publish(*map(drained, "abc"))
        await stage.sleep(60)
        await stage.kill()
        before = await stage.log()
        await stage.start()
        await stage.sleep(60)
        assert stage.core is not first
        assert stage.core.state == first.state
        assert await stage.log() == before

    tell(story)


def test_a_task_that_a_crash_cut_off_is_done_in_the_next_life(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.publish(drained("a"))
        await stage.sleep(AFTER_S + TASK_S / 2)  # the task is being done
        await stage.kill()
        assert stage.core.state.restored == []
        await stage.start()
        await stage.sleep(60)
        assert stage.core.state.restored == ["a"]

    tell(story)


def test_facts_published_between_two_lives_are_read_in_the_next(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.sleep(1)
        await stage.kill()
        await stage.publish(drained("a", at=1.0))
        await stage.start()
        await stage.sleep(60)
        assert stage.core.state.restored == ["a"]

    tell(story)


def test_a_snapshot_spares_the_replay(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        first = stage.core
        await stage.publish(*(drained(f"n{index}") for index in range(50)))
        await stage.sleep(60)
        assert stage.counts.snapshots > 0
        await stage.kill()
        await stage.start()
        await stage.sleep(60)
        assert stage.core.state == first.state
        assert stage.core.handled < 100

    tell(story, settings=Settings(snapshot_every=10))


def test_facts_published_or_delivered_twice_are_handled_once(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.publish(*(drained(f"n{index}") for index in range(40)))
        await stage.sleep(120)
        seen = stage.core.state
        assert sorted(seen.drained) == sorted(f"n{index}" for index in range(40))
        assert sorted(seen.restored) == sorted(seen.drained)
        assert stage.counts.repeated > 0
        assert len(await stage.log()) > 80

    tell(story, faults=Faults(seed=3, duplicate=0.5, redeliver=0.5, delay_s=1.0))


def test_work_that_fails_comes_back_as_a_reason(tell: Tell) -> None:
    async def refuse(task: RestoreTask, _: Clock) -> Done:
        raise Unavailable(f"nobody does {task.node_id}")

    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.publish(drained("a"))
        await stage.sleep(60)
        assert stage.core.failures == ["Unavailable: nobody does a"]
        assert stage.counts.work_failed == 1

    tell(story, worker=refuse)


def test_work_that_never_ends_is_given_up(tell: Tell) -> None:
    async def hang(task: RestoreTask, clock: Clock) -> Done:
        await clock.sleep(math.inf)
        raise AssertionError(task)

    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.publish(drained("a"))
        await stage.sleep(AFTER_S + 29)
        assert stage.core.failures == []
        await stage.sleep(2)
        assert stage.core.failures == ["TimeoutError: "]

    tell(story, worker=hang, settings=Settings(work_timeout_real_s=30.0))


def test_an_answer_goes_out_after_its_facts_are_stored(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        answer = await stage.ask(ShowStatus())
        assert isinstance(answer, Refused)
        log = await stage.log()
        assert [event.node_id for event in log if isinstance(event, NodeEvent)][-1] == answer.reason
        assert len(log) == 2

    tell(story)


def test_the_asker_gets_the_error_of_a_core_that_fails_at_a_question_and_the_service_goes_on() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        with pytest.raises(ArithmeticError):
            await stage.ask(ListNodes())
        assert isinstance(await stage.ask(ShowStatus()), Refused)
        assert stage.counts.questions_failed == 1

    tell_on_the_loop(story)


def test_in_a_simulation_a_core_that_fails_at_a_question_ends_the_run() -> None:
    async def story(stage: Stage) -> None:
        await stage.start()
        await stage.sleep(1)
        with pytest.raises(Unavailable, match="has ended"):
            await stage.ask(ListNodes())

    tell_on_the_loop(story, turns=LoopTurns(0))
    with pytest.raises(ArithmeticError):
        tell_by_the_conductor(story)


def test_a_caller_that_waits_for_an_answer_gets_an_error_at_the_end(tell: Tell) -> None:
    async def story(stage: Stage) -> None:
        heard: list[str] = []

        async def ask() -> None:
            try:
                await stage.ask(ShowStatus())
            except Unavailable as error:
                heard.append(str(error))

        await stage.start()
        await stage.sleep(1)
        stage.beside(ask())
        await stage.kill()
        await stage.sleep(1)
        assert heard == ["restorer has ended"]
        assert await stage.log() == []
        await stage.start()

    tell(story)
