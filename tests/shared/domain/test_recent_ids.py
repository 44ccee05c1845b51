from shared.domain.recent_ids import RecentIds


def test_the_oldest_are_forgotten() -> None:
    recent = RecentIds(2)
    for name in ("a", "b", "c"):
        recent.add(name)
    assert list(recent) == ["b", "c"]
    assert "a" not in recent


def test_an_id_added_again_keeps_its_age() -> None:
    recent = RecentIds(2)
    assert [recent.add(name) for name in ("a", "b", "a", "c")] == [True, True, False, True]
    assert list(recent) == ["b", "c"]
