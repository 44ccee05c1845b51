"""The HTTP API as one table: the routes are made from it, and so is the OpenAPI document."""

from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.base import File
from schemas.events import Fact
from schemas.jobs import JobFile, Name, User
from schemas.numbers import Number, WholeNumber
from schemas.output import OutputLine
from schemas.overview import PlanDetail, PlanPage, RunPage, SummaryPage, TimelineView, Which
from schemas.questions import JOBS_PER_PAGE
from schemas.tokens import Identity, Role
from schemas.views import (
    Cancelled,
    JobHold,
    JobPage,
    JobPriority,
    JobSorting,
    JobView,
    NodeDrain,
    NodePage,
    NodeRemoval,
    PolicyChoice,
    PolicyPage,
    PriorityChoice,
    SettingsView,
    StatusView,
    Submitted,
    WhyView,
)
from shared.domain.states import JobState

CHANGES_PER_PAGE = 5_000
PLANS_PER_PAGE = 50
NEWEST_MAX = 10_000
"""facts, or lines of output, that one request for the newest may ask for: they are held in memory"""


class JobsQuery(File, frozen=True, kw_only=True):
    state: tuple[JobState, ...] = ()
    """any of these; without it, every state"""
    project: Name | None = None
    user: User | None = None
    sort: JobSorting = JobSorting.SUBMITTED
    limit: Annotated[int, Meta(ge=1, le=JOBS_PER_PAGE)] = 100
    after: Annotated[str, Meta(max_length=500)] | None = None
    """`next` of the page before"""


class TimelineQuery(File, frozen=True, kw_only=True):
    after: WholeNumber = 0
    """`revision` of the answer before"""
    limit: Annotated[int, Meta(ge=1, le=CHANGES_PER_PAGE)] = 2_000


class SummariesQuery(File, frozen=True, kw_only=True):
    which: Which = Which.WAITING
    limit: Annotated[int, Meta(ge=1, le=JOBS_PER_PAGE)] = 100


class SubmitQuery(File, frozen=True, kw_only=True):
    hold: bool = False
    """true: the job is on hold from the start, until it is released"""


class PlansQuery(File, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=PLANS_PER_PAGE)] = 20


class EventsQuery(File, frozen=True, kw_only=True):
    after: WholeNumber = 0
    """`seq` of the last line already read"""
    job: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    since: Number = 0.0
    """cluster time: facts before it are left out"""
    limit: Annotated[int, Meta(ge=1)] | None = None
    """lines at most, the first ones; without it, all up to the fact that is the newest at the time of the
    request"""
    follow: bool = False
    """true: the response goes on with new facts as they come"""
    newest: Annotated[int, Meta(ge=0, le=NEWEST_MAX)] | None = None
    """number of stored facts to begin with, the newest ones; 0 with `follow`: new facts only"""


class OutputQuery(File, frozen=True, kw_only=True):
    newest: Annotated[int, Meta(ge=0, le=NEWEST_MAX)] = 1_000
    """number of kept lines to begin with, the newest ones"""
    rank: Annotated[int, Meta(ge=0)] | None = None
    """the process whose lines are wanted; None: all processes"""
    follow: bool = False
    """true: the response goes on with new lines until the job has ended"""


class EventLine(msgspec.Struct, frozen=True):
    """One line: a fact and its place in the stream."""

    seq: int
    event: Fact


class NoQuery(File, frozen=True, kw_only=True):
    pass


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    method: str
    path: str
    summary: str
    reply: type
    status: int = 200
    lines: bool = False
    """true: many replies, one a line"""
    body: type | None = None
    query: type[File] = NoQuery
    role: Role = Role.VIEWER
    """the lowest role that may request it"""
    keyed: bool = False
    """true: takes an idempotency key"""


