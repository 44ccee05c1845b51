"""The HTTP API from the outside: its client, and how a command finds the stack that serves it."""
