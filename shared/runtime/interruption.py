"""Ends a program that is signalled during a query of DuckDB, as it would end at any other time."""

from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = "Query interrupted"
"""message of DuckDB's error"""


@contextmanager
def interruptible() -> Iterator[None]:
    """A context for DuckDB's queries, in which a signal whose handler raises ends with KeyboardInterrupt.

    DuckDB drops what the handler raised, and raises a RuntimeError of its own.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) == INTERRUPTED:
            raise KeyboardInterrupt from None
        raise
