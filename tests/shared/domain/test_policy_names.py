"""How policies are written, and which ones a stack takes."""

import pytest

from shared.domain.policy_names import LENGTH_MAX, AcceptedPolicies, parted, written


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("hops", "hops", {}),
        ("a.b:C", "a.b:C", {}),
        ("../my own/greedy.py:Greedy+a=1", "../my own/greedy.py:Greedy", {"a": "1"}),
        (
            "hops+moving_cost_s=1.5e+1+window_factor=2",
            "hops",
            {"moving_cost_s": "1.5e+1", "window_factor": "2"},
        ),
        ("yarn-cs+capacities=vision=3 speech=1", "yarn-cs", {"capacities": "vision=3 speech=1"}),
        ("hops+priority_rule=", "hops", {"priority_rule": ""}),
    ],
)
def test_a_name_and_its_options(text: str, name: str, options: dict[str, str]) -> None:
    assert parted(text) == (name, options)
    assert written(name, options) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is written NAME"),
        ("hops+", "is written NAME"),
        ("hops sia", "is written NAME"),
        ("./greedy.py", "is written NAME"),
        ("./greedy.txt:Greedy", "is written NAME"),
        ("hops+window_factor", "is written NAME"),
        ("hops+Window=1", "'Window' is not a name of an option"),
        ("hops+=1", "'' is not a name of an option"),
        ("hops+a=1+a=2", "option a is there twice"),
        ("hops+a=\n", "plain ASCII"),
        ("höps", "plain ASCII"),
        ("x" * (LENGTH_MAX + 1), "characters at most"),
    ],
)
def test_a_malformed_policy_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parted(text)


def test_a_stack_accepts_installed_configured_and_allowed_policies() -> None:
    accepted = AcceptedPolicies(("hops", "fifo"), "mine:Own+a=1", ("their:Own",))
    assert accepted.names() == ("fifo", "hops", "mine:Own", "their:Own")
    assert [accepted.refusal(name) for name in accepted.names()] == [None] * 4
    assert accepted.refusal("json:loads") == (
        "no such policy json:loads; there are fifo, hops, mine:Own, their:Own;"
        " policies_allowed lists what an operator allows besides"
    )
    assert (
        accepted.refusal("nonsense") == "no such policy nonsense; there are fifo, hops, mine:Own, their:Own"
    )


def test_an_operator_may_allow_any() -> None:
    accepted = AcceptedPolicies(("hops",), "hops", ("*",))
    assert accepted.names() == ("hops", "*")
    assert accepted.refusal("json:loads") is None
    assert accepted.refusal("nonsense") == "no such policy nonsense; there are hops, any module:attribute"
