"""Measures new workloads on one GPU of each type, at the start of every round (Hops section 3.2)."""
