import io

import msgspec
import pytest
from rich.console import Console

from hopyard.lab.experiments import comparison
from hopyard.lab.report.document import Table
from hopyard.lab.report.measures import says_little, spread
from hopyard.lab.report.screen import compared
from hopyard.lab.report.statistics import summary
from hopyard.lab.report.verdicts import Verdict, in_short, verdicts, warnings
from hopyard.lab.runs.cases import Case, Finished, comparable, values_of
from hopyard.lab.runs.trials import Bounded, Simulated
from tests.hopyard.lab.experiment_builders import finished, job, outcome, trial

HOUR_S = 3600.0


def outcomes(**jct_h: tuple[float, ...]) -> dict[str, list[Simulated]]:
    return {
        arm: [
            outcome(arm, seed, jct_s_mean=hours * HOUR_S, makespan_s=7200.0 + seed)
            for seed, hours in enumerate(values, start=1)
        ]
        for arm, values in jct_h.items()
    }


def of_jct(**jct_h: tuple[float, ...]) -> Verdict:
    return next(one for one in verdicts("all", outcomes(**jct_h)) if one.measure == "mean JCT")


def test_the_best_is_named_with_how_much_and_how_sure() -> None:
    verdict = of_jct(fifo=(2.0, 3.0, 4.0), hops=(1.0, 2.1, 2.9))
    assert (verdict.best, verdict.decided) == ("hops", True)
    assert verdict.text == "hops is best with 2 h: 33% below fifo (by 1 ± 0.248)"


def test_seeds_are_compared_one_by_one() -> None:
    """The seeds differ by more than the policies do, and the policies in the same way at every seed."""
    assert of_jct(fifo=(10.1, 1.1, 5.1), hops=(10.0, 1.0, 5.0)).decided


def test_a_difference_within_the_seeds_spread_is_undecided() -> None:
    verdict = of_jct(fifo=(2.0, 1.0), hops=(1.0, 1.5))
    assert not verdict.decided
    assert verdict.text.startswith("hops has least, 1.25 h, but 2 seeds do not tell it from fifo (+0.25 ± ")


def test_one_seed_decides_no_comparison() -> None:
    verdict = of_jct(fifo=(2.0,), hops=(1.0,))
    assert not verdict.decided
    assert "1 seed does not tell it from fifo (+1)" in verdict.text
    assert warnings(outcomes(fifo=(2.0,), hops=(1.0,)))[0].startswith("One seed has no interval")


def test_runs_that_are_the_same_do_not_differ() -> None:
    assert of_jct(fifo=(2.0, 3.0), sjf=(2.0, 3.0)).text == "no difference: 2.5 h"


def test_leaders_that_are_level_are_named_together() -> None:
    """At no number of seeds does one of them get ahead."""
    best = {"hops": (1.0, 2.1, 2.9), "twin": (1.0, 2.1, 2.9)}
    sure = of_jct(fifo=(2.0, 3.0, 4.0), **best)
    assert (sure.leaders, sure.decided) == (["hops", "twin"], True)
    assert sure.text == "hops and twin are best with 2 h: 33% below fifo (by 1 ± 0.248)"
    assert in_short([sure]) == "hops and twin are best in mean JCT"
    unsure = of_jct(fifo=(2.0, 2.0, 2.9), **best)
    assert not unsure.decided
    assert unsure.text.startswith(
        "hops and twin have least, 2 h, but 3 seeds do not tell them from fifo (+0.3"
    )


def test_runs_that_differ_by_rounding_do_not_differ() -> None:
    """2.8 µs in 8.6 h, at every seed."""
    hops = (8.6, 8.7, 8.5)
    verdict = of_jct(fifo=tuple(hours + 2.8e-6 / HOUR_S for hours in hops), hops=hops)
    assert (verdict.text, verdict.decided) == ("no difference: 8.6 h", False)


def test_a_small_difference_at_every_seed_is_not_said_to_be_none() -> None:
    verdict = of_jct(fifo=(8.61, 8.71, 8.51), hops=(8.6, 8.7, 8.5))
    assert verdict.text == "hops is best with 8.6 h: less than 1% below fifo (by 0.01 ± 0)"


