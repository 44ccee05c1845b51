"""JPS and HAS (TPDS '24), and what their paper holds them against: Optimus and the exact optimum.

Equations, algorithms and tables are the paper's, unless a docstring says otherwise. A worker is one GPU.
"""
