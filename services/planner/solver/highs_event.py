"""What HiGHS hands to a listener; its own module has no type for it."""

from typing import Protocol

import highspy


class HighsEvent(Protocol):
    data_out: highspy.cb.HighsCallbackOutput

    def interrupt(self, interrupt_value: bool = True) -> None: ...  # noqa: FBT001, FBT002 - theirs
