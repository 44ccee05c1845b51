"""The user's side: the command line, the HTTP client, the stack on one machine, the laboratory."""
