"""What the embedded stack runs, and the settings and environment of its processes."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hopyard.failures import Invalid
from hopyard.local.credentials import account_of, tokens_of
from hopyard.local.damage import ARCHIVE
from hopyard.local.data_folder import CLUSTER, store_of
from hopyard.local.processes import Restarts
from hopyard.local.threads import ONE_THREAD
from schemas.catalogue import NOTHING_MORE, CatalogueFile
from schemas.cluster import ClusterFile
from schemas.settings import Settings
from services.table import OF_CLUSTER
from shared.domain.conflicting_settings import check_together
from shared.runtime import owner_only
from shared.runtime.addresses import loopback
from shared.runtime.settings import (
    FILE_VARIABLE,
    PREFIX,
    SOURCES_VARIABLE,
    in_environment,
    in_file,
    load_settings,
    sources_of,
)

SERVICES = tuple(entry.name for entry in OF_CLUSTER)
HOST = "127.0.0.1"
OPEN_CLUSTER = "hopyard"
"""the name of a cluster without a cluster file, unless the setting `cluster_name` has another"""
PROCESSES = "process"
"""the value of the setting `runner` with which jobs run as processes"""
FOLDERS = ("jobs_folder", "run_folder")
"""settings that name folders of jobs: by default folders in the data folder"""
OF_CLIENTS = ("api_token", "nats_credentials")
"""settings with which a user reaches some other stack: they hold for no process of this one"""

Value = str | int | float | bool


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """An address on which a server listens."""

    host: str = HOST
    port: int = 0
    """0: any free port"""


class StackSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and where. Settings are named as `hopyard config show` names them."""

    data: Path
    cluster: ClusterFile | None
    """None: nodes are known once agents join from elsewhere"""
    catalogue: CatalogueFile = NOTHING_MORE
    """entries of the emulated world beside the shipped ones; without any, the file that the settings name"""
    clock_origin: float
    speed: float = 1.0
    scenario: str = ""
    """name of the scenario, if there is one"""
    settings: Mapping[str, Value] = {}
    """settings of the scenario: the environment of this process wins over them"""
    chosen: Mapping[str, Value] = {}
    """settings on the command line, which win over the environment"""
    instances: Mapping[str, int] = {}
    """number of instances by service; 1 for a service that is not named"""
    api_port: int = 0
    """0: the folder's last one, or any that is free"""
    nats: Listen = Listen()
    nats_servers: int = 1
    """1, or 3: a cluster of servers that each hold everything"""
    restarts: Restarts = Restarts(most=0)


def settings_of(spec: StackSpec) -> Settings:
    """The services' settings, as far as a user decides them.

    Raises Invalid for a bad setting, and for settings that cannot hold together.
    """
    copies = {"nats_replicas": spec.nats_servers} if spec.nats_servers > 1 else {}
    decided = _variables({**spec.chosen, "speed": spec.speed, **copies, **dict.fromkeys(OF_CLIENTS, "")})
    try:
        settings = load_settings(_variables(spec.settings) | os.environ | decided)
        check_together(settings)
    except ValueError as error:
        raise Invalid(str(error)) from None
    return settings


def own_accounts(settings: Settings) -> bool:
    """Whether each service and node has an account of its own. Not if the settings have one for all."""
    return not (settings.nats_token or settings.nats_user)


def cluster_name(spec: StackSpec) -> str:
    """Raises Invalid for a bad setting."""
    return spec.cluster.name if spec.cluster else settings_of(spec).cluster_name or OPEN_CLUSTER


def overruled(spec: StackSpec) -> list[str]:
    """Settings of the environment or its settings file that lose to another, each with what decides it."""
    by = dict.fromkeys(_own_settings(spec, ""), "the stack itself")
    by |= dict.fromkeys((*spec.chosen, "speed"), "the command line")
    decided = _variables({**_own_settings(spec, ""), **spec.chosen})
    given = _variables({**in_file(os.environ), **in_environment(os.environ)})
    return [
        f"{_place(name, source)} ({by[name]} decides)"
        for name, source in sources_of(os.environ).items()
        if name in by and given[_variable(name)] != decided[_variable(name)]
    ]


