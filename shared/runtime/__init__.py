"""The only shared code with I/O: bus, clock, shell, settings, logs, web."""
