"""What jobs print, in files: read back by rank, rotated, bounded, and the same after a restart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from schemas.ids import JobId, NodeId
from schemas.output import OutputPage, RankOutput
from schemas.questions import ReadOutput
from schemas.settings import Settings
from services.agent.work.output import (
    LINE_MAX,
    NEWEST_MAX_BYTES,
    PAGE_MAX_BYTES,
    OutputFiles,
    OutputLimits,
    output_files,
)
from shared.runtime.clock import Clock, LoopClock

JOB, HERE = JobId("job-1"), NodeId("here")


class AtTen(LoopClock):
    def now(self) -> float:
        return 10.5


class Files(Protocol):
    def __call__(self, folder: Path, **limits: int) -> OutputFiles: ...


@pytest.fixture
def files() -> Iterator[Files]:
    """Makes output files in a folder; they are closed in the end."""
    default = {"file_bytes": 1_000, "files": 3, "node_bytes": 1_000_000}
    made: list[OutputFiles] = []

    def make(folder: Path, **limits: int) -> OutputFiles:
        made.append(OutputFiles(folder, AtTen(), OutputLimits(**(default | limits))))
        return made[-1]

    yield make
    for each in made:
        each.close()


def read(output: OutputFiles, job: JobId = JOB, newest: int = 100, **after: int) -> OutputPage:
    wanted = {int(rank.lstrip("r")): position for rank, position in after.items()}
    return output.read(ReadOutput(node_id=HERE, job_id=job, after=wanted, tail_lines=newest))


def only(page: OutputPage) -> RankOutput:
    [rank] = page.ranks
    return rank


def texts(rank: RankOutput) -> list[str]:
    return [line.text for line in rank.lines]


def test_lines_come_back_with_their_time_by_rank(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path)
    output.write(JOB, 0, "hello")
    output.write(JOB, 10, "world")
    output.write(JOB, 2, "between")
    page = read(output)
    assert [(one.rank, texts(one)) for one in page.ranks] == [
        (0, ["hello"]),
        (2, ["between"]),
        (10, ["world"]),
    ]
    assert page.ranks[0].lines[0].at == 10.5


def test_a_job_without_output_has_no_ranks(tmp_path: Path, files: Files) -> None:
    assert read(files(tmp_path / "none")) == OutputPage(ranks=())


def test_reading_begins_with_the_newest_lines_and_goes_on_with_new_ones(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path)
    for number in range(5):
        output.write(JOB, 0, f"line {number}")
    first = only(read(output, newest=2))
    assert texts(first) == ["line 3", "line 4"]
    assert texts(only(read(output, r0=first.next))) == []
    output.write(JOB, 0, "line 5")
    assert texts(only(read(output, r0=first.next))) == ["line 5"]
    assert only(read(output, newest=0)).next > first.next


def test_ranks_not_read_before_can_be_read_from_their_first_line(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path)
    output.write(JOB, 0, "known")
    before = only(read(output)).next
    output.write(JOB, 1, "first")
    question = ReadOutput(node_id=HERE, job_id=JOB, after={0: before}, others_after=0, tail_lines=0)
    assert [texts(rank) for rank in output.read(question).ranks] == [[], ["first"]]


def test_files_are_rotated_and_positions_stay(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path, file_bytes=100)
    position, seen = 0, []
    for number in range(60):
        output.write(JOB, 0, f"line {number}")
        stretch = only(read(output, r0=position))
        assert not stretch.lost
        position = stretch.next
        seen += texts(stretch)
    assert seen == [f"line {number}" for number in range(60)]
    assert len(list((tmp_path / JOB / "0").iterdir())) == 3
    assert sum(path.stat().st_size for path in (tmp_path / JOB / "0").iterdir()) <= 300


def test_a_late_reader_learns_that_lines_were_dropped(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path, file_bytes=100)
    for number in range(60):
        output.write(JOB, 0, f"line {number}")
    late = only(read(output, r0=0))
    assert late.lost
    assert texts(late)[-1] == "line 59"


def test_an_agent_that_starts_again_goes_on_where_the_last_one_was(tmp_path: Path, files: Files) -> None:
    first = files(tmp_path, file_bytes=100)
    for number in range(20):
        first.write(JOB, 0, f"line {number}")
    position = only(read(first)).next
    first.close()
    second = files(tmp_path, file_bytes=100)
    second.write(JOB, 0, "line 20")
    assert texts(only(read(second, r0=position))) == ["line 20"]


@pytest.mark.parametrize("torn", ["1", "12.50", "12.500 hal"])
def test_a_line_that_was_cut_short_spoils_no_other(tmp_path: Path, files: Files, torn: str) -> None:
    first = files(tmp_path)
    first.write(JOB, 0, "whole")
    first.close()
    with (tmp_path / JOB / "0" / "000000000000000.log").open("a") as file:
        file.write(torn)
    second = files(tmp_path)
    second.write(JOB, 0, "whole again")
    stretch = only(read(second, r0=0))
    assert texts(stretch) == ["whole", *(["hal"] if " " in torn else []), "whole again"]
    second.write(JOB, 0, "and on")
    assert texts(only(read(second, r0=stretch.next))) == ["and on"]


def test_lines_that_cannot_be_written_are_counted(tmp_path: Path, files: Files) -> None:
    (tmp_path / "node").write_text("a file where the folder should be")
    output = files(tmp_path / "node")
    output.write(JOB, 0, "lost")
    output.write(JOB, 0, "lost too")
    (tmp_path / "node").unlink()
    output.write(JOB, 0, "kept")
    assert texts(only(read(output))) == [
        "hopyard: 2 lines of this node were not kept: Not a directory",
        "kept",
    ]


def test_a_full_disk_leaves_earlier_lines_readable(tmp_path: Path, files: Files) -> None:
    """`/dev/full` takes no byte, like a disk that is full."""
    output = files(tmp_path)
    output.write(JOB, 0, "before")
    folder = tmp_path / JOB / "0"
    (folder / "000000000000100.log").symlink_to("/dev/full")
    output.close()
    output.write(JOB, 0, "lost")
    (folder / "000000000000100.log").unlink()
    output.write(JOB, 0, "after")
    said = "hopyard: 1 lines of this node were not kept: No space left on device"
    assert texts(only(read(output))) == ["before", said, "after"]


def test_a_folder_that_takes_no_line_is_a_trouble_from_the_start_and_as_long_as_it_lasts(
    tmp_path: Path, files: Files
) -> None:
    in_the_way = tmp_path / "output"
    in_the_way.touch()
    output = files(in_the_way / "node")
    output.try_folder()
    said = (f"what jobs print is not kept: {in_the_way}/node: Not a directory",)
    assert output.troubles() == said
    output.write(JOB, 0, "lost")
    assert output.troubles() == said
    in_the_way.unlink()
    assert output.troubles() == ()
    assert list((in_the_way / "node").iterdir()) == [], "it leaves nothing behind"


def test_a_line_that_is_not_kept_is_a_trouble_until_one_is(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path / "node")
    output.try_folder()
    assert output.troubles() == ()
    (tmp_path / "node").rmdir()
    (tmp_path / "node").touch()
    output.write(JOB, 0, "lost")
    assert "is not kept" in output.troubles()[0]
    (tmp_path / "node").unlink()
    output.write(JOB, 0, "kept")
    assert output.troubles() == ()


def test_foreign_files_and_malformed_lines_are_skipped(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path)
    output.write(JOB, 0, "ours")
    (tmp_path / JOB / "notes").mkdir()
    (tmp_path / JOB / "0" / "notes.log").write_text("theirs\n")
    with (tmp_path / JOB / "0" / "000000000000000.log").open("a") as file:
        file.write("no time at all\n\n")
    assert texts(only(read(output))) == ["ours"]


def test_a_line_is_one_line_and_has_an_end(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path, file_bytes=1_000_000)
    output.write(JOB, 0, "two\r\nlines\u2028or three\n")
    output.write(JOB, 0, "x" * 100_000)
    output.write(JOB, 0, "")
    output.write(JOB, 0, "half a pair: \ud800")
    assert texts(only(read(output))) == ["two lines or three", "x" * LINE_MAX, "", "half a pair: ?"]


def test_a_page_is_bounded_and_the_next_one_goes_on(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path, file_bytes=10_000_000)
    lines = [f"{number} " + "x" * 5_000 for number in range(200)]
    for line in lines:
        output.write(JOB, 0, line)
    seen, position = [], 0
    while stretch := texts(page := only(read(output, r0=position))):
        assert sum(map(len, stretch)) <= PAGE_MAX_BYTES
        seen += stretch
        position = page.next
    assert seen == lines


@pytest.mark.parametrize(("newest", "lost"), [(100, False), (1_000, True)])
def test_the_newest_lines_come_in_pages_up_to_a_limit(
    tmp_path: Path, files: Files, newest: int, *, lost: bool
) -> None:
    output = files(tmp_path, file_bytes=10_000_000)
    lines = [f"{number} " + "x" * 5_000 for number in range(300)]
    for line in lines:
        output.write(JOB, 0, line)
    page = only(read(output, newest=newest))
    assert page.lost is lost
    seen = texts(page)
    while page.more:
        assert PAGE_MAX_BYTES - 10_000 < sum(map(len, texts(page))) <= PAGE_MAX_BYTES
        page = only(read(output, r0=page.next))
        seen += texts(page)
    assert seen == lines[-len(seen) :]
    assert len(seen) == newest if not lost else sum(map(len, seen)) > NEWEST_MAX_BYTES - 10_000


def test_the_longest_silent_jobs_make_room(tmp_path: Path, files: Files) -> None:
    output = files(tmp_path, node_bytes=3_000)
    for number in range(10):
        for _ in range(9):
            output.write(JobId(f"job-{number}"), 0, "x" * 80)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert "job-9" in kept
    assert 1 < len(kept) < 10
    output.write(JobId("job-0"), 0, "it prints again")
    assert texts(only(read(output, JobId("job-0")))) == ["it prints again"]


def test_more_processes_than_files_are_kept_open(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.agent.work.output.OPEN_MAX", 2)
    output = files(tmp_path)
    for _ in range(3):
        for rank in range(5):
            output.write(JOB, rank, "again")
    assert [texts(one) for one in read(output).ranks] == [["again"] * 3] * 5


def test_no_output_is_kept_without_a_folder(tmp_path: Path) -> None:
    clock: Clock = LoopClock()
    assert output_files(Settings(), clock, HERE) is None
    kept = output_files(msgspec.structs.replace(Settings(), output_folder=str(tmp_path)), clock, HERE)
    assert kept is not None


@pytest.mark.parametrize("name", ["..", ".", "../secrets", "/etc", "", "a/b"])
def test_a_job_is_no_way_out_of_the_folder(tmp_path: Path, files: Files, name: str) -> None:
    (tmp_path / "secrets" / "0").mkdir(parents=True)
    (tmp_path / "secrets" / "0" / "000000000000000.log").write_text("1.0 secret\n")
    assert read(files(tmp_path / "node"), JobId(name)) == OutputPage(ranks=())
