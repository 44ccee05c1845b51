"""Processes as the kernel knows them: identity, start, search and kill."""
