"""Policies that serve one queue in order: FIFO, SJF, SRTF, SRSF, LAS and YARN's capacity scheduler."""
