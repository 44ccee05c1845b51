"""What the whole system agrees on. Pure: no I/O, no clock, no randomness."""
