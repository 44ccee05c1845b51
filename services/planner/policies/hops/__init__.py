"""Hops (SoCC '24), and `hopyard`, our variant of its integer program."""
