"""Who may do what: roles, tokens as they are stored, and who came with one."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from schemas.base import File, Message


class Role(StrEnum):
    """What the holder of a token may do; each role may also do what the roles before it may."""

    VIEWER = "viewer"
    """reads"""
    SUBMITTER = "submitter"
    """submits, and cancels jobs of its user"""
    OPERATOR = "operator"
    """all jobs, nodes, the policy"""

    def covers(self, needed: "Role") -> bool:
        return RANKS[self] >= RANKS[needed]


RANKS = {role: rank for rank, role in enumerate(Role)}

TokenUser = Annotated[str, Meta(max_length=100)]


class TokenEntry(File, frozen=True, kw_only=True):
    """What is stored of a token: everything but its secret. Times are Unix seconds."""

    token_id: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,40}$(?!\n)")]
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
    """SHA-256 of the whole token: it has 256 random bits, which nobody guesses however fast the digest is"""
    role: Role
    user: TokenUser = ""
    """whose it is: of jobs submitted by it, and the account they may run as"""
    project: str = ""
    """of jobs submitted by it; empty: any"""
    created_at: float
    expires_at: float | None = None
    """null: never"""
    note: Annotated[str, Meta(max_length=200)] = ""


class TokensFile(File, frozen=True, kw_only=True):
    """What the setting `api_tokens` names."""

    tokens: tuple[TokenEntry, ...] = ()


class Identity(Message, frozen=True, kw_only=True):
    """The user and role behind a request."""

    role: Role
    user: str = ""
    project: str = ""
    token_id: str = ""

    @property
    def name(self) -> str:
        """The user and the id of the token, as facts record them."""
        return "/".join(part for part in (self.user, self.token_id) if part)


ITSELF = Identity(role=Role.OPERATOR)
"""the stack itself, or a simulation, which has all services in one process"""
