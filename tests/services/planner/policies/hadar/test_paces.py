"""What is asked of the estimator: a row for each type and number of nodes, once for jobs alike."""

import numpy as np

from schemas.ids import Fingerprint
from services.planner.policies.hadar.paces import Asker, Cell, asked, counts
from services.planner.policies.hadar.room import Levels
from tests.services.planner.planner_builders import chosen, decide, job, linear, node, view
from tests.services.planner.policies.hadar.hadar_builders import cluster


def test_a_row_for_each_type_and_number_of_nodes_even_where_a_type_has_too_few() -> None:
    nodes = cluster(k0=2, k1=2, v=2)
    own = job("a", (3,), gpu_types=("k", "v"))
    found = asked([Asker(own, 3, ())], Levels(nodes))
    assert set(found.rows[own.job_id]) == {Cell(kind, count) for kind in (0, 1) for count in (2, 3)}
    wanted = found.configurations
    assert [sum(wanted.at(row).values()) for row in range(len(wanted))] == [3] * 4
    assert np.diff(wanted.start).tolist() == [2, 3, 2, 3]


def test_jobs_of_one_workload_are_asked_about_once() -> None:
    nodes = cluster(k=4, v=4)
    jobs = [job(name, (2,), gpu_types=("k", "v"), workload=Fingerprint("w")) for name in "abc"]
    found = asked([Asker(one, 2, ()) for one in jobs], Levels(nodes))
    assert set(found.configurations.job.tolist()) == {0}
    assert found.rows[jobs[0].job_id] == found.rows[jobs[2].job_id]


def test_for_very_wide_gangs_only_some_numbers_of_nodes_are_estimated() -> None:
    assert counts(5) == (1, 2, 3, 4, 5)
    assert len(counts(1024)) < 40
    assert counts(1024)[-1] == 1024
    nodes = [node(f"v{index:03d}", 2, gpus=4, gpu_type="v") for index in range(200)]
    wide = job("wide", (300,), gpu_types=("v",))
    found = asked([Asker(wide, 300, ())], Levels(nodes))
    assert {cell.nodes for cell in found.rows[wide.job_id]} == set(range(2, 201))
    decision = decide("hadar", view([wide], nodes), linear)
    assert len(chosen(decision)["wide"]) == 150
