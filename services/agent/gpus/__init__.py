"""The GPUs of this machine: their number, their types, and whether they can be used now.

Only `nvml` speaks to the driver. What is concluded from its answers is decided by pure functions.
"""
