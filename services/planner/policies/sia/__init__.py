"""Sia (SOSP '23): goodput by GPU type and count, one integer program a round, then places."""