def _place(name: str, source: str) -> str:
    """Where a user finds a setting: its name and file, or its variable."""
    return f"{name} in {source}" if source == os.environ.get(FILE_VARIABLE) else _variable(name)


def write_files(spec: StackSpec) -> None:
    """Write the files that the settings of all services name, and remove those of a start with others.

    A backup takes what it finds, and a restored stack would begin with it.
    """
    catalogue = None if spec.catalogue == NOTHING_MORE else spec.catalogue
    for path, content in ((_cluster_of(spec), spec.cluster), (_catalogue_of(spec), catalogue)):
        if content is None:
            path.unlink(missing_ok=True)
        else:
            owner_only.write(path, msgspec.json.encode(content))


def environment(spec: StackSpec, nats_url: str) -> dict[str, str]:
    """The environment of all services: settings of the scenario, this environment, command line and stack.

    Each of these wins over those before.
    """
    ours = _own_settings(spec, nats_url)
    if spec.catalogue != NOTHING_MORE:
        ours["catalogue"] = str(_catalogue_of(spec).absolute())
    folders = _folders(spec)
    sources = {
        **{
            name: f"scenario {spec.scenario}".strip()
            for name in spec.settings
            if _variable(name) not in os.environ
        },
        **dict.fromkeys(spec.chosen, "command line"),
        **dict.fromkeys((*folders, *ours, "web_port", "node", "instance", "instances"), "the stack itself"),
    }
    handed_on = {SOURCES_VARIABLE: msgspec.json.encode(sources).decode()}
    return (
        ONE_THREAD
        | _variables(folders)
        | _variables(spec.settings)
        | os.environ
        | _variables(spec.chosen)
        | _variables(ours)
        | handed_on
    )


def _folders(spec: StackSpec) -> dict[str, Value]:
    """Settings of folders that are not set otherwise: folders in the data folder.

    Folders of jobs are not among them if nodes are on other machines, which do not have this data folder.
    """
    elsewhere = spec.cluster is None and not loopback(spec.nats.host)
    own = {ARCHIVE, *(() if elsewhere else FOLDERS)} - {*sources_of(os.environ), *spec.settings, *spec.chosen}
    return {name: str((spec.data / name.partition("_")[0]).absolute()) for name in own}


def own_environment(spec: StackSpec, service: str, of: str, port: int) -> dict[str, str]:
    """What one process has in its environment: its port, and `of`: its node, or its number as an instance."""
    if service not in SERVICES:
        return _variables({"web_port": port, "node": of})
    instance = int(of or 1)
    instances = spec.instances.get(service, 1)
    own: dict[str, Value] = {"web_port": port, "instance": instance, "instances": instances}
    return _variables(own | {"store": str(store_of(spec.data, instance).absolute())})


def account_environment(spec: StackSpec, name: str) -> dict[str, str]:
    """The variable that names the file of a process's account at NATS, if processes have their own."""
    if not own_accounts(settings_of(spec)):
        return {}
    return _variables({"nats_credentials": str(account_of(spec.data, name).absolute())})


def _own_settings(spec: StackSpec, nats_url: str) -> dict[str, Value]:
    """The settings that the stack itself decides."""
    return {
        "nats_url": nats_url,
        **({"nats_replicas": spec.nats_servers} if spec.nats_servers > 1 else {}),
        "clock_origin": spec.clock_origin,
        "speed": spec.speed,
        "cluster": "" if spec.cluster is None else str(_cluster_of(spec).absolute()),
        "cluster_name": cluster_name(spec),
        "store": str(store_of(spec.data).absolute()),
        "output_folder": str((spec.data / "output").absolute()),
        "web_host": HOST,
        "api_tokens": str(tokens_of(spec.data).absolute()),
        **dict.fromkeys(OF_CLIENTS, ""),
    }


def _cluster_of(spec: StackSpec) -> Path:
    return spec.data / CLUSTER


def _catalogue_of(spec: StackSpec) -> Path:
    return spec.data / "catalogue.json"


def _variables(settings: Mapping[str, Value]) -> dict[str, str]:
    return {_variable(name): _text(value) for name, value in settings.items()}


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
