"""How many threads numerical libraries may start."""

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""variables of the environment, unless it sets them otherwise: arrays are too small here for more threads,
the last digits of a sum would depend on their number, and a process in which NumPy has started a thread
cannot be forked (`prefork`)"""
