"""The full model for MathOpt: a protocol buffer filled from arrays, ten times as fast as MathOpt's objects.

Row i < jobs: at most one configuration of job i. Row jobs + n: the GPUs of node n. Values are divided by
`scale`, so that the absolute tolerances of a solver fit them.
"""

import numpy as np
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from services.planner.solver.problem import Problem

STEP_S = 2.5e-4
STEP_PER_CONFIGURATION_S = 5.5e-8
"""modelled seconds of a simplex iteration beyond `STEP_S`, per configuration, as measured on a server"""


def modelled_s(steps: int, configurations: int) -> float:
    """Seconds that `steps` simplex iterations take on a common server."""
    return steps * (STEP_S + STEP_PER_CONFIGURATION_S * configurations)


def model_of(problem: Problem, scale: float, *, integer: bool) -> mathopt.Model:
    """The program, or its linear relaxation; variables in the order of the configurations."""
    count, rows = len(problem), problem.jobs + len(problem.capacity)
    proto = model_pb2.ModelProto()
    proto.variables.ids.extend(range(count))
    proto.variables.lower_bounds.extend(np.zeros(count))
    proto.variables.upper_bounds.extend(np.ones(count))
    proto.variables.integers.extend([integer] * count)
    proto.objective.maximize = True
    proto.objective.linear_coefficients.ids.extend(range(count))
    proto.objective.linear_coefficients.values.extend(problem.value / scale)
    proto.linear_constraints.ids.extend(range(rows))
    proto.linear_constraints.lower_bounds.extend(np.full(rows, -np.inf))
    proto.linear_constraints.upper_bounds.extend(np.concatenate([np.ones(problem.jobs), problem.capacity]))
    _fill_matrix(proto, problem)
    return mathopt.Model.from_model_proto(proto)


def _fill_matrix(proto: model_pb2.ModelProto, problem: Problem) -> None:
    one = np.arange(len(problem))
    column = np.concatenate([one, np.repeat(one, np.diff(problem.start))])
    row = np.concatenate([problem.job, problem.jobs + problem.node])
    value = np.concatenate([np.ones(len(problem)), problem.gpus])
    order = np.lexsort((column, row))
    matrix = proto.linear_constraint_matrix
    matrix.row_ids.extend(row[order])
    matrix.column_ids.extend(column[order])
    matrix.coefficients.extend(value[order])
