"""The streams and buckets of the bus: how they are configured, and how they are made."""

import asyncio
from dataclasses import replace
from typing import Any

from nats.errors import Error
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError

from schemas.samples import Heartbeat, ThroughputObserved
from schemas.settings import Settings
from schemas.subjects import (
    DEAD_PREFIX,
    DEAD_STREAM,
    FACT_SUBJECTS,
    FACTS_STREAM,
    OBSERVATIONS_STREAM,
    SAMPLES_STREAM,
    SNAPSHOT_BUCKET,
    STATE_BUCKET,
    STATE_SUBJECT,
    sample_subject,
)
from shared.runtime.bus.accounts import ADMISSION
from shared.runtime.bus.backoff import pauses
from shared.runtime.bus.contract import Unavailable
from shared.runtime.bus.jetstream.connection import Connection, in_words
from shared.runtime.bus.limits import DEAD_LETTERS
from shared.runtime.damage import Damaged

EXISTS_OTHERWISE = 10058
"""JetStream's error code: a stream of this name exists with another configuration"""
NOT_CLUSTERED = 10074
"""more replicas are wanted than there are servers"""
NO_PEERS = 10005
"""more replicas are wanted than servers of the cluster are up"""
NO_ROOM = 10047
"""the server's disk has less room than the stream may take"""
STATE_STREAM = f"KV_{STATE_BUCKET}"
SNAPSHOT_STREAM = f"OBJ_{SNAPSHOT_BUCKET}"
DEAD_MAX_BYTES = 64 * 1024 * 1024
OBSERVATIONS_MAX_BYTES = 64 * 1024 * 1024


async def ensure(connection: Connection, timeout_s: float | None) -> None:
    """Return once all streams exist; create or update them where this account may. Raises Unavailable.

    Several processes may do it at once. An account that may not create streams waits for those on disk alone:
    one in memory is gone after a restart of the server until it is made again (`keep_memory_streams`), and no
    service needs it.
    """
    try:
        async with asyncio.timeout(timeout_s):
            for config in configs(connection.settings):
                if makes_streams(connection):
                    await _ensure_stream(connection, config)
                elif config.storage is not StorageType.MEMORY:
                    await _await_stream(connection, config)
    except TimeoutError:
        raise Unavailable(f"JetStream is not ready within {timeout_s} s") from None


def makes_streams(connection: Connection) -> bool:
    """Whether this account may create streams."""
    return connection.credentials is None or connection.credentials.user == ADMISSION


async def keep_memory_streams(connection: Connection, back: asyncio.Event) -> None:
    """Make the streams in memory again whenever `back` is set: the connection is back. Runs until cancelled.

    Streams on disk are not made again: where one is gone, its facts are lost, and no service may go on as if
    they had never been.
    """
    while True:
        await back.wait()
        back.clear()
        try:
            for config in configs(connection.settings):
                if config.storage is StorageType.MEMORY:
                    await _ensure_stream(connection, config)
        except (RuntimeError, Damaged, Unavailable) as error:  # no service needs it
            connection.log.warning("a stream in memory is not made again", reason=str(error))


async def _await_stream(connection: Connection, config: StreamConfig) -> None:
    assert config.name is not None
    log = connection.log_once_late()
    for pause in pauses():
        try:
            await connection.js.stream_info(config.name)
        except (Error, OSError) as error:
            log("waiting for a stream", stream=config.name, reason=in_words(error))
        else:
            return
        await asyncio.sleep(pause)
        await connection.up()


async def _ensure_stream(connection: Connection, config: StreamConfig) -> None:
    log = connection.log.warning
    for pause in pauses():
        try:
            return await _create_or_update(connection, config)
        except (Error, OSError) as error:  # no leader yet, no room, or the connection went
            _raise_if_final(config, error)
            log("waiting for JetStream", stream=config.name, reason=str(error))
            log = connection.log.debug
        await asyncio.sleep(pause)
        await connection.up()
    return None


