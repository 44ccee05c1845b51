"""Back ends that give the whole program to a solver: HiGHS, SCIP and CP-SAT."""
