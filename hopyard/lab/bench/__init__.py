"""Benchmarks of the system on this machine: one file a figure, each run on real parts.

Nothing here is asserted: a figure depends on the machine, so every report says which it was.
"""
