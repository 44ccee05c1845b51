"""What a user types: the command line, the HTTP client, the stack on one machine, the laboratory."""
