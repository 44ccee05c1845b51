"""Tiresias (NSDI '19): queues by attained service, or by the Gittins index."""
