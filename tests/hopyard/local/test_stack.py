import asyncio
import contextlib
import errno
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hopyard.api.connect import patiently
from hopyard.failures import Died, Invalid, NotReady, Unreachable
from hopyard.local import damage
from hopyard.local import stack as stack_module
from hopyard.local.accounts import accounts_in, admitted, ensure_accounts, expel, stamp_of
from hopyard.local.child import Program
from hopyard.local.credentials import folder_of
from hopyard.local.data_folder import last_port, write_port
from hopyard.local.processes import RunningProgram, start_all
from hopyard.local.stack import (
    IMPORTS,
    Stack,
    api_port,
    check_exposure,
    check_free,
    check_servers,
    free_ports,
    in_clear,
    keep_accounts,
    running_stack,
)
from hopyard.local.stack_settings import (
    Listen,
    StackSpec,
    environment,
    overruled,
    own_accounts,
    settings_of,
    write_files,
)
from hopyard.local.template import AdoptedProcess
from hopyard.local.threads import ONE_THREAD
from schemas.catalogue import CatalogueFile, Server
from schemas.settings import Settings
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.files import read_file
from shared.runtime.process.nats_server import NatsServer
from shared.runtime.process.nats_servers import NatsServers
from shared.runtime.process.ports import HeldPorts
from shared.runtime.settings import load_settings, sources_of
from tests.guarded_nats import Guarded
from tests.hopyard.cli_builders import cluster
from tests.hopyard.local.programs import template

PAIR = Path(__file__).parents[1] / "api" / "certificate"


def spec(tmp_path: Path, **chosen: str | float | bool) -> StackSpec:
    return StackSpec(
        data=tmp_path,
        cluster=cluster(),
        clock_origin=1000.5,
        speed=60.0,
        settings={"round_s": 120.0, "policy": "fifo", "gap": 0.05},
        chosen=chosen,
    )


def test_services_are_configured_as_the_scenario_says(tmp_path: Path) -> None:
    variables = environment(spec(tmp_path), "nats://127.0.0.1:1")
    assert variables["HOPYARD_ROUND_S"] == "120.0"
    assert variables["HOPYARD_CLOCK_ORIGIN"] == "1000.5"
    assert variables["HOPYARD_NATS_URL"] == "nats://127.0.0.1:1"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_an_address_where_somebody_listens_is_refused(host: str) -> None:
    """Another's NATS there was taken for the stack's own, which wrote its streams into it."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(NotReady) as refused:
        check_free("--listen here", host, taken.getsockname()[1])
    assert str(refused.value) == "--listen here: Address already in use; choose another"


@pytest.mark.parametrize("host", ["256.1.1.1", "192.0.2.1", "a..b"])
def test_an_address_of_no_interface_is_refused(host: str) -> None:
    with pytest.raises(NotReady, match=r"^--listen there: [A-Za-z ]+; choose another$"):
        check_free("--listen there", host, 4222)


def test_the_api_has_the_folder_s_last_port_again_while_it_is_free(tmp_path: Path) -> None:
    """Each start had another, and neither a browser nor a waiting command found the API there."""
    own = spec(tmp_path)
    (last,) = api_port(own).ports
    write_port(tmp_path, last)
    assert api_port(own).ports == [last]
    with socket.create_server(("127.0.0.1", last)):
        assert api_port(own).ports != [last]
        (other,) = HeldPorts("127.0.0.1").ports
        assert api_port(replace(own, api_port=other)).ports == [other]


@pytest.mark.parametrize("left", [b"", b"80 81", b"70000", b"-1", b"\xff"])
def test_a_last_port_that_cannot_be_read_is_any_port(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "api-port").write_bytes(left)
    assert last_port(tmp_path) == 0


async def test_a_stack_checks_the_address_of_its_nats_before_it_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        own = replace(spec(tmp_path), nats=Listen(port=port))
        with pytest.raises(NotReady, match=rf"^--listen 127.0.0.1:{port}: Address already in use"):
            async with running_stack(own, print):
                pass


async def test_services_are_forked_even_without_the_caller_s_thread_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of one of their libraries would have each begun by itself, at many times the cost."""
    for name in ONE_THREAD:
        monkeypatch.delenv(name, raising=False)
    environ = environment(spec(tmp_path), "nats://127.0.0.1:1") | {"PYTHONPATH": os.pathsep.join(sys.path)}
    running: list[RunningProgram] = []
    program = Program(name="this-1", module="this", environ=environ, log=tmp_path / "log")
    async with template(*IMPORTS) as forking:
        await start_all([program], forking, running)
    assert await running[0].process.wait() == 0
    assert isinstance(running[0].process, AdoptedProcess)


