"""Hops: gains by latency ratio over location-specific configurations, solved as one problem."""
