"""Every service of a simulation without an event loop: one queue of timers, and turns taken by a rule.

The cores are called directly, messages are handed on as they are, and a coroutine of a service is driven by
hand: it awaits its ports alone, and these say what it waits for. The rule of `shared.runtime.shell.turns`
holds, so a run has the same facts as with the asyncio shell on virtual time.
"""

from shared.runtime.conductor.conducted_shell import ConductedShell
from shared.runtime.conductor.conductor import Conductor, Stalled

__all__ = ["ConductedShell", "Conductor", "Stalled"]
