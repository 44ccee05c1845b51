"""Access to the API: roles, stored tokens, and the identity behind a request."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from schemas.base import File, Message
from schemas.jobs import User


class Role(StrEnum):
    """What the holder of a token may do; each role includes the roles above it in this list."""

    VIEWER = "viewer"
    """may read"""
    SUBMITTER = "submitter"
    """may submit jobs, and cancel those of its user"""
    OPERATOR = "operator"
    """may cancel any job, drain nodes and choose the policy"""

    def covers(self, needed: "Role") -> bool:
        return RANKS[self] >= RANKS[needed]


RANKS = {role: rank for rank, role in enumerate(Role)}

Note = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)",
        max_length=200,
        description="a line without control characters",
    ),
]


class TokenEntry(File, frozen=True, kw_only=True):
    """A token as it is stored, without its secret. Times are Unix seconds."""

    token_id: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,40}$(?!\n)")]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
    """SHA-256 of the whole token; a fast digest is safe, since a token has 256 random bits"""
    role: Role
    user: User = ""
    """user of the jobs that are submitted with it, and the account as which they may run"""
    project: str = ""
    """project of the jobs that are submitted with it; empty: any"""
    created_at: float
    expires_at: float | None = None
    """null: never"""
    note: Annotated[str, Meta(max_length=200)] = ""
    """a `Note`, or what an earlier version took for one"""


class TokensFile(File, frozen=True, kw_only=True):
    """The file that the setting `api_tokens` names."""

    tokens: tuple[TokenEntry, ...] = ()


class Identity(Message, frozen=True, kw_only=True):
    """The user and role behind a request."""

    role: Role
    user: str = ""
    project: str = ""
    token_id: str = ""

    @property
    def name(self) -> str:
        """USER/TOKEN, as facts record who did something; a part that is empty is left out."""
        return "/".join(part for part in (self.user, self.token_id) if part)


ITSELF = Identity(role=Role.OPERATOR)
"""the identity of the stack itself, or of a simulation"""
