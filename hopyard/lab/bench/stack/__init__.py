"""Measures a running stack: facts and jobs a second, latency, the time until a killed service is back."""