def test_agents_find_the_entries_of_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_CATALOGUE", "another.yaml")
    more = CatalogueFile(servers={"attic": Server(cores=4, speed=1.0, copy=1e9, disk=1e9)})
    own = replace(spec(tmp_path), catalogue=more)
    write_files(own)
    path = Path(environment(own, "")["HOPYARD_CATALOGUE"])
    assert path.parent == tmp_path
    assert read_file(path, CatalogueFile) == more
    assert environment(spec(tmp_path), "")["HOPYARD_CATALOGUE"] == "another.yaml"


def test_files_of_a_start_with_others_are_removed(tmp_path: Path) -> None:
    """A backup would take them, and emulated nodes stand in for real ones where it is restored."""
    more = CatalogueFile(servers={"attic": Server(cores=4, speed=1.0, copy=1e9, disk=1e9)})
    write_files(replace(spec(tmp_path), catalogue=more))
    assert {path.name for path in tmp_path.iterdir()} == {"cluster.json", "catalogue.json"}
    write_files(replace(spec(tmp_path), cluster=None))
    assert list(tmp_path.iterdir()) == []


def test_the_environment_wins_over_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_GAP", "0.2")
    assert environment(spec(tmp_path), "")["HOPYARD_GAP"] == "0.2"


def test_the_command_line_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_POLICY", "sia")
    assert environment(spec(tmp_path, policy="hops"), "")["HOPYARD_POLICY"] == "hops"


def test_settings_in_force_follow_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_GAP", "0.2")
    settings = settings_of(spec(tmp_path, policy="hops"))
    assert (settings.round_s, settings.gap, settings.policy) == (120.0, 0.2, "hops")


def test_a_bad_setting_is_invalid(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="HOPYARD_GAP"):
        settings_of(spec(tmp_path, gap=7.0))


async def test_conflicting_settings_start_no_stack(tmp_path: Path) -> None:
    slow = spec(tmp_path / "data", startup_s=100.0)
    with pytest.raises(Invalid, match=r"^startup_s=100, start_timeout_real_s=60 and speed=1 cannot hold"):
        async with running_stack(replace(slow, speed=1.0), print):
            pass
    assert not (tmp_path / "data").exists()
    assert settings_of(slow).speed == 60.0


def test_settings_that_the_stack_overrules_are_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert overruled(spec(tmp_path, seed=1)) == []
    file = tmp_path / "settings.yaml"
    file.write_text("store: elsewhere.duckdb\ngap: 0.5\n")
    for name, value in {"SEED": "7", "SPEED": "3", "ROUND_S": "60", "SETTINGS": str(file)}.items():
        monkeypatch.setenv(f"HOPYARD_{name}", value)
    assert sorted(overruled(spec(tmp_path, seed=1))) == [
        "HOPYARD_SEED (the command line decides)",
        "HOPYARD_SPEED (the command line decides)",
        f"store in {file} (the stack itself decides)",
    ]
    assert "HOPYARD_SEED (the command line decides)" not in overruled(spec(tmp_path))
    assert "HOPYARD_SEED (the command line decides)" not in overruled(spec(tmp_path, seed=7)), "they agree"
    monkeypatch.setenv("HOPYARD_CLUSTER_NAME", "lab")
    assert "HOPYARD_CLUSTER_NAME (the stack itself decides)" in overruled(spec(tmp_path))
    assert "CLUSTER_NAME" not in str(overruled(replace(spec(tmp_path), cluster=None))), "it is the user's"


def test_the_rest_of_the_environment_is_passed_on(tmp_path: Path) -> None:
    assert environment(spec(tmp_path), "")["PATH"] == os.environ["PATH"]


def test_free_ports_are_all_different() -> None:
    assert len(set(free_ports(50))) == 50


async def test_an_api_that_is_away_for_a_moment_is_asked_again() -> None:
    answers: list[Exception | str] = [Unreachable("away"), Unreachable("away"), "here"]

    async def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await patiently(ask) == "here"


def test_every_process_gets_the_source_of_each_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOPYARD_ROUND_S", "90")
    chosen = replace(spec(tmp_path, policy="fifo"), scenario="tiny", settings={"gap": 0.2, "round_s": 60})
    sources = sources_of(environment(chosen, "nats://127.0.0.1:1"))
    wanted = {"gap": "scenario tiny", "round_s": "environment", "policy": "command line"}
    assert sources | wanted == sources
    assert sources["nats_url"] == "the stack itself"


def test_folders_of_jobs_are_in_the_data_folder(tmp_path: Path) -> None:
    handed_on = environment(spec(tmp_path), "")
    assert load_settings(handed_on).jobs_folder == str(tmp_path / "jobs")
    assert sources_of(handed_on)["jobs_folder"] == "the stack itself", "a backup has what was chosen"


