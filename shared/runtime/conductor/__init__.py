"""Every service of a simulation without an event loop: one queue of timers, and turns taken by a rule.

The conductor calls the cores directly, and hands messages on without encoding them. It drives the coroutines
of services by hand: they await their ports alone, and these tell it what they wait for. Services take turns
by the rule of `shared.runtime.shell.turns`, so a run has the same facts as with the asyncio shell on virtual
time.
"""

from shared.runtime.conductor.conducted_shell import ConductedShell
from shared.runtime.conductor.conductor import Conductor, Stalled

__all__ = ["ConductedShell", "Conductor", "Stalled"]
