"""The type of the events that HiGHS passes to a callback, which its own module lacks."""

from typing import Protocol

import highspy


class HighsEvent(Protocol):
    data_out: highspy.cb.HighsCallbackOutput

    def interrupt(self, interrupt_value: bool = True) -> None: ...  # noqa: FBT001, FBT002 - HiGHS' own signature
