"""The HTTP API: turns requests into questions, and answers and facts into responses."""
