"""The bus over NATS JetStream. The only code that imports the NATS client library."""

from shared.runtime.bus.jetstream.bus import JetStreamBus

__all__ = ["JetStreamBus"]
