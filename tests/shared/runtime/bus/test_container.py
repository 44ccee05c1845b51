"""A part of the bus contract over the NATS server of the compose file: its image, its settings, its token."""

import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from schemas.settings import Settings
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.process import nats_server
from tests.bus_nets import LISTENER_QUEUE, JetStreamNet
from tests.shared.runtime.bus import test_connection, test_facts, test_questions, test_samples, test_state

if TYPE_CHECKING:
    from testcontainers.community.nats import NatsContainer

pytestmark = pytest.mark.container

TOKEN = "007"
"""of digits alone: the server must not take it for a number"""
CONTRACT = (
    test_connection.test_ten_services_may_start_at_once,
    test_facts.test_facts_come_back_in_the_order_they_were_published,
    test_facts.test_a_fact_published_twice_is_stored_once,
    test_questions.test_many_questions_are_answered_at_once,
    test_samples.test_a_listener_hears_the_kinds_it_asks_for,
    test_state.test_expecting_a_revision_takes_that_one_only,
    test_state.test_a_lease_that_is_not_renewed_ends,
    test_state.test_a_large_blob_comes_back_whole,
)


@pytest.fixture(scope="module")
def server() -> Iterator["NatsContainer"]:
    container = _container()
    yield container
    container.stop()


def _container() -> "NatsContainer":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the library uses what it warns others of
        from testcontainers.community.nats import NatsContainer  # noqa: PLC0415 - warns as it is imported
        from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - costs half a second

        testcontainers_config.ryuk_disabled = True  # the fixture stops what it starts
        config = Path(nats_server.__file__).with_name("nats.conf")
        container = NatsContainer("nats:2").with_command("-c /etc/nats.conf")
        container.with_env("NATS_TOKEN", f'"{TOKEN}"').with_volume_mapping(str(config), "/etc/nats.conf")
        return container.start()


@pytest.fixture
async def over_container(server: "NatsContainer") -> AsyncIterator[JetStreamNet]:
    net = JetStreamNet(Settings(nats_url=server.nats_uri(), nats_token=TOKEN, listener_queue=LISTENER_QUEUE))
    await net.open()
    yield net
    await net.close()


@pytest.mark.parametrize("holds", CONTRACT, ids=lambda holds: holds.__name__)
async def test_over_the_container(
    over_container: JetStreamNet, holds: Callable[[JetStreamNet], Awaitable[None]]
) -> None:
    await holds(over_container)


async def test_no_connection_is_accepted_without_the_token(server: "NatsContainer") -> None:
    with pytest.raises(PermissionError):
        await JetStreamBus.connect(Settings(nats_url=server.nats_uri()), "stranger", timeout_s=5.0)
