"""Throughput by theory (Hops eq. 1 to 5), and the measured paths and loading times that it uses."""
