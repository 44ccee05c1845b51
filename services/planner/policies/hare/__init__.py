"""Hare (IEEE TCC 2024), offline: jobs take turns on unlike GPUs, and exchange while others compute."""
