"""Hare's experiments (IEEE TCC 12(4), 2024, section VI): its figures, and ours beside them."""
