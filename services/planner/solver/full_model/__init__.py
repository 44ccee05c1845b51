"""Back ends that are given the full model: HiGHS, SCIP and CP-SAT."""