def _raise_if_final(config: StreamConfig, error: Exception) -> None:
    """Raise RuntimeError for an error that waiting does not cure, Damaged for a full disk.

    ValueError for one of the settings.
    """
    if getattr(error, "err_code", None) == NO_ROOM:
        needed = f" of {config.max_bytes:,} bytes" if (config.max_bytes or 0) > 0 else ""
        remedy = "make room, or set stream_max_bytes to less"
        raise Damaged(f"NATS has no room on its disk for the stream {config.name}{needed}: {remedy}")
    if isinstance(error, BadRequestError) and error.err_code == NO_PEERS:
        return
    if getattr(error, "err_code", None) == NOT_CLUSTERED:
        raise ValueError(f"nats_replicas is {config.num_replicas}, and NATS is one server alone: set it to 1")
    if isinstance(error, BadRequestError):
        raise RuntimeError(f"stream {config.name}: {error}") from error  # noqa: TRY004 - the server's error


async def _create_or_update(connection: Connection, config: StreamConfig) -> None:
    try:
        if config.name == FACTS_STREAM and not await _exists(connection, FACTS_STREAM):
            await _check_room(connection, config)
        await connection.js.add_stream(config)
    except BadRequestError as error:
        if error.err_code != EXISTS_OTHERWISE:
            raise
        await connection.js.update_stream(config)


async def _exists(connection: Connection, stream: str) -> bool:
    try:
        await connection.js.stream_info(stream)
    except NotFoundError:
        return False
    return True


async def _check_room(connection: Connection, config: StreamConfig) -> None:
    """Create the stream with a limit, then remove that: only for a limit does the server check its disk."""
    await connection.js.add_stream(replace(config, max_bytes=connection.settings.stream_max_bytes))
    await connection.js.update_stream(config)


def configs(settings: Settings) -> list[StreamConfig]:
    """The configuration of each stream, in the order in which they are made.

    Heartbeats are in memory, all else on disk. The stream of heartbeats comes before that of observations: in
    an earlier version it had the subjects of both, and two streams may not have one subject.
    """
    return [
        _stream(
            settings,
            name=FACTS_STREAM,
            subjects=list(FACT_SUBJECTS),
            max_bytes=-1,  # the monitor trims it, once facts are archived and needed no more
            duplicate_window=settings.duplicate_window_real_s,
        ),
        _stream(
            settings,
            name=SAMPLES_STREAM,
            subjects=[sample_subject(Heartbeat)],
            storage=StorageType.MEMORY,
            max_bytes=settings.sample_max_bytes,
            max_age=settings.sample_max_age_real_s,
        ),
        _stream(
            settings,
            name=OBSERVATIONS_STREAM,
            subjects=[sample_subject(ThroughputObserved)],
            max_bytes=OBSERVATIONS_MAX_BYTES,
        ),
        _stream(
            settings,
            name=DEAD_STREAM,
            subjects=[f"{DEAD_PREFIX}.>"],
            max_msgs=DEAD_LETTERS,
            max_bytes=DEAD_MAX_BYTES,
        ),
        _stream(
            settings,
            name=STATE_STREAM,
            subjects=[f"{STATE_SUBJECT}.>"],
            max_msgs_per_subject=1,
            discard=DiscardPolicy.NEW,
            allow_rollup_hdrs=False,  # with that header, who may write one value could delete all others
            allow_msg_ttl=True,
        ),
        _stream(
            settings,
            name=SNAPSHOT_STREAM,
            subjects=[f"$O.{SNAPSHOT_BUCKET}.C.>", f"$O.{SNAPSHOT_BUCKET}.M.>"],
            discard=DiscardPolicy.NEW,
            allow_rollup_hdrs=True,  # the client's object store sends them; no agent writes there
        ),
    ]


def _stream(settings: Settings, **options: Any) -> StreamConfig:  # noqa: ANN401 - fields of StreamConfig
    defaults: dict[str, Any] = {
        "retention": RetentionPolicy.LIMITS,
        "storage": StorageType.FILE,
        "discard": DiscardPolicy.OLD,
        "num_replicas": settings.nats_replicas,
    }
    return StreamConfig(**(defaults | options))
