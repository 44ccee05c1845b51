"""HLAS (IEEE TCC 12(4), 2024): least attained service, measured alike on all GPUs; gangs are relaxed."""
