"""The tables of the DuckDB file: their columns, and rows made from what they keep. No I/O."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from schemas.accuracy import Execution
from schemas.ids import Fingerprint, GpuType, JobId, NodeId, PlacementId
from schemas.placement import Configuration, Gang
from schemas.plans import Layer
from schemas.samples import ThroughputObserved

FORMAT = 1
"""format of the file; tables that an older file lacks are added"""

SCHEMA = """
CREATE TABLE IF NOT EXISTS hopyard_store (format INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS evidence (
    fingerprint VARCHAR, layer VARCHAR, place VARCHAR, distributed BOOLEAN, size INTEGER,
    count BIGINT NOT NULL, seconds DOUBLE NOT NULL,
    weight DOUBLE NOT NULL, first DOUBLE NOT NULL, second DOUBLE NOT NULL, seen_at DOUBLE NOT NULL,
    PRIMARY KEY (fingerprint, layer, place, distributed, size));
CREATE TABLE IF NOT EXISTS observations (
    seen_at DOUBLE NOT NULL, fingerprint VARCHAR NOT NULL, job_id VARCHAR NOT NULL,
    placement_id VARCHAR NOT NULL, node_id VARCHAR NOT NULL, gpu_type VARCHAR NOT NULL,
    gpus_on_node INTEGER NOT NULL, configuration VARCHAR NOT NULL, seconds DOUBLE NOT NULL,
    throughput DOUBLE NOT NULL, data_s VARCHAR NOT NULL, wait_s VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS pruned (observations BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS theory (
    fingerprint VARCHAR, gpu_type VARCHAR, batch_size INTEGER NOT NULL, modules VARCHAR NOT NULL,
    PRIMARY KEY (fingerprint, gpu_type));
CREATE TABLE IF NOT EXISTS loading (
    fingerprint VARCHAR, gpu_type VARCHAR, loading VARCHAR NOT NULL, PRIMARY KEY (fingerprint, gpu_type));
CREATE TABLE IF NOT EXISTS corrections (
    fingerprint VARCHAR, gpu_types VARCHAR, factor DOUBLE NOT NULL, observations INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, gpu_types));
CREATE TABLE IF NOT EXISTS bandwidths (gpu_type VARCHAR PRIMARY KEY, bandwidth VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS executions (
    placement_id VARCHAR PRIMARY KEY, job_id VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL,
    model VARCHAR NOT NULL, gpu_type VARCHAR NOT NULL, gpus INTEGER NOT NULL, nodes INTEGER NOT NULL,
    layer VARCHAR NOT NULL, estimated DOUBLE NOT NULL, measured DOUBLE NOT NULL, "at" DOUBLE NOT NULL,
    seconds DOUBLE NOT NULL, number INTEGER NOT NULL, unstable BOOLEAN NOT NULL);
"""
"""modules, loading, bandwidth, configuration, data_s and wait_s as JSON"""

TABLES: Mapping[str, Mapping[str, Any]] = {
    "evidence": {
        "fingerprint": object,
        "layer": object,
        "place": object,
        "distributed": np.bool_,
        "size": np.int32,
        "count": np.int64,
        "seconds": np.float64,
        "weight": np.float64,
        "first": np.float64,
        "second": np.float64,
        "seen_at": np.float64,
    },
    "observations": {
        "seen_at": np.float64,
        "fingerprint": object,
        "job_id": object,
        "placement_id": object,
        "node_id": object,
        "gpu_type": object,
        "gpus_on_node": np.int32,
        "configuration": object,
        "seconds": np.float64,
        "throughput": np.float64,
        "data_s": object,
        "wait_s": object,
    },
    "theory": {"fingerprint": object, "gpu_type": object, "batch_size": np.int32, "modules": object},
    "loading": {"fingerprint": object, "gpu_type": object, "loading": object},
    "corrections": {
        "fingerprint": object,
        "gpu_types": object,
        "factor": np.float64,
        "observations": np.int32,
    },
    "bandwidths": {"gpu_type": object, "bandwidth": object},
    "executions": {
        "placement_id": object,
        "job_id": object,
        "fingerprint": object,
        "model": object,
        "gpu_type": object,
        "gpus": np.int32,
        "nodes": np.int32,
        "layer": object,
        "estimated": np.float64,
        "measured": np.float64,
        "at": np.float64,
        "seconds": np.float64,
        "number": np.int32,
        "unstable": np.bool_,
    },
}
"""columns of each, with the type that a batch of rows has"""

SUMS = ("count", "seconds", "weight", "first", "second", "seen_at")
"""of `evidence`, in the order in which memory has them"""

Row = tuple[Any, ...]


def as_json(value: Any) -> str:  # noqa: ANN401 - whatever msgspec encodes
    return msgspec.json.encode(value).decode()


def observation_row(seen: ThroughputObserved) -> Row:
    return (
        seen.at,
        seen.fingerprint,
        seen.job_id,
        seen.placement_id,
        seen.node_id,
        seen.gpu_type,
        seen.gpus_on_node,
        as_json(seen.gang.configuration),
        seen.seconds,
        seen.throughput,
        as_json(seen.data_s),
        as_json(seen.wait_s),
    )


def observation_of(row: Row) -> ThroughputObserved:
    at, fingerprint, job_id, placement_id, node_id, gpu_type, gpus, configuration, *numbers = row
    seconds, throughput, data_s, wait_s = numbers
    return ThroughputObserved(
        at=at,
        fingerprint=Fingerprint(fingerprint),
        job_id=JobId(job_id),
        placement_id=PlacementId(placement_id),
        node_id=NodeId(node_id),
        gpu_type=GpuType(gpu_type),
        gpus_on_node=gpus,
        gang=Gang.of(msgspec.json.decode(configuration, type=Configuration)),
        seconds=seconds,
        throughput=throughput,
        data_s=msgspec.json.decode(data_s, type=tuple[float, ...]),
        wait_s=msgspec.json.decode(wait_s, type=tuple[float, ...]),
    )


def execution_row(one: Execution) -> Row:
    values = msgspec.structs.asdict(one) | {"layer": one.layer.value}
    return tuple(values[name] for name in TABLES["executions"])


def execution_of(row: Row) -> Execution:
    values = dict(zip(TABLES["executions"], row, strict=True))
    return Execution(**values | {"layer": Layer(values["layer"])})
