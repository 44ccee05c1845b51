"""The load: arrivals, trace readers, replay against a live system, the emulated world, simulation."""
