"""The services, in the order the data flows: admission, profiler, estimator, planner, placer, agent, monitor.

They never import each other; they meet on the bus.
"""
