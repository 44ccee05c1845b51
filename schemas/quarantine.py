"""Facts on which a service ended: what its key `quarantine/SERVICE` in the state bucket holds."""

from schemas.base import Message
from schemas.numbers import WholeNumber

DEATHS_MAX = 2
"""failures on one fact after which the service skips it"""
KEPT = 100
"""how many facts are remembered for each service, the newest"""


class Death(Message, frozen=True, kw_only=True):
    """A fact that a service could not handle."""

    seq: WholeNumber
    """in the stream"""
    subject: str
    fact: str
    """its tag"""
    error: str
    """the type of the exception and its words"""
    deaths: WholeNumber = 1
    own: bool = False
    """the service published it itself: it may not pass it over, and stays down"""

    @property
    def passed_over(self) -> bool:
        return self.deaths >= DEATHS_MAX and not self.own

    @property
    def text(self) -> str:
        what = "stays down by its own fact" if self.own else "passed over"
        return f"{what} {self.seq} {self.subject}: {self.error}"


class Quarantine(Message, frozen=True, kw_only=True):
    deaths: tuple[Death, ...] = ()
    """ascending"""
    released: tuple[WholeNumber, ...] = ()
    """to be handled at the next start, in their places: by a replay without a snapshot"""

    @property
    def in_force(self) -> tuple[Death, ...]:
        return tuple([one for one in self.deaths if one.deaths >= DEATHS_MAX])


def key_of(service: str) -> str:
    """The service's key in the state bucket."""
    return f"quarantine/{service}"
