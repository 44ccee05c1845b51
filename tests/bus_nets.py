"""A real NATS server under a test's control, and networks of both kinds for tests that hold for either."""

import asyncio
from contextlib import suppress
from pathlib import Path

from nats.js.api import RawStreamMsg, StreamConfig
from nats.js.errors import NotFoundError

from schemas.settings import Settings
from schemas.subjects import DEAD_PREFIX, DEAD_STREAM
from shared.runtime.bus.contract import Bus
from shared.runtime.bus.jetstream import JetStreamBus
from shared.runtime.bus.jetstream.patched_client import PatchedClient
from shared.runtime.bus.jetstream.streams import configs
from shared.runtime.bus.memory import MemoryBus
from shared.runtime.clock import LoopClock
from shared.runtime.process.nats_server import NatsServer

LISTENER_QUEUE = 50
LIMIT_S = 60.0


class LiveNats:
    """A server that a test may start, kill and bring back. Its store and address stay."""

    def __init__(self, folder: Path, token: str = "") -> None:
        self._server = NatsServer(folder, token=token)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def pid(self) -> int | None:
        """None: it does not run."""
        return self._server.pid

    def settings(self, **changes: object) -> Settings:
        return Settings(nats_url=self.url, **changes)  # type: ignore[arg-type]

    def kill(self) -> None:
        """As kill -9."""
        self._server.kill()

    async def ensure_running(self) -> None:
        """Start it, unless an earlier test has, and left it alive."""
        if not self._server.running():
            await self._server.start()

    async def restart(self) -> None:
        """Kill it, if it runs, and wait until it is back."""
        self._server.kill()
        await self._server.start()


class MemoryNet:
    def __init__(self) -> None:
        self._bus = MemoryBus(LoopClock(), listener_queue=LISTENER_QUEUE)

    async def client(self, name: str = "service") -> Bus:
        return self._bus.client(name)

    async def store(self, subject: str, data: bytes) -> None:
        self._bus.store(subject, data)

    async def dead_letters(self) -> list[tuple[str, bytes]]:
        return [(letter.reason, letter.data) for letter in self._bus.dead_letters()]

    async def close(self) -> None:
        await self._bus.close()


class JetStreamNet:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._clients: list[JetStreamBus] = []
        self._raw = PatchedClient()

    async def open(self) -> None:
        await self._raw.connect(self.settings.nats_url, token=self.settings.nats_token or None)
        for config in configs(self.settings):
            assert config.name is not None
            with suppress(NotFoundError):
                await self._raw.jetstream().delete_stream(config.name)

    async def client(self, name: str = "service") -> JetStreamBus:
        bus = await JetStreamBus.connect(self.settings, name, timeout_s=10.0)
        self._clients.append(bus)
        return bus

    async def store(self, subject: str, data: bytes) -> None:
        """Put any bytes into a stream, as a broken program would."""
        await self._raw.jetstream().publish(subject, data)

    async def request(self, subject: str, data: bytes) -> bytes:
        """The reply to any bytes, as a stranger would get it."""
        return bytes((await self._raw.request(subject, data, timeout=LIMIT_S)).data)

    async def stream(self, name: str) -> StreamConfig:
        config: StreamConfig = (await self._raw.jetstream().stream_info(name)).config
        return config

    async def put_letter(self, data: bytes, message_id: str) -> None:
        """A dead letter, as a stranger would put it."""
        headers = {"Nats-Msg-Id": message_id}
        await self._raw.jetstream().publish(f"{DEAD_PREFIX}.stranger", data, headers=headers)

    async def letters(self, count: int) -> None:
        """Wait until there are so many dead letters, and find that there are no more."""
        async with asyncio.timeout(LIMIT_S):
            while (await self._letters()) < count:
                await asyncio.sleep(0.02)
        assert await self._letters() == count

    async def _letters(self) -> int:
        return int((await self._raw.jetstream().stream_info(DEAD_STREAM)).state.messages)

    async def dead_letters(self) -> list[tuple[str, bytes]]:
        message = await self._dead_letter()
        return [((message.headers or {})["Hopyard-Reason"], message.data or b"")]

    async def _dead_letter(self) -> RawStreamMsg:
        """The last one, once there is one: they are put down without an acknowledgement."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                with suppress(NotFoundError):
                    return await self._raw.jetstream().get_last_msg(DEAD_STREAM, f"{DEAD_PREFIX}.>")
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        for bus in self._clients:
            await bus.close()
        await self._raw.close()


Net = MemoryNet | JetStreamNet
