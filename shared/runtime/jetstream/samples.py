"""Samples over NATS: sent without an acknowledgement, heard from a bounded queue."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from nats.aio.msg import Msg
from nats.errors import Error

from schemas.base import Sample
from schemas.codec import Malformed, decode_sample, encode
from schemas.subjects import SAMPLE_PREFIX
from shared.runtime.backlog import Backlog
from shared.runtime.jetstream.link import Link, unavailable
from shared.runtime.limits import check_size


class JetStreamSamples:
    _link: Link

    async def send(self, sample: Sample) -> None:
        data = check_size("the sample", encode(sample), self._link.nats.max_payload)
        try:
            await self._link.nats.publish(_subject(type(sample)), data)
        except Error:
            self._link.counts.samples_lost += 1
        else:
            self._link.counts.samples_sent += 1

    async def listen(self, kinds: Sequence[type[Sample]]) -> AsyncIterator[Sample]:
        link = self._link
        backlog: Backlog[Msg] = Backlog(link.settings.listener_queue)

        async def hear(msg: Msg) -> None:
            link.counts.samples_lost += backlog.put(msg)

        await link.up()
        with unavailable("listen"):
            subscriptions = [await link.nats.subscribe(_subject(kind), cb=hear) for kind in kinds]
        try:
            with link.telling(link.when_closed, backlog.end):
                while True:
                    sample = await self._sample(await backlog.take())
                    if sample is not None:
                        yield sample
        finally:
            with suppress(Error):
                for subscription in subscriptions:
                    await subscription.unsubscribe()

    async def _sample(self, msg: Msg) -> Sample | None:
        try:
            sample = decode_sample(msg.data)
        except Malformed as error:
            await self._link.bury(msg.subject, msg.data, str(error))
            return None
        self._link.counts.samples_received += 1
        return sample


def _subject(kind: type[Sample]) -> str:
    return f"{SAMPLE_PREFIX}.{kind.__struct_config__.tag}"
