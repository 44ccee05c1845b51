"""Credentials of a stack on this machine: files in its data folder that only its owner can read."""

import getpass
import os
import time
from collections.abc import Iterable
from html import escape
from pathlib import Path

from hopyard.failures import Invalid
from schemas.tokens import Role, TokenEntry
from shared.runtime import owner_only
from shared.runtime.tokens import Keyring, change_tokens, issued

FOLDER = "credentials"
NATS = "nats"
EXPELLED = ".expelled"
"""end of the name of an empty file beside the accounts: the node of this account was expelled"""
OPERATOR = "operator"
"""the account of commands at NATS"""
TOKENS = "tokens.json"
"""digests of all tokens"""
OF_STACK_ITSELF = "of the stack itself"
"""the note on tokens that a stack makes for itself"""
OWN = {"operator-token": Role.OPERATOR, "viewer-token": Role.VIEWER}
"""tokens for the commands of the user who started the stack, and for the page in that user's browser"""


def folder_of(data: Path) -> Path:
    return data / FOLDER


def account_of(data: Path, user: str) -> Path:
    """The credentials file of an account at the stack's NATS, whether it exists or not."""
    return folder_of(data) / NATS / f"{user}.json"


def tokens_of(data: Path) -> Path:
    return folder_of(data) / TOKENS


def own_token(data: Path, role: Role = Role.OPERATOR) -> str:
    """The stack's own token for a role. Empty: there is none. Raises Invalid if others can read its file."""
    name = next(name for name, each in OWN.items() if each is role)
    return token_in(folder_of(data) / name, missing_ok=True)


def token_in(path: Path, *, missing_ok: bool = False) -> str:
    """The token in a file; with `missing_ok` empty if there is no file. Raises Invalid."""
    try:
        return owner_only.read_secret(path).decode().strip()
    except FileNotFoundError:
        if missing_ok:
            return ""
        raise Invalid(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        text = str(error) if isinstance(error, owner_only.Exposed) else f"{path}: holds no token"
        raise Invalid(text) from None


def ensure_tokens(data: Path) -> None:
    """Make the stack's own tokens; one that was revoked is replaced at the next start."""
    owner_only.make_folder(folder_of(data))
    keyring = Keyring(str(tokens_of(data)))
    missing = {
        name: role for name, role in OWN.items() if keyring.holder(own_token(data, role), time.time()) is None
    }
    made = {
        name: issued(role, user=this_user(), now=time.time(), note=OF_STACK_ITSELF)
        for name, role in missing.items()
    }
    if made:
        change_tokens(tokens_of(data), lambda there: _with(there, [entry for _, entry in made.values()]))
    for name, (token, _) in made.items():
        owner_only.write(folder_of(data) / name, f"{token}\n".encode())


def page_link(api_url: str, data: Path) -> str:
    """The page's address with a token after the #, which the page reads and a browser sends to no server."""
    return f"{api_url}/#token={own_token(data, Role.VIEWER)}"


def page_file(link: str, data: Path) -> Path:
    """A file that redirects a browser to the link, which every account could see in a command line."""
    file = (folder_of(data) / "page.html").absolute()
    owner_only.write(file, f'<meta http-equiv="refresh" content="0;url={escape(link)}">\n'.encode())
    return file


def this_user() -> str:
    """The login name, or the number of a user without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _with(there: Iterable[TokenEntry], more: Iterable[TokenEntry]) -> Iterable[TokenEntry]:
    return (*there, *more)
