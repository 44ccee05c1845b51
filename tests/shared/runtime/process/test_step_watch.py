"""What holds up the start or the end of a service is named, also where it holds up the event loop."""

import asyncio
import time
from collections.abc import MutableMapping, Sequence
from typing import Any

from structlog.testing import capture_logs

from shared.runtime.offload import LiveOffload
from shared.runtime.process.step_watch import StepWatch
from shared.runtime.shell.mailbox import Mailbox

LATE_S = 0.05
LIMIT_S = 60.0

Logs = Sequence[MutableMapping[str, Any]]


def steps() -> StepWatch:
    return StepWatch("placer", LATE_S)


async def test_the_place_where_a_task_waits_is_logged_repeatedly() -> None:
    ours = steps()
    waiting = asyncio.create_task(Mailbox(1).wait())
    with capture_logs() as logs:
        ours.begin("its post")
        async with asyncio.timeout(LIMIT_S):
            while len(logs) < 3:
                await asyncio.sleep(LATE_S / 10)
        ours.end()
    waiting.cancel()
    first, second, third = logs[:3]
    assert (first["event"], first["log_level"], first["service"]) == ("held up", "warning", "placer")
    assert {one["by"] for one in logs} == {"its post"}
    assert [one["for_s"] for one in (first, second, third)] == [LATE_S, 2 * LATE_S, 4 * LATE_S]
    (place,) = first["at"]
    assert place.startswith("shared/runtime/shell/mailbox.py:")
    assert place.endswith(" wait")


async def test_the_place_that_blocks_the_event_loop_is_logged() -> None:
    ours, lane = steps(), LiveOffload().lane("store")
    work = asyncio.create_task(lane.do(time.sleep, 10 * LATE_S))
    await asyncio.sleep(0)
    with capture_logs() as logs:
        ours.begin("its files")
        lane.close()
        ours.end()
    await work
    places = {place for one in logs for place in one["at"]}
    assert any("offload/live.py" in place and place.endswith(" close") for place in places)


async def test_a_step_that_is_over_is_not_named() -> None:
    ours = steps()
    with capture_logs() as logs:
        ours.begin("the first")
        ours.begin("the second")
        async with asyncio.timeout(LIMIT_S):
            while not logs:
                await asyncio.sleep(LATE_S / 10)
        ours.end()
        said = len(logs)
        await asyncio.sleep(10 * LATE_S)
    assert {one["by"] for one in logs} == {"the second"}
    assert len(logs) == said
