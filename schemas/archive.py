"""The lines of an exported store: JSON, an entry a line, after a header line."""

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from schemas.accuracy import Execution
from schemas.calibration import BandwidthRow
from schemas.cluster import Node
from schemas.ids import Fingerprint, GpuType
from schemas.jobs import Workload
from schemas.measurements import DataMode, TimeModules
from schemas.numbers import MOST, Amount, Rate, Tally, WholeNumber
from schemas.samples import ThroughputObserved
from schemas.upgrades import upgraded

VERSION = 3
READABLE = range(1, VERSION + 1)
"""format versions that can be read; version 1 is of 0.1.0, with GPUs by node in place of gangs; version 2
has no nodes"""
NAMED = ("model", "dataset", "batch_size", "optimizer", "code_version")
"""fields of a workload, in the order in which its fingerprint has them"""
LINE_BYTES_MAX = 2**20
"""longest line, with room: none has more than a few thousand bytes"""
ROUNDING = 1e-3
"""by how much probabilities may add up to another sum than 1"""


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    pass


class Header(Line, frozen=True, kw_only=True, tag="hopyard-store"):
    version: int


class ObservationLine(Line, frozen=True, kw_only=True, tag="observation"):
    """A throughput observation; the entity layer and the type layer are computed from these."""

    seen: ThroughputObserved


class TheoryLine(Line, frozen=True, kw_only=True, tag="theory"):
    """Time modules as profiled, for the theory layer."""

    fingerprint: Fingerprint
    gpu_type: GpuType
    modules: TimeModules


class LoadingLine(Line, frozen=True, kw_only=True, tag="loading"):
    """Data loading and waiting, as refined by observations of running jobs."""

    fingerprint: Fingerprint
    gpu_type: GpuType
    data: tuple[DataMode, ...]
    wait_factor: Amount
    wait_s: Amount
    iterations: WholeNumber
    waits_s: tuple[Amount, ...] = ()


class CorrectionLine(Line, frozen=True, kw_only=True, tag="correction"):
    """Correction of estimates for gangs with unlike shares: `factor` = measured / estimated."""

    fingerprint: Fingerprint
    gpu_types: str
    factor: Rate
    observations: Tally


class BandwidthLine(Line, frozen=True, kw_only=True, tag="bandwidth"):
    row: BandwidthRow


class NodeLine(Line, frozen=True, kw_only=True, tag="node"):
    """A node that the exporting stack had; its model of server says whose evidence its own counts for."""

    node: Node


class ExecutionLine(Line, frozen=True, kw_only=True, tag="execution"):
    execution: Execution


Entry = ObservationLine | TheoryLine | LoadingLine | CorrectionLine | BandwidthLine | NodeLine | ExecutionLine

_header = msgspec.json.Decoder(Header)
_entry = msgspec.json.Decoder(Entry)


def encoded(line: Line) -> bytes:
    return msgspec.json.encode(line)


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a file. A line that is too long comes in pieces, of which the first is no entry."""
    return iter(lambda: file.readline(LINE_BYTES_MAX), b"")


def header_of(line: bytes) -> Header:
    """The header of an export. Raises ValueError for another kind of file, or another version."""
    try:
        header = _header.decode(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not an exported store: {error}") from None
    if header.version not in READABLE:
        raise ValueError(f"an export of version {header.version}, this reads {READABLE[0]} to {VERSION}")
    return header


def entry_of(line: bytes) -> Entry:
    """The entry in a line. Raises ValueError."""
    try:
        entry = _decoded(line)
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    _check(entry)
    return entry


def _decoded(line: bytes) -> Entry:
    """Decode a line of any readable version. Raises what decoders raise, and upgrades of what is no entry."""
    try:
        entry: Entry = _entry.decode(line)
    except msgspec.ValidationError:
        raw = msgspec.json.decode(line)
        if not isinstance(raw, dict) or not isinstance(raw.get("seen"), dict):
            raise
        entry = _entry.decode(msgspec.json.encode(raw | {"seen": upgraded(raw["seen"])}))
    return entry


def _check(entry: Entry) -> None:
    """Check what types cannot. Raises ValueError."""
    match entry:
        case ObservationLine(seen=seen):
            uneven = seen.wait_s and len(seen.wait_s) != len(seen.data_s)
            elsewhere = seen.gang.on(seen.node_id) != seen.gpus_on_node
            wrong = uneven or elsewhere or not (seen.throughput and seen.seconds)
        case TheoryLine(fingerprint=fingerprint, modules=modules):
            workload_of(fingerprint)
            times = (modules.forward_s, modules.backward_s, modules.update_s)
            wrong = not (_is_mixture(modules.data) and any((*times, *(one.mean_s for one in modules.data))))
        case LoadingLine(data=data):
            wrong = not _is_mixture(data)
        case ExecutionLine(execution=execution):
            wrong = not execution.seconds or execution.error > MOST
        case _:
            wrong = False
    if wrong:
        raise ValueError("numbers that cannot have been measured")


def _is_mixture(data: tuple[DataMode, ...]) -> bool:
    """Whether there are one or two components, one of which happens in every iteration."""
    return len(data) in {1, 2} and abs(sum(one.probability for one in data) - 1.0) < ROUNDING


def workload_of(fingerprint: Fingerprint) -> Workload:
    """The workload that has this fingerprint. Raises ValueError."""
    parts = [part.replace("%7C", "|").replace("%25", "%") for part in fingerprint.split("|")]
    try:
        found = msgspec.convert(dict(zip(NAMED, parts, strict=True)), Workload, strict=False)
    except ValueError:
        found = None
    if found is None or found.fingerprint != fingerprint:
        raise ValueError(f"{fingerprint!r} is not a fingerprint of a workload")
    return found
