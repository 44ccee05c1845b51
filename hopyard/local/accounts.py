"""The accounts of a stack at its NATS: one for each service and node, each in a file of its own.

The setting `nats_credentials` names such a file; NATS accepts the accounts whose files are in the folder.
"""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hopyard.failures import Failure, Invalid
from hopyard.local.credentials import EXPELLED, NATS, account_of, folder_of
from hopyard.local.stacks import living
from schemas.ids import NodeId
from schemas.jobs import Name
from schemas.subjects import AGENT
from services.table import OF_CLUSTER, OF_NODE
from shared.runtime import owner_only
from shared.runtime.bus import accounts
from shared.runtime.bus.accounts import AGENTS, OPERATOR, NatsUser, Permissions
from shared.runtime.disk import sync

SERVERS = "accounts.conf"
"""the file to be included by a NATS server that `hopyard up` does not run"""
OF_STACK = (*(entry.name for entry in OF_CLUSTER), OPERATOR)
TAKEN_LIMIT_S = 10.0
"""seconds for a running stack to have its NATS take the accounts of now"""
LOOK_EVERY_S = 0.1
_OF_AGENTS = OF_NODE[0].publishes


class AccountFile(msgspec.Struct, frozen=True):
    user: str
    password: str


def agent_of(node_id: str) -> str:
    return f"{AGENT}-{node_id}"


def ensure_accounts(data: Path, nodes: Sequence[NodeId] = ()) -> None:
    """Make the accounts of the stack itself, and of nodes that are known beforehand and not expelled."""
    for user in (*OF_STACK, *(agent_of(node) for node in nodes if not is_expelled(data, node))):
        ensure_account(data, user)


def is_expelled(data: Path, node_id: str) -> bool:
    """Whether a node was expelled and not admitted again since."""
    return _mark_of(data, node_id).exists()


def _mark_of(data: Path, node_id: str) -> Path:
    return account_of(data, agent_of(node_id)).with_suffix(EXPELLED)


def admitted(data: Path, node_id: str) -> Path:
    """The credentials file of a node's agent, made if there is none. Raises Invalid."""
    try:
        name = msgspec.convert(node_id, Name)
    except msgspec.ValidationError:
        raise Invalid(f"{node_id}: the name of a node has lower-case letters, digits and dashes") from None
    _mark_of(data, name).unlink(missing_ok=True)
    return ensure_account(data, agent_of(name))


def admitted_any(data: Path) -> Path:
    """The credentials file for agents whose nodes are not known beforehand."""
    return ensure_account(data, AGENTS)


def ensure_account(data: Path, user: str) -> Path:
    file = account_of(data, user)
    for folder in (folder_of(data), file.parent):
        owner_only.make_folder(folder)
    if not file.exists():
        made = AccountFile(user=user, password=secrets.token_urlsafe(32))
        owner_only.write(file, msgspec.json.encode(made) + b"\n")
    return file


def write_accounts(data: Path) -> Path:
    """Write the accounts into a file that the configuration of any other NATS server can include."""
    block = msgspec.json.encode(accounts.server_accounts(accounts_in(data)))
    file = folder_of(data) / SERVERS
    owner_only.write(file, b"accounts = " + block + b"\n")
    return file


def expel(data: Path, node_id: str) -> bool:
    """Expel a node's agent until it is admitted again; false if it was not admitted."""
    file = account_of(data, agent_of(node_id))
    if not file.exists():
        return False
    owner_only.write(_mark_of(data, node_id), b"")
    file.unlink()
    sync(file.parent)
    return True


def accounts_in(data: Path) -> list[NatsUser]:
    """All accounts with a file. Raises Invalid if a file cannot be read, or an account of the stack is gone.

    A server without any account would accept every client.
    """
    if gone := [user for user in OF_STACK if not account_of(data, user).exists()]:
        raise Invalid(f"{folder_of(data) / NATS} has no account of {', '.join(gone)}")
    files = sorted((folder_of(data) / NATS).glob("*.json"))
    return [_account(file) for file in files]


def stamp_of(data: Path) -> int:
    """A number that changes whenever a node is admitted or expelled; 0 if the folder is gone."""
    try:
        return (folder_of(data) / NATS).stat().st_mtime_ns
    except OSError:
        return 0


def await_taken(data: Path) -> None:
    """Wait until NATS has the accounts of now, if a stack runs. Raises Failure if it does not take them."""
    until, stack = time.monotonic() + TAKEN_LIMIT_S, living(data)
    while stack is not None and stack.accounts not in {None, stamp_of(data)}:
        if time.monotonic() > until:
            reason = stack.accounts_refused or "it does not say why"
            raise Failure(
                f"NATS goes on with the accounts that it had: {reason}; it is asked again until it takes them"
            )
        time.sleep(LOOK_EVERY_S)
        stack = living(data)


def _account(file: Path) -> NatsUser:
    try:
        found = msgspec.json.decode(owner_only.read_secret(file), type=AccountFile)
    except (OSError, msgspec.DecodeError) as error:
        raise Invalid(f"{file}: {error}") from None
    return NatsUser(user=found.user, password=found.password, permissions=permissions_of(found.user))


def permissions_of(user: str) -> Permissions:
    own = {entry.name: entry.publishes for entry in OF_CLUSTER}
    if user in own:
        return accounts.of_service(user, own[user])
    if user == OPERATOR:
        return accounts.of_operator(tuple(own))
    node_id = "*" if user == AGENTS else user.removeprefix(f"{AGENT}-")
    return accounts.of_node(node_id, _OF_AGENTS)
