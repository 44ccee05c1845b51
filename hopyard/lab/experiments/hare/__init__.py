"""Hare's experiments (IEEE TCC 12(4), 2024, section VI), repeated; reports have its figures beside ours."""
