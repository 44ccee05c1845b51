"""Heavy work, inline and beside the loop: the same answers, in the order in which they were asked for."""

import asyncio
import atexit
import multiprocessing
import os
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from shared.runtime.offload import INLINE, Crashed, LiveOffload, Offload, live

BOTH = pytest.mark.parametrize("offload", [INLINE, LiveOffload()], ids=["inline", "beside"])
LIMIT_S = 60.0


class Doubles:
    """A server; `exit` ends its process, `eat` takes a gibibyte, `linger` fails with much to take down.

    `hang` gets no answer; `fork` is answered by a fork too; `open` leaves one file too many open.
    """

    def __init__(self, start: int) -> None:
        self._done = start
        self._files: list[int] = []

    def warm(self) -> None:
        pass

    def answer(self, request: int | str) -> tuple[int, int, int]:
        if request == "exit":
            os._exit(3)
        if request == "eat":
            bytearray(2**30)
        if request == "linger":
            atexit.register(time.sleep, 600.0)
        if request == "hang":
            time.sleep(600.0)
        if request == "fork":
            os.fork()
            return 0, self._done, os.getpid()
        if request == "open":
            self._files += [os.open(os.devnull, os.O_RDONLY) for _ in range(live.FILES_AT_MOST + 1)]
            return 0, self._done, os.getpid()
        assert isinstance(request, int)
        return 2 * request, self._done, os.getpid()

    def after_answer(self) -> None:
        self._done += 1


@BOTH
async def test_a_lane_does_one_thing_after_the_other(offload: Offload) -> None:
    lane, done = offload.lane("test"), list[int]()
    await asyncio.gather(*(lane.do(done.append, number) for number in range(20)))
    lane.close()
    assert done == list(range(20))


@BOTH
async def test_an_error_in_a_lane_is_raised_at_its_caller(offload: Offload) -> None:
    lane = offload.lane("test")
    with pytest.raises(ZeroDivisionError):
        await lane.do(divmod, 1, 0)
    assert await lane.do(divmod, 7, 2) == (3, 1)
    lane.close()


@BOTH
async def test_a_helper_process_answers_and_does_the_rest_afterwards(offload: Offload) -> None:
    helper = offload.process("test", Doubles, 10)
    await helper.warm()
    assert [(await helper.call(number, LIMIT_S))[:2] for number in (1, 2)] == [(2, 10), (4, 11)]
    helper.end()


async def test_only_live_work_leaves_the_thread_and_the_process() -> None:
    for offload, apart in ((INLINE, False), (LiveOffload(), True)):
        lane, helper = offload.lane("test"), offload.process("test", Doubles, 0)
        assert (await lane.do(threading.get_ident) != threading.get_ident()) is apart
        assert ((await helper.call(1, LIMIT_S))[2] != os.getpid()) is apart
        lane.close()
        helper.end()


async def test_a_helper_process_that_ends_is_replaced() -> None:
    helper = LiveOffload().process("test", Doubles, 0)
    with pytest.raises(Crashed):
        await helper.call("exit", LIMIT_S)
    assert (await helper.call(4, LIMIT_S))[0] == 8
    helper.end()


async def test_a_fork_of_a_helper_process_answers_nothing() -> None:
    """Its answer would be taken for that to the next request, and so on to the end."""
    helper = LiveOffload().process("test", Doubles, 0)
    await helper.call("fork", LIMIT_S)
    assert [(await helper.call(number, LIMIT_S))[0] for number in range(1, 30)] == [*range(2, 60, 2)]
    helper.end()


async def test_a_helper_process_that_leaves_files_open_is_replaced() -> None:
    helper = LiveOffload().process("test", Doubles, 0)
    first = await helper.call(1, LIMIT_S)
    assert (await helper.call(1, LIMIT_S))[2] == first[2]
    assert (await helper.call("open", LIMIT_S))[2] == first[2]
    assert (await helper.call(1, LIMIT_S))[2] != first[2]
    helper.end()


async def test_after_a_call_that_was_cancelled_the_next_gets_its_own_answer() -> None:
    helper = LiveOffload().process("test", Doubles, 0)
    await helper.warm()
    await cancelled(helper.call("hang", LIMIT_S))
    assert (await helper.call(4, LIMIT_S))[0] == 8
    helper.end()


async def test_a_start_that_was_cancelled_leaves_no_process() -> None:
    helper = LiveOffload().process("test", Doubles, 0)
    await cancelled(helper.call(1, LIMIT_S))
    assert multiprocessing.active_children() == []
    assert (await helper.call(4, LIMIT_S))[0] == 8
    helper.end()


async def test_a_helper_process_that_was_not_ready_in_time_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helper = LiveOffload().process("test", Doubles, 0)
    with monkeypatch.context() as hurried:
        hurried.setattr(live, "START_REAL_S", 0.0)
        await helper.warm()
    assert (await helper.call(4, LIMIT_S))[0] == 8
    helper.end()


async def cancelled(call: Coroutine[Any, Any, object]) -> None:
    """Begin a call, and cancel it as soon as it waits for its thread."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("asked", "code"), [("exit", 3), ("linger", 1)])
async def test_the_end_of_a_helper_process_is_described(asked: str, code: int) -> None:
    helper = LiveOffload().process("test", Doubles, 0)
    with pytest.raises(Crashed, match=f"the process ended with exit code {code}"):
        await helper.call(asked, LIMIT_S)
    helper.end()


async def test_a_helper_process_has_no_more_memory_than_it_may() -> None:
    helper = LiveOffload().process("test", Doubles, 0, memory_bytes=2**30)
    assert (await helper.call(4, LIMIT_S))[0] == 8
    with pytest.raises(Crashed, match="the process ended with exit code 1"):
        await helper.call("eat", LIMIT_S)
    assert (await helper.call(4, LIMIT_S))[0] == 8
    helper.end()
