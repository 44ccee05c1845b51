"""The GPUs of this machine: which there are, what they are called, and whether they can be used now.

Only `nvml` speaks to the driver. What is concluded from its answers is decided by pure functions.
"""
