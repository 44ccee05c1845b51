"""What many tests share: logs as they were, a real NATS server, fresh networks over it and in memory.

The whole suite runs in several processes, file by file, a named part of it in one. A server that lives for
the session lives once in each process.
"""

import atexit
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import hypothesis
import pytest
import structlog

from hopyard.local.threads import ONE_THREAD

os.environ.update(ONE_THREAD | os.environ)  # as every command does; before anything imports NumPy

# What fails in a module that tests share says as much as in a test.
pytest.register_assert_rewrite(
    *(f"tests.{path.stem}" for path in Path(__file__).parent.iterdir() if path != Path(__file__))
)

from tests.bus_nets import LISTENER_QUEUE, JetStreamNet, LiveNats, MemoryNet, Net  # noqa: E402

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one is no failure
hypothesis.settings.load_profile("any machine")

# Hundreds of processes begin in these tests: what one has compiled serves the next.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control has what it starts in the background ignore it, and so would all these start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

COLLECT_EVERY = 100_000
"""objects more than at the last look, before cycles among them are looked for; not 700: thousands of tests
and all that they import stay to the end"""
gc.set_threshold(COLLECT_EVERY)


MORE_WORKERS_THAN_CORES = 3
"""Tests of whole stacks mostly wait for a clock."""

MOST_WORKERS = 8

WAITING = (
    "live/test_two_of_each.py",
    "live/test_lost_disk.py",
    "live/test_limits.py",
    "live/test_agreement.py",
    "live/test_nats_gone.py",
    "live/test_upgrade.py",
    "live/test_disks.py",
    "hopyard/test_end_to_end.py",
    "live/test_long_log.py",
    "live/test_full_disk.py",
    "live/test_retention.py",
    "live/test_sixteen_faults.py",
    "live/test_fuzzed.py",
    "live/test_rotas.py",
    "live/test_nats_of_three.py",
    "live/test_data_of_0_1.py",
    "live/test_joining.py",
    "live/test_three_servers.py",
    "live/test_stack.py",
    "hopyard/local/test_nats_supervision.py",
    "live/test_handoff.py",
    "shared/runtime/bus/test_accounts.py",
    "live/test_faults.py",
    "live/test_access.py",
    "live/test_quarantine.py",
    "services/agent/process/test_turns.py",
    "services/planner/work/test_unfit_policies.py",
    "hopyard/local/test_processes.py",
    "shared/runtime/bus/test_nats_started_again.py",
    "shared/runtime/test_leadership.py",
    "live/test_api_fuzz.py",
    "services/agent/process/test_faults.py",
    "shared/runtime/process/test_main.py",
    "shared/runtime/bus/test_state.py",
    "services/agent/work/test_runner_contract.py",
    "services/agent/process/test_runner.py",
    "live/test_metrics.py",
    "services/planner/work/test_workers.py",
    "shared/runtime/bus/test_connection.py",
    "shared/runtime/shell/test_irrelevant_facts.py",
    "hopyard/actions/test_real_demo.py",
    "live/test_monitored.py",
    "real/test_training.py",
    "real/test_faults.py",
    "real/test_copies.py",
    "real/test_simulated.py",
    "real/test_networks.py",
)
COMPUTING = (
    "chaos/test_chaos.py",
    "hopyard/lab/experiments/test_end_to_end.py",
    "simulation/test_storms.py",
    "simulation/test_determinism.py",
    "hopyard/lab/bench/planning/test_classes.py",
    "simulation/test_swaps.py",
    "services/planner/policies/test_contract.py",
    "hopyard/test_not_installed.py",
    "hopyard/test_cli.py",
    "simulation/test_modes.py",
    "simulation/test_every_policy.py",
    "services/planner/solver/test_deadline.py",
    "services/planner/solver/test_contract.py",
    "services/planner/policies/hlas/test_round_exact.py",
    "services/planner/solver/own/test_stages.py",
    "hopyard/lab/report/test_reports.py",
    "simulation/test_failing_workers.py",
    "fuzz/test_cores.py",
    "simulation/test_passed_over.py",
    "test_install.py",
    "simulation/test_engines.py",
    "simulation/test_churn.py",
    "simulation/test_mixing.py",
    "simulation/test_hadare.py",
    "simulation/test_limits.py",
    "simulation/test_staying.py",
)
"""Files that take longest, of stacks that wait for a clock and of what keeps a core busy, the longest first:
the other processes would wait for them at the end."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Processes for a run: several for the whole suite, this one alone for what was named or marked."""
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.keyword
    marked = config.option.markexpr not in config.getini("addopts")
    cores = os.cpu_count() or 1
    return 0 if named or marked else min(cores + MORE_WORKERS_THAN_CORES, MOST_WORKERS)


def pytest_configure(config: pytest.Config) -> None:
    """A worker ends once it has said all: to take down all that it has imported would take a second."""
    if hasattr(config, "workerinput"):
        atexit.register(os._exit, 0)


def pytest_collection_finish() -> None:
    """What is there now is no garbage."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end pytest looks for garbage five times, a second or more in each worker: once is enough."""
    gc.collect()
    gc.freeze()


atexit.register(gc.unfreeze)
"""or the interpreter ends with it, and libraries say so; no sooner, or pytest looks for garbage in it all"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order within a file stays."""
    turns = {path: turn for turn, path in enumerate(_in_turn(dict.fromkeys(item.path for item in items)))}
    items.sort(key=lambda item: turns[item.path])


def _in_turn(paths: Iterable[Path]) -> list[Path]:
    """Each kind spread over the whole run, as it is listed above: all the time some wait and some compute."""
    waiting, computing, others = list[Path](), list[Path](), list[Path]()
    for path in sorted(paths, key=lambda path: (_place(path, WAITING), _place(path, COMPUTING))):
        waits, computes = _place(path, WAITING) < len(WAITING), _place(path, COMPUTING) < len(COMPUTING)
        (waiting if waits else computing if computes else others).append(path)
    spread = [
        (place / len(kind), path) for kind in (waiting, computing, others) for place, path in enumerate(kind)
    ]
    return [path for _, path in sorted(spread, key=lambda one: one[0])]


def _place(path: Path, endings: Sequence[str]) -> int:
    places = (place for place, ending in enumerate(endings) if path.as_posix().endswith(ending))
    return next(places, len(endings))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Without the test's keywords, which nobody reads: a worker sends three reports of each test."""
    report = yield
    report.keywords = {}
    return report


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command sets logs up for its process, and for a stderr that may be gone by the next test."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNats]:
    """A server, not yet started; its facts stay from test to test unless a test takes `live` or `net`."""
    server = LiveNats(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


@asynccontextmanager
async def _over(server: LiveNats) -> AsyncIterator[JetStreamNet]:
    await server.ensure_running()
    net = JetStreamNet(server.settings(listener_queue=LISTENER_QUEUE, publish_in_flight=64))
    await net.open()
    try:
        yield net
    finally:
        await net.close()


@pytest.fixture
async def live(nats: LiveNats) -> AsyncIterator[JetStreamNet]:
    """A fresh network over the real server."""
    async with _over(nats) as net:
        yield net


@pytest.fixture(params=["memory", "jetstream"])
async def net(request: pytest.FixtureRequest, nats: LiveNats) -> AsyncIterator[Net]:
    """A fresh network, once in memory and once over the real server."""
    if request.param == "jetstream":
        async with _over(nats) as live:
            yield live
    else:
        memory = MemoryNet()
        yield memory
        await memory.close()
