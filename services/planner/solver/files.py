"""Reads and writes problems as files: JSON, plain or gzipped. `schemas.problems` defines the format."""

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from schemas.problems import SCHEMA, SavedConfiguration, SavedJob, SavedProblem, SolveResult
from services.planner.solver.problem import NOTHING, Problem, Solution, restricted
from shared.domain.arrays import Ints
from shared.runtime.files import InvalidFile

BYTES_AT_MOST = 2 * 1024**3
"""most bytes of JSON in a file; a million configurations are about 60 MB"""
GZIP = b"\x1f\x8b"
LEVEL = 1
"""level of compression: three times as fast as the default and nearly as good"""

_PLACE = re.compile(r" - at `(?P<field>[^`]*)`$")


class NamedProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem with the ids of its jobs. Configurations of gain 0 are left out: none would be chosen."""

    problem: Problem
    jobs: tuple[str, ...]
    rows: Ints
    """by configuration of the problem: its position among all configurations of the file"""
    first: Ints
    """by job: the position of its first configuration among all configurations of the file"""


def read_problem(path: Path) -> NamedProblem:
    """The problem in a file. Raises OSError, and InvalidFile with the field and the reason."""
    file = _decoded(path)
    _check_indices(file, path)
    return saved_of(file)


def write_problem(path: Path, problem: Problem, jobs: Sequence[str]) -> None:
    """Write a problem; gzipped if the name ends in `.gz`.

    It is written under a temporary name first, so that no reader finds half a file.
    """
    data = msgspec.json.encode(file_of(problem, jobs))
    if path.suffix == ".gz":
        data = gzip.compress(data, LEVEL, mtime=0)
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def result_of(saved: NamedProblem, solution: Solution, backend: str) -> SolveResult:
    """The solution in terms of the file: a choice is a position among the configurations of its job."""
    chosen = solution.choice.tolist()
    return SolveResult(
        objective=solution.objective,
        bound=solution.bound,
        gap=solution.gap,
        seconds=solution.seconds,
        backend=backend,
        stage=solution.stage,
        choice=[
            None if row == NOTHING else int(saved.rows[row] - first)
            for row, first in zip(chosen, saved.first.tolist(), strict=True)
        ],
    )


def saved_of(file: SavedProblem) -> NamedProblem:
    """The problem of a file whose indices are valid."""
    counts = [len(job.configurations) for job in file.jobs]
    options = [option for job in file.jobs for option in job.configurations]
    whole = Problem(
        capacity=np.array(file.capacity, dtype=np.int32),
        weight=np.array([job.weight for job in file.jobs], dtype=np.float64),
        job=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        start=_starts([len(option.use) for option in options]),
        node=_ints(chain.from_iterable(option.use for option in options)),
        gpus=_ints(chain.from_iterable(option.use.values() for option in options)),
        gain=np.array([option.gain for option in options], dtype=np.float64),
        present=_ints(
            first + job.present
            for first, job in zip(_starts(counts).tolist(), file.jobs, strict=False)
            if job.present is not None
        ),
    )
    rows = np.flatnonzero(whole.gain > 0).astype(np.int32)
    return NamedProblem(
        problem=restricted(whole, rows),
        jobs=tuple(job.id for job in file.jobs),
        rows=rows,
        first=_starts(counts)[:-1],
    )


def file_of(problem: Problem, jobs: Sequence[str]) -> SavedProblem:
    """The file of a problem. `jobs`: their ids."""
    node, gpus = problem.node.tolist(), problem.gpus.tolist()
    ends = problem.start.tolist()
    options = [
        SavedConfiguration(gain=gain, use=dict(zip(node[begin:end], gpus[begin:end], strict=True)))
        for gain, begin, end in zip(problem.gain.tolist(), ends[:-1], ends[1:], strict=True)
    ]
    edges = np.searchsorted(problem.job, np.arange(problem.jobs + 1)).tolist()
    present = dict(zip(problem.job[problem.present].tolist(), problem.present.tolist(), strict=True))
    return SavedProblem(
        schema=SCHEMA,
        capacity=problem.capacity.tolist(),
        jobs=[
            SavedJob(
                id=name,
                weight=weight,
                configurations=options[begin:end],
                present=present[job] - begin if job in present else None,
            )
            for job, (name, weight, begin, end) in enumerate(
                zip(jobs, problem.weight.tolist(), edges[:-1], edges[1:], strict=True)
            )
        ],
    )


def _decoded(path: Path) -> SavedProblem:
    text = _text(path)
    if not text.strip():
        raise InvalidFile(str(path), None, None, "is empty")
    try:
        return msgspec.json.decode(text, type=SavedProblem)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        field = place["field"] if place else None
        raise InvalidFile(str(path), None, field, _PLACE.sub("", str(error))) from None
    except msgspec.DecodeError as error:
        raise InvalidFile(str(path), None, None, str(error)) from None


def _text(path: Path) -> bytes:
    """The content of the file, unpacked. Raises InvalidFile if it is damaged or too large."""
    with path.open("rb") as plain:
        packed = plain.read(len(GZIP)) == GZIP
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            data = file.read(BYTES_AT_MOST + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidFile(str(path), None, None, f"damaged gzip: {error}") from None
    if len(data) > BYTES_AT_MOST:
        raise InvalidFile(str(path), None, None, f"larger than {BYTES_AT_MOST} bytes")
    return data


def _check_indices(file: SavedProblem, path: Path) -> None:
    nodes = len(file.capacity)
    for number, job in enumerate(file.jobs):
        for place, option in enumerate(job.configurations):
            if max(option.use) >= nodes:
                field = f"$.jobs[{number}].configurations[{place}].use"
                raise InvalidFile(str(path), None, field, f"node {max(option.use)} of {nodes}, from 0")
        if job.present is not None and job.present >= len(job.configurations):
            reason = f"configuration {job.present} of {len(job.configurations)}, from 0"
            raise InvalidFile(str(path), None, f"$.jobs[{number}].present", reason)


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int32)


def _starts(counts: Sequence[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
