"""The GPUs of this machine: their number, their types, and whether they can be used now.

Only `nvml` calls the driver. Pure functions decide what follows from its answers.
"""
