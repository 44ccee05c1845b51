"""JPS and HAS (TPDS '24), and what their paper compares them with: Optimus and the exact optimum.

Numbers of equations, algorithms and tables are the paper's, unless a docstring says otherwise. A worker is
one GPU.
"""
