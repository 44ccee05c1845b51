"""How a plan was found, in words. Pure."""

from schemas.plans import Stage

STAGES = {
    Stage.OPTIMAL: "solved",
    Stage.INCUMBENT: "the solver's best in its time",
    Stage.GREEDY: "by weight, without the solver",
    Stage.QUEUE: "in the order of its queue",
}