@pytest.mark.parametrize("how", ["environment", "file", "scenario"])
def test_a_chosen_folder_of_jobs_is_kept(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, file = spec(tmp_path), tmp_path / "settings.yaml"
    if how == "scenario":
        own = replace(own, settings={"jobs_folder": "/shared"})
    elif how == "file":
        file.write_text("jobs_folder: /shared")
        monkeypatch.setenv("HOPYARD_SETTINGS", str(file))
    else:
        monkeypatch.setenv("HOPYARD_JOBS_FOLDER", "/shared")
    handed_on = environment(own, "")
    assert load_settings(handed_on).jobs_folder == "/shared"
    assert sources_of(handed_on)["jobs_folder"] != "the stack itself"


@pytest.mark.parametrize("how", ["environment", "file", "scenario"])
def test_credentials_of_a_user_for_other_stacks_are_not_used_by_this_one(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exported viewer's token made its holder an operator here; an account left NATS open to all."""
    shown = {"api_token": "a viewer's", "nats_credentials": "/elsewhere.json"}
    own = spec(tmp_path)
    if how == "scenario":
        own = replace(own, settings=shown)
    elif how == "file":
        (tmp_path / "settings.yaml").write_text(str(shown))
        monkeypatch.setenv("HOPYARD_SETTINGS", str(tmp_path / "settings.yaml"))
    else:
        for name, value in shown.items():
            monkeypatch.setenv(f"HOPYARD_{name.upper()}", value)
    settings = load_settings(environment(own, "nats://127.0.0.1:1"))
    assert (settings.api_token, settings.nats_credentials) == ("", "")
    assert own_accounts(settings_of(own))
    assert settings_of(own).api_token == ""
    assert len(overruled(own)) == (0 if how == "scenario" else 2), "it is said"


def test_a_nats_that_others_reach_asks_for_more_than_a_name(tmp_path: Path) -> None:
    named = replace(spec(tmp_path, nats_user="lab"), nats=Listen(host="0.0.0.0", port=4222))
    with pytest.raises(Invalid, match="nats_user without nats_password"):
        check_exposure(named, settings_of(named))
    for fine in (
        replace(named, nats=Listen()),
        replace(named, chosen={"nats_user": "lab", "nats_password": "secret"}),
        replace(named, chosen={}),
    ):
        check_exposure(fine, settings_of(fine))


def test_an_open_nats_without_tls_is_warned_about(tmp_path: Path) -> None:
    others = replace(spec(tmp_path), nats=Listen(host="0.0.0.0", port=4222))
    secured = replace(others, chosen={"nats_certificate": "c.pem", "nats_key": "k.pem"})
    assert "speaks no TLS" in in_clear(others, settings_of(others))
    assert in_clear(secured, settings_of(secured)) == ""
    assert in_clear(spec(tmp_path), settings_of(spec(tmp_path))) == ""


async def test_a_stack_without_its_accounts_folder_goes_on_and_admits_no_others(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    await guarded.server.start()
    said: asyncio.Queue[str] = asyncio.Queue()
    stack = Stack(NatsServers([guarded.server]), {"admission": 1}, data=tmp_path, tls=False)
    keeper = asyncio.create_task(keep_accounts(stack, said.put_nowait, stamp_of(tmp_path)))
    try:
        async with guarded.bus("admission") as bus:
            shutil.rmtree(folder_of(tmp_path))
            async with asyncio.timeout(120.0):
                assert "goes on with the accounts it has" in await said.get()
            assert not keeper.done()
            assert await bus.last_seq() == 0
            with pytest.raises(PermissionError):
                await JetStreamBus.connect(Settings(nats_url=guarded.server.url), "planner", 10.0)
            guarded.server.kill()
            with pytest.raises(Invalid, match="no account of"):
                await guarded.server.start()
    finally:
        keeper.cancel()
        await guarded.server.stop()


async def test_a_node_admitted_while_nats_starts_can_connect(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    known = stamp_of(tmp_path)
    await guarded.server.start()
    admitted(tmp_path, "n-9")
    stack = Stack(NatsServers([guarded.server]), {"admission": 1}, data=tmp_path, tls=False)
    keeper = asyncio.create_task(keep_accounts(stack, print, known))
    try:
        async with guarded.bus("admission"), asyncio.timeout(120.0):
            while True:
                with contextlib.suppress(PermissionError):
                    async with guarded.bus("agent-n-9"):
                        break
    finally:
        keeper.cancel()
        await guarded.server.stop()


async def test_accounts_that_nats_does_not_take_are_handed_over_until_it_does(tmp_path: Path) -> None:
    """After two attempts a node that was expelled stayed let in."""
    taken = asyncio.Event()
    said: list[str] = []

    class Full(NatsServers):
        attempts = 0

        def take_accounts(self) -> None:
            self.attempts += 1
            if self.attempts <= 3:
                raise OSError(errno.ENOSPC, "No space left on device")
            taken.set()

    stack = Stack(Full([]), {"admission": 1}, data=tmp_path, tls=False)
    keeper = asyncio.create_task(keep_accounts(stack, said.append, stamp_of(tmp_path)))
    admitted(tmp_path, "n-9")
    async with asyncio.timeout(120.0):
        await taken.wait()
    keeper.cancel()
    assert len(said) == 1


async def test_accounts_that_nats_refuses_are_reported_until_it_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a certificate that did not fit its key a node was called expelled, and went on."""
    monkeypatch.setattr(stack_module, "REFUSED_EVERY_S", 0.1)
    certificate, key, fits = tmp_path / "certificate.pem", PAIR / "key.pem", PAIR / "certificate.pem"
    shutil.copy(fits, certificate)
    ensure_accounts(tmp_path)
    admitted(tmp_path, "n-9")
    tls = (str(certificate), str(key))
    server = NatsServer(tmp_path / "nats", accounts=lambda: accounts_in(tmp_path), tls=tls)
    await server.start()
    said: asyncio.Queue[str] = asyncio.Queue()
    stack = Stack(NatsServers([server]), {"admission": 1}, data=tmp_path, tls=False)
    keeper = asyncio.create_task(keep_accounts(stack, said.put_nowait, stamp_of(tmp_path)))
    try:
        certificate.write_text(key.read_text())
        expel(tmp_path, "n-9")
        async with asyncio.timeout(120.0):
            assert "goes on with the accounts it has: error parsing X509" in await said.get()
        assert stack.stack_file().accounts != stamp_of(tmp_path)
        assert "error parsing X509" in stack.stack_file().accounts_refused
        shutil.copy(fits, certificate)
        async with asyncio.timeout(120.0):
            assert await said.get() == "NATS takes the accounts again"
        assert stack.stack_file().accounts == stamp_of(tmp_path)
        assert not stack.stack_file().accounts_refused
        assert said.empty(), "each is said once"
    finally:
        keeper.cancel()
        await server.stop()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_nats_whose_certificate_is_not_trusted_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """With an expired one `hopyard up` advised to go on without the facts, of which none was lost."""
    monkeypatch.setattr(damage, "CONNECT_TIMEOUT_S", 1.0)
    certificate, key = (str(PAIR / name) for name in ("certificate.pem", "key.pem"))
    server = NatsServer(tmp_path / "nats", tls=(certificate, key))
    await server.start()
    known = Settings(nats_url=server.url, nats_authority=certificate, nats_server_name="another")
    if begun:
        (tmp_path / "nats" / "jetstream" / "HOPYARD" / "streams" / "facts").mkdir(parents=True)
    try:
        with pytest.raises(NotReady, match="its certificate is not valid here: "):
            await damage.check_streams(tmp_path, known, print)
    finally:
        await server.stop()


async def test_a_stack_ends_completely_despite_a_bad_settings_file_and_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean-up read the settings again, and ended at a signal: processes lived on, without a word why."""
    ended: list[str] = []

    async def nothing(*_: object) -> None: ...

    async def slow(*_: object) -> None:
        block.cancel()
        await asyncio.sleep(0.05)
        ended.append("processes")

    async def nats_ended(_: NatsServers) -> None:
        ended.append("nats")

    @contextlib.asynccontextmanager
    async def kept(*_: object) -> AsyncIterator[None]:
        yield

    for name, stub in {"start_nats": nothing, "check_streams": nothing, "start_all": nothing}.items():
        monkeypatch.setattr(stack_module, name, stub)
    monkeypatch.setattr(stack_module, "_until_ready", nothing)
    monkeypatch.setattr(stack_module, "_kept", kept)
    monkeypatch.setattr(stack_module, "stop", slow)
    monkeypatch.setattr(NatsServers, "stop", nats_ended)
    settings = tmp_path / "settings.yaml"
    settings.write_text("seed: 3\n")
    monkeypatch.setenv("HOPYARD_SETTINGS", str(settings))

    async def dies() -> None:
        async with running_stack(spec(tmp_path / "data"), print):
            settings.write_text("sede: 3\n")
            raise Died("the planner")

    (tmp_path / "data").mkdir()
    block = asyncio.create_task(dies())
    with pytest.raises(Died):
        await block
    assert ended == ["processes", "nats"]


@pytest.mark.parametrize(("begun", "wanted"), [(1, 3), (3, 1), (3, 5)])
def test_a_store_is_not_handed_to_another_number_of_servers(tmp_path: Path, begun: int, wanted: int) -> None:
    names = ["nats", *(f"nats-{number}" for number in range(2, begun + 1))]
    for name in names:
        (tmp_path / name / "jetstream").mkdir(parents=True)
    check_servers(replace(spec(tmp_path), nats_servers=begun))
    with pytest.raises(Invalid, match=f"--nats {begun}"):
        check_servers(replace(spec(tmp_path), nats_servers=wanted))
