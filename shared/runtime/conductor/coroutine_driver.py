"""Drives coroutines without an event loop: each runs until it waits, and hands over what begins its wait."""

from collections.abc import Callable, Coroutine, Generator
from typing import Any

Wake = Callable[..., None]
"""resumes a driver with a value, or with `error=`; does nothing where the driver has gone on since"""
Begin = Callable[[Wake], object]
"""begins what the coroutine waits for, which calls the wake when it is done"""
Done = Callable[[Any, BaseException | None], None]


class Until:
    """Awaitable: its value is what `begin` passes to the wake."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Begin, Any, Any]:
        return (yield self._begin)


class CoroutineDriver:
    """Drives one coroutine. `done` is called with its result or its error, unless the driver was cut."""

    __slots__ = ("_coroutine", "_done", "_waits", "cut_off")
    running: "CoroutineDriver | None" = None
    """the driver whose coroutine runs at this moment"""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], done: Done) -> None:
        self._coroutine = coroutine
        self._done: Done | None = done
        """None: it has ended"""
        self._waits = 0
        """how often it has run: a wake from an earlier wait does nothing"""
        self.cut_off = False

    def go(self, value: object = None, error: BaseException | None = None) -> None:
        """Run until the coroutine waits, ends or raises."""
        outer, CoroutineDriver.running = CoroutineDriver.running, self
        self._waits += 1
        try:
            begin = self._coroutine.send(value) if error is None else self._coroutine.throw(error)
        except StopIteration as stop:
            result, failure = stop.value, None
        except Exception as raised:  # noqa: BLE001 - handed to the caller of `begin`
            result, failure = None, raised
        else:
            self._wait(begin)
            return
        finally:
            CoroutineDriver.running = outer
        done, self._done = self._done, None  # it often refers to the driver: a cycle costs a collection
        assert done is not None, "a driver ends once"
        done(result, failure)

    def _wait(self, begin: Begin) -> None:
        turn = self._waits

        def wake(value: object = None, error: BaseException | None = None) -> None:
            if self._waits == turn and not self.cut_off:
                self.go(value, error)

        begin(wake)

    def interrupt(self, error: BaseException) -> None:
        """Raise in the coroutine where it waits."""
        if not self.cut_off:
            self.go(error=error)

    def cut(self) -> None:
        """End it where it waits, as a cancelled task would."""
        self.cut_off, self._done = True, None
        self._coroutine.close()
