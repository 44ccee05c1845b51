"""What makes a service a process: settings, logs, signals, its web server, its reports, a NATS server."""
