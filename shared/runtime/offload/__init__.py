"""The port for heavy work: done inline, in a thread, or in a process that can be ended.

A service asks for a lane or a helper process and does not know how it is run. `LiveOffload` is for live
services, `InlineOffload` for virtual time, where seconds must not decide, and for tests.
"""

from shared.runtime.offload.contract import Crashed, HelperProcess, Lane, Offload, Server
from shared.runtime.offload.inline import INLINE, InlineOffload
from shared.runtime.offload.live import LiveOffload

__all__ = ["INLINE", "Crashed", "HelperProcess", "InlineOffload", "Lane", "LiveOffload", "Offload", "Server"]
