"""Predicts throughput from a multi-layer store: this server, this GPU type, theory (Hops section 3.5)."""
