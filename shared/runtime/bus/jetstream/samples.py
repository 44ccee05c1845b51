"""Samples over NATS: sent without an acknowledgement, received through a bounded queue."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error

from schemas.base import Sample
from schemas.codec import Malformed, encode
from schemas.ids import NodeId
from schemas.subjects import is_subject_of_sample, sample_subject
from shared.domain.invariants import read_sample
from shared.runtime.bus.backlog import Backlog
from shared.runtime.bus.jetstream.connection import ANY_NODE, Connection, unavailable
from shared.runtime.bus.limits import check_size


class JetStreamSamples:
    _connection: Connection

    async def send(self, sample: Sample) -> None:
        data = check_size("the sample", encode(sample), self._connection.nats.max_payload)
        try:
            await self._connection.nats.publish(sample_subject(type(sample), self._node_of(sample)), data)
        except Error:
            self._connection.counts.samples_lost += 1
        else:
            self._connection.counts.samples_sent += 1

    async def listen(self, kinds: Sequence[type[Sample]]) -> AsyncIterator[Sample]:
        connection = self._connection
        backlog: Backlog[Msg] = Backlog(connection.settings.listener_queue)

        async def hear(msg: Msg) -> None:
            connection.counts.samples_lost += backlog.put(msg)

        await connection.up()
        subscriptions: list[Subscription] = []
        try:
            with unavailable("listening to samples"):
                for kind in kinds:
                    subscription = await connection.nats.subscribe(sample_subject(kind), cb=hear)
                    subscriptions.append(subscription)
            with connection.notifying(connection.when_closed, backlog.end):
                while True:
                    sample = await self._sample(await backlog.take())
                    if sample is not None:
                        yield sample
        finally:
            for subscription in subscriptions:
                with suppress(Error):
                    await subscription.unsubscribe()

    def _node_of(self, sample: Sample) -> NodeId:
        """The node on whose subject to send: an agent's account may use that of its own node alone."""
        connection = self._connection
        return (
            NodeId(connection.node)
            if connection.is_agents and connection.node != ANY_NODE
            else sample.node_id
        )

    async def _sample(self, msg: Msg) -> Sample | None:
        try:
            sample = read_sample(msg.data)
        except Malformed as error:
            await self._connection.dead_letter(msg.subject, msg.data, str(error))
            return None
        if not is_subject_of_sample(sample, msg.subject):
            reason = f"a sample of {', '.join(sample.senders())} does not belong there"
            await self._connection.dead_letter(msg.subject, msg.data, reason)
            return None
        self._connection.counts.samples_received += 1
        return sample
