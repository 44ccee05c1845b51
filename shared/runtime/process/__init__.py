"""Runs a service as a process: settings, logs, signals, web server, reports; and a NATS server."""
