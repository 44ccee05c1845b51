"""How many threads numerical libraries may start."""

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""in the environment, unless it says otherwise: arrays are too small here for more, the last digits of a sum
would depend on how many there are, and a process in which NumPy has begun one cannot be forked (`prefork`)"""
