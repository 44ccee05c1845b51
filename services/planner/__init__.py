"""Rounds, priorities, service window, configurations, the integer program, and the policies."""