def test_almost_nothing_is_not_said_to_be_nothing() -> None:
    verdict = of_jct(fifo=(9_000.0, 9_000.0, 9_000.0), hops=(9.0, 9.0, 9.0))
    assert verdict.text.startswith("hops is best with 9 h: more than 99% below fifo")


def test_the_summary_says_which_policy_is_best_in_which_measure() -> None:
    found = verdicts("all", outcomes(fifo=(2.0, 3.0, 4.0), hops=(1.0, 2.1, 2.9)))
    assert in_short(found) == (
        "hops is best in mean JCT; "
        "there is no difference in makespan, mean WT, max LR, avg frag and max FTF ρ"
    )
    assert in_short([of_jct(fifo=(2.0, 1.0), hops=(1.0, 1.5))]) == "no policy is best for sure in mean JCT"


def repeated(one: Simulated, seeds: int = 3) -> list[Simulated]:
    """The same run under several seeds."""
    runs = (msgspec.structs.replace(one.result, seed=seed) for seed in range(1, seeds + 1))
    return [msgspec.structs.replace(one, result=run) for run in runs]


def test_seeds_that_give_the_same_run_of_every_policy_are_one_seed() -> None:
    found = {
        arm: repeated(outcome(arm, jct_s_mean=hours)) for arm, hours in {"a": 7200.0, "b": 3600.0}.items()
    }
    for verdict in verdicts("all", found):
        assert "±" not in verdict.text
        assert all(one.difference.half_width is None for one in verdict.others)
    assert warnings(found) == ["All 3 seeds gave the same run of every policy: there is no interval."]
    assert values_of(found, "jct_s_mean")["a"] == [7200.0]


def test_a_policy_that_seeds_do_not_change_is_named() -> None:
    found = {"same": repeated(outcome("same")), **outcomes(drawn=(1.2, 1.5, 1.4))}
    assert warnings(found)[0] == "All seeds gave the same run of same, whose figures so have no interval."
    [jct] = [one for one in verdicts("all", found) if one.measure == "mean JCT"]
    assert len(jct.others[0].difference.values) == 3


def test_table_figures_and_verdict_are_of_the_same_seeds() -> None:
    """The third seed is that of a long workload, which sjf has no value for."""
    found = outcomes(fifo=(2.0, 3.0, 10.0), sjf=(1.0, 2.0))
    done = [
        Finished(Case(group="all", arm=arm, trial=trial(arm, one.result.seed)), one, Bounded(jct_s_mean=1800))
        for arm, each in found.items()
        for one in each
    ]
    [verdict] = [one for one in verdicts("all", found) if one.measure == "mean JCT"]
    assert (verdict.best, verdict.mean, verdict.others[0].mean) == ("sjf", 1.5, 2.5)
    table = next(part for part in comparison.compared(done, {}, "") if isinstance(part, Table))
    column = table.columns.index(">mean JCT, h")
    assert [row[column].partition(" ")[0] for row in table.rows] == ["2.5", "1.5"]
    figures = [one for one in comparison.figures_of(done, {}) if one.measure.startswith("mean JCT")]
    assert {(one.arm, one.measure): one.mean for one in figures if one.group == "all"} == {
        ("fifo", "mean JCT"): 2.5,
        ("sjf", "mean JCT"): 1.5,
        ("fifo", "mean JCT over its bound"): 5.0,
        ("sjf", "mean JCT over its bound"): 3.0,
    }
    shown = "\n".join(map(str, compared("all", done, [], {})))
    left_out = "max FTF ρ at seeds 1 and 2 only; other seeds are left out there."
    assert left_out in warnings(found)[0]
    assert left_out in shown


def test_a_measure_that_one_policy_never_has_takes_no_seed_from_the_others() -> None:
    found = outcomes(fifo=(2.0, 3.0), never=(1.0, 1.0))
    for one in found["never"]:
        one.result.metrics["jct_s_mean"] = None
    assert values_of(found, "jct_s_mean") == {"fifo": [2.0 * HOUR_S, 3.0 * HOUR_S], "never": []}
    assert not any("only" in said for said in warnings(found))


