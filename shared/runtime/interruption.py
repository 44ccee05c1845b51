"""A signal that meets a query of DuckDB stops the program as it does anywhere else."""

from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = "Query interrupted"


@contextmanager
def interruptible() -> Iterator[None]:
    """A context for queries. Raises KeyboardInterrupt.

    Where the handler of a signal raises, DuckDB raises a RuntimeError of its own in place of that error.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) == INTERRUPTED:
            raise KeyboardInterrupt from None
        raise
