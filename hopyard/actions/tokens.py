"""Makes, lists and revokes tokens of the API, in the file that admission reads."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hopyard.failures import Failure, Invalid
from hopyard.local.credentials import tokens_of
from hopyard.local.stacks import my_folder
from schemas.base import Message
from schemas.jobs import Name, User
from schemas.tokens import Note, Role, TokenEntry
from shared.runtime.error_wording import worded
from shared.runtime.owner_only import Exposed
from shared.runtime.tokens import change_tokens, issued, read_tokens

DAY_S = 86_400.0


class MadeToken(Message, frozen=True, kw_only=True):
    """A new token, shown this one time."""

    token: str
    token_id: str
    role: Role
    user: str
    project: str = ""
    expires_at: float | None = None
    file: str


class TokenView(Message, frozen=True, kw_only=True):
    """A token without its secret or the digest of it."""

    token_id: str
    role: Role
    user: str
    project: str
    created_at: float
    expires_at: float | None
    note: str


def tokens_file(named: Path | None, *, to_read: bool = False) -> Path:
    """`named`, else what HOPYARD_API_TOKENS names, else that of this user's own stack.

    Raises Unreachable; Invalid if one that is named is `to_read`, and is not there.
    """
    given = os.environ.get("HOPYARD_API_TOKENS", "")
    if named or given:
        file = named or Path(given)
        if to_read and not file.exists():
            raise Invalid(f"{file}: no such file")
        return file
    return tokens_of(my_folder(Path.cwd(), instead="name a token file by --file"))


def create(file: Path, role: Role, *, user: str, project: str, days: float, note: str) -> MadeToken:
    """`days` 0: it never expires. Raises Failure."""
    if role is Role.SUBMITTER and not user:
        raise Invalid("--user is missing: the user who will own the jobs submitted with the token")
    _check("--user", user, User)
    if project:
        _check("--project", project, Name)
    _check("--note", note, Note)
    now = time.time()
    expires_at = now + days * DAY_S if days else None
    token, entry = issued(role, user=user, now=now, project=project, expires_at=expires_at, note=note)
    _change(file, lambda there: (*there, entry))
    return MadeToken(
        token=token,
        token_id=entry.token_id,
        role=role,
        user=user,
        project=project,
        expires_at=expires_at,
        file=str(file),
    )


def _check(option: str, value: str, kind: object) -> None:
    """Raises Invalid for a value that could not be read any more, or that no job can have."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"{option}: {worded(str(error), kind, '$')}") from None


def revoke(file: Path, token_id: str) -> TokenEntry:
    """Revoke a token. Raises Failure if none has this id."""
    found = next((entry for entry in _read(file) if entry.token_id == token_id), None)
    if found is None:
        raise Failure(f"{file} has no token {token_id}; `hopyard token list` lists them")
    _change(file, lambda there: tuple(entry for entry in there if entry.token_id != token_id))
    return found


def listed_tokens(file: Path) -> list[TokenView]:
    """Raises Failure."""
    return [
        TokenView(
            token_id=entry.token_id,
            role=entry.role,
            user=entry.user,
            project=entry.project,
            created_at=entry.created_at,
            expires_at=entry.expires_at,
            note=entry.note,
        )
        for entry in _read(file)
    ]


def _read(file: Path) -> tuple[TokenEntry, ...]:
    try:
        return read_tokens(file)
    except (OSError, ValueError) as error:
        raise _failure(file, error) from None


def _change(file: Path, change: Callable[[tuple[TokenEntry, ...]], Iterable[TokenEntry]]) -> None:
    try:
        change_tokens(file, change)
    except (OSError, ValueError) as error:
        raise _failure(file, error) from None


def _failure(file: Path, error: OSError | ValueError) -> Failure:
    if isinstance(error, OSError) and not isinstance(error, Exposed):
        return Failure(f"{file}: {(error.strerror or str(error)).lower()}")
    return Failure(str(error))
