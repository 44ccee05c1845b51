"""The experiments of JPS (Liu et al., IEEE TPDS 35(6), 2024), on measured speeds."""

from hopyard.lab.experiments.jps import cases, report

__all__ = ["cases", "report"]
