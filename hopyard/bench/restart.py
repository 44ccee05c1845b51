"""How soon a service is back after kill -9, with a long log behind it.

Twice: without a snapshot, so that the whole log is replayed; and with the snapshot that it has by then,
followed by nearly as many facts as it takes to make the next one: the longest replay there is.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from hopyard.bench.figures import Benchmark, Figure, count, rate, seconds
from hopyard.bench.history import FACTS_PER_JOB, history, length_s
from hopyard.bench.services import Life, begin, bus_to, cursor, nats_server, store_log
from hopyard.failures import NotReady
from hopyard.stack import SERVICES, StackSpec
from loadgen.scenarios import load_cluster
from schemas.settings import Settings
from shared.domain.cluster import nodes_of
from shared.runtime.bus import State
from shared.runtime.nats_server import NatsServer

JOBS = 10_000
CLUSTER = "hops-64"
CAUGHT_UP_LIMIT_S = 120.0
LOOK_EVERY_S = 0.05
REPLAY = "hopyard_shell_replay_seconds_total"
HANDLED = "hopyard_shell_facts_total"
