"""The mathematics of single policies: pure functions on plain data and arrays, no view and no plan.

What several policies share is here once: the door to linear programs, placing a gang, serving a queue.
"""
