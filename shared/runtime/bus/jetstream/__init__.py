"""The bus over NATS JetStream. The only door to the NATS client library."""

from shared.runtime.bus.jetstream.bus import JetStreamBus

__all__ = ["JetStreamBus"]
