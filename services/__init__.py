"""The services: admission, profiler, estimator, planner, placer, monitor, agent; `table` lists them.

They never import each other; they meet on the bus.
"""
