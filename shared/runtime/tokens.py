"""Tokens of the HTTP API: how they are issued, stored, and looked up when a request shows one.

A token is `hop_ID_SECRET`. The file holds only its digest; a change to the file counts from the next request.
"""

import contextlib
import fcntl
import hmac
import os
import secrets
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

import msgspec

from schemas.tokens import Identity, Role, TokenEntry, TokensFile
from shared.runtime import owner_only

MARK = "hop"
SECRET_BYTES = 32
TOKEN_CHARS_MAX = 500
SINGLE = "api-token"
"""id of the token that the setting `api_token` holds"""
NO_DIGEST = "0" * 64
"""compared with if no token has the id, so that the time of an answer does not reveal that"""
Stamp = tuple[int, ...] | None


def issued(
    role: Role, *, user: str, now: float, project: str = "", expires_at: float | None = None, note: str = ""
) -> tuple[str, TokenEntry]:
    """A new token, which is not stored, and its entry, which is."""
    token_id = secrets.token_hex(4)
    token = f"{MARK}_{token_id}_{secrets.token_urlsafe(SECRET_BYTES)}"
    entry = TokenEntry(
        token_id=token_id,
        digest=_digest(token),
        role=role,
        user=user,
        project=project,
        created_at=now,
        expires_at=expires_at,
        note=note,
    )
    return token, entry


class Keyring:
    """The valid tokens. `single`: one more, an operator's."""

    def __init__(self, path: str, single: str = "") -> None:
        self._path = Path(path) if path else None
        self._single = _digest(single) if single else ""
        self._entries: dict[str, TokenEntry] = {}
        self._stamp: Stamp = None
        self._reason_logged = ""

    def empty(self) -> bool:
        """Whether there is no valid token at all."""
        self._refresh()
        return not (self._single or self._entries)

    def holder(self, shown: str, now: float) -> Identity | None:
        """The holder of a token at a Unix time; None if it is not valid."""
        self._refresh()
        if len(shown) > TOKEN_CHARS_MAX:
            return None
        digest = _digest(shown)
        if self._single and hmac.compare_digest(digest, self._single):
            return Identity(role=Role.OPERATOR, token_id=SINGLE)
        entry = self._entries.get(_id_in(shown))
        same = hmac.compare_digest(digest, entry.digest if entry else NO_DIGEST)
        if entry is None or not same or _expired(entry, now):
            return None
        return Identity(role=entry.role, user=entry.user, project=entry.project, token_id=entry.token_id)

    def _refresh(self) -> None:
        """Read the file if it changed. One that is gone or unreadable has no tokens, and is tried again."""
        if self._path is None:
            return
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        try:
            tokens = read_tokens(self._path)
        except (OSError, ValueError) as error:
            self._entries, self._stamp = {}, None
            self._log_once(str(error))
        else:
            self._entries, self._stamp = {entry.token_id: entry for entry in tokens}, stamp
            self._reason_logged = ""

    def _log_once(self, reason: str) -> None:
        """Log a problem once, not at every request."""
        if reason != self._reason_logged:
            import structlog  # noqa: PLC0415 - a command that sends its token need not wait for the import

            structlog.get_logger().error("no token is accepted", file=str(self._path), reason=reason)
            self._reason_logged = reason


def read_tokens(path: Path) -> tuple[TokenEntry, ...]:
    """The tokens in a file; none if it does not exist. Raises OSError, ValueError for a malformed one."""
    try:
        return msgspec.json.decode(owner_only.read_secret(path), type=TokensFile).tokens
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: {error}") from None


def change_tokens(path: Path, change: Callable[[tuple[TokenEntry, ...]], Iterable[TokenEntry]]) -> None:
    """Read, change and write a file under a lock; of a link, the file that it leads to.

    Raises as `read_tokens` does, and what `change` raises.
    """
    path = Path(os.path.realpath(path))
    owner_only.make_parents(path)
    with contextlib.closing(owner_only.appended(path.with_name(f".{path.name}.lock"))) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tokens = TokensFile(tokens=tuple(change(read_tokens(path))))
        owner_only.write(path, msgspec.json.format(msgspec.json.encode(tokens)) + b"\n")


def _id_in(token: str) -> str:
    mark, _, rest = token.partition("_")
    return rest.partition("_")[0] if mark == MARK else ""


def _digest(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()


def _expired(entry: TokenEntry, now: float) -> bool:
    return entry.expires_at is not None and entry.expires_at <= now


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    owner = found.st_mode, found.st_uid, found.st_gid
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, *owner)