def test_only_runs_at_seeds_that_every_policy_has_are_compared() -> None:
    done = [finished("fifo", seed) for seed in (1, 2, 3)] + [finished("sjf", seed) for seed in (1, 3)]
    elsewhere = [finished("fifo", 2, group="b"), finished("sjf", 3, group="b")]
    assert [(one.case.arm, one.case.seed) for one in comparable(done)] == [
        ("fifo", 1),
        ("fifo", 3),
        ("sjf", 1),
        ("sjf", 3),
    ]
    assert comparable(elsewhere) == elsewhere


def test_a_policy_alone_is_not_judged() -> None:
    assert verdicts("all", outcomes(fifo=(2.0, 3.0))) == []


def test_policies_that_completed_different_jobs_are_not_judged() -> None:
    found = outcomes(fifo=(2.0, 3.0, 4.0), hops=(1.0, 2.1, 2.9))
    whole = found["hops"][1]
    left = (whole.jobs[0], job("b", state="queued", jct_s=None, ended_at=None))
    short = msgspec.structs.replace(whole, result=msgspec.structs.replace(whole.result, job_results=left))
    found["hops"][1] = short
    assert verdicts("all", found) == []
    assert warnings(found)[0] == (
        "No verdict: figures are of different jobs, since not all policies completed the same "
        "(fifo 6 and hops 5)."
    )
    both = {arm: [short] for arm in found}
    assert verdicts("all", both)


def test_a_wide_interval_is_marked_and_warned_about() -> None:
    vague = summary([4.0, 43.0])
    assert says_little(vague)
    assert spread(vague) == "23.5 ± 248 ?"
    (warning,) = warnings(outcomes(fifo=(4.0, 43.0)))
    assert warning.startswith("1 of 6 intervals, marked ?, are wider than half of their figure: 2 seeds")
    assert warning.endswith("Try --seeds 5.")


@pytest.mark.parametrize(("values", "little"), [((1.0, 1.2, 1.1), False), ((-1.0, 1.2, 1.1), True)])
def test_a_difference_says_little_when_it_may_be_zero(values: tuple[float, ...], little: bool) -> None:  # noqa: FBT001
    assert says_little(summary(values), signed=True) == little


def test_a_run_below_its_bound_is_named_in_report_and_on_the_screen() -> None:
    found = outcomes(fifo=(2.0, 3.0), sjf=(0.9996, 0.25))
    done = [
        Finished(Case(group="all", arm=arm, trial=trial(arm, one.result.seed)), one, Bounded(jct_s_mean=3600))
        for arm, each in found.items()
        for one in each
    ]
    said = "sjf is below the bound of its mean JCT in 1 of 2 runs (× 0.25 at seed 2)."
    report = [part for part in comparison.compared(done, {}, "") if isinstance(part, str)]
    assert next(part for part in report if "below the bound" in part).startswith(f"> {said}")
    assert said in "\n".join(map(str, compared("all", done, [], {})))


REMARKS = {"gavel": ["gives a job one GPU count (the median); 8 of 8 jobs list several", "another"]}


def test_the_screen_has_table_verdict_and_warning_within_80_columns() -> None:
    found = outcomes(fifo=(2.0, 3.0), hops=(1.0, 2.1), sia=(4.0, 43.0), gavel=(2.0, 2.0))
    bound = Bounded(makespan_s=3600.0, jct_s_mean=1800.0)
    members = [
        Finished(Case(group="all", arm=arm, trial=trial(arm, one.result.seed)), one, bound)
        for arm, each in found.items()
        for one in each
    ]
    file = io.StringIO()
    console = Console(file=file, width=80)
    for part in compared("side by side", members, verdicts("side by side", found), REMARKS):
        console.print(part)
    text = file.getvalue()
    assert text.count("  × bound") == 4  # of makespan and mean JCT, in two tables
    assert "no scheduler could beat" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.startswith("Side by side: tiny, 2 seeds; mean ± half of the 95 % interval\n")
    wanted = (
        "mean JCT, h",
        "23.5 ± 248 ?",
        "No policy is best for sure in",
        "Try --seeds 5.",
        "of 8 jobs list",
    )
    for said in wanted:
        assert said in text