OPERATIONS = (
    Operation(
        name="submit_job", method="POST", path="/v1/jobs", summary="Submit a job, in JSON or YAML.",
        reply=Submitted, status=201, body=JobFile, query=SubmitQuery, keyed=True, role=Role.SUBMITTER,
    ),
    Operation(
        name="list_jobs", method="GET", path="/v1/jobs", summary="Jobs, a page at a time.",
        reply=JobPage, query=JobsQuery,
    ),
    Operation(
        name="show_job", method="GET", path="/v1/jobs/{id}", summary="One job.", reply=JobView,
    ),
    Operation(
        name="cancel_job", method="DELETE", path="/v1/jobs/{id}", summary="Cancel a job.",
        reply=Cancelled, status=202, role=Role.SUBMITTER,
    ),
    Operation(
        name="set_priority", method="PUT", path="/v1/jobs/{id}/priority",
        summary="Change the priority of a job from the next plan on.",
        reply=JobPriority, status=202, body=PriorityChoice, role=Role.SUBMITTER,
    ),
    Operation(
        name="hold_job", method="POST", path="/v1/jobs/{id}/hold",
        summary="Give a job no GPUs until it is released; the next plan stops it.",
        reply=JobHold, status=202, role=Role.SUBMITTER,
    ),
    Operation(
        name="release_job", method="DELETE", path="/v1/jobs/{id}/hold", summary="End the hold of a job.",
        reply=JobHold, status=202, role=Role.SUBMITTER,
    ),
    Operation(
        name="explain_job", method="GET", path="/v1/jobs/{id}/why",
        summary="Why the job waits, or why it runs where it does.", reply=WhyView,
    ),
    Operation(
        name="list_runs", method="GET", path="/v1/jobs/{id}/runs",
        summary="Where a job has run, and how fast.", reply=RunPage,
    ),
    Operation(
        name="list_summaries", method="GET", path="/v1/summaries",
        summary="Jobs in short: those that wait, run, or have ended.",
        reply=SummaryPage, query=SummariesQuery,
    ),
    Operation(
        name="show_timeline", method="GET", path="/v1/timeline",
        summary="Who held which GPUs when, nodes out of use, and what is planned.",
        reply=TimelineView, query=TimelineQuery,
    ),
    Operation(
        name="list_plans", method="GET", path="/v1/plans", summary="The last plans, newest first.",
        reply=PlanPage, query=PlansQuery,
    ),
    Operation(
        name="show_plan", method="GET", path="/v1/plans/{id}", summary="What one of the last plans decided.",
        reply=PlanDetail,
    ),
    Operation(name="list_nodes", method="GET", path="/v1/nodes", summary="All nodes.", reply=NodePage),
    Operation(
        name="drain_node", method="POST", path="/v1/nodes/{id}/drain", summary="Start nothing new on a node.",
        reply=NodeDrain, status=202, role=Role.OPERATOR,
    ),
    Operation(
        name="restore_node", method="DELETE", path="/v1/nodes/{id}/drain", summary="Use a node again.",
        reply=NodeDrain, status=202, role=Role.OPERATOR,
    ),
    Operation(
        name="remove_node", method="DELETE", path="/v1/nodes/{id}", summary="Forget a lost node.",
        reply=NodeRemoval, status=202, role=Role.OPERATOR,
    ),
    Operation(
        name="show_status", method="GET", path="/v1/status", summary="The cluster at a glance.",
        reply=StatusView,
    ),
    Operation(
        name="show_policy", method="GET", path="/v1/policy", summary="The policy chosen for the next plans.",
        reply=PolicyChoice,
    ),
    Operation(
        name="set_policy", method="PUT", path="/v1/policy", summary="Choose the policy of the next plans.",
        reply=PolicyChoice, body=PolicyChoice, role=Role.OPERATOR,
    ),
    Operation(
        name="list_policies", method="GET", path="/v1/policies", summary="The policies that can be chosen.",
        reply=PolicyPage,
    ),
    Operation(
        name="list_settings", method="GET", path="/v1/settings",
        summary="The settings in force in admission, each with who set it and what it means.",
        reply=SettingsView,
    ),
    Operation(
        name="show_caller", method="GET", path="/v1/me", summary="The user, project and role of the token.",
        reply=Identity,
    ),
    Operation(
        name="show_output", method="GET", path="/v1/jobs/{id}/output",
        summary="What the job's processes printed, a line each.",
        reply=OutputLine, lines=True, query=OutputQuery,
    ),
    Operation(
        name="list_events", method="GET", path="/v1/events", summary="The facts, one a line.",
        reply=EventLine, lines=True, query=EventsQuery,
    ),
)  # fmt: skip
