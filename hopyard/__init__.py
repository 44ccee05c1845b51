"""What a user types: the command line, the embedded stack, the client of the HTTP API."""
