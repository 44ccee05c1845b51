"""HLAS (IEEE TCC 12(4), 2024): least attained service, blind to which GPUs served; gangs are relaxed."""
