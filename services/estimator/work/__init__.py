"""The estimator's outside work: reads and writes of the store, and calibration on the agents."""
