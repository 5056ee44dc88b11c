"""Which files a command line means, and that no two of them share a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from avfusion.errors import UsageError
from avfusion.inference.inputs import find_videos, name_folders


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_folder_means_the_videos_in_it_and_each_file_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "films"
    touch(folder / "b.MOV", folder / "a.mp4", folder / "notes.txt", folder / "._a.mp4", folder / "deeper" / "c.mp4")
    given = tmp_path / "odd.bin"  # a file is taken as it is
    touch(given)
    assert find_videos([folder / "b.MOV", folder, given]) == [folder / "b.MOV", folder / "a.mp4", given]
    (tmp_path / "link.mp4").symlink_to(folder / "a.mp4")
    assert find_videos([tmp_path / "link.mp4", folder / "a.mp4"]) == [tmp_path / "link.mp4"]


def test_a_folder_without_a_video_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no video in .*; expected files ending in \.mp4"):
        find_videos([tmp_path])


def test_names_are_stems_and_more_where_stems_are_shared(tmp_path: Path) -> None:
    one, other, third = tmp_path / "x/talk.mp4", tmp_path / "x/Talk.mov", tmp_path / "x/more.mp4"
    assert name_folders([one, other, third]) == {one: "talk.mp4", other: "Talk.mov", third: "more"}
    assert name_folders([one, third]) == {one: "talk", third: "more"}


def test_files_of_one_name_and_stems_like_names_never_share_a_folder(tmp_path: Path) -> None:
    videos = [tmp_path / name for name in ("x/talk.mp4", "y/talk.mp4", "y/talk.mov", "z/talk.mp4.mkv")]
    names = name_folders(videos)
    assert len({name.casefold() for name in names.values()}) == 4
    assert names[videos[2]] == "talk.mov"
    assert names == name_folders(list(reversed(videos)))  # the same command, in whatever order, goes on


def test_a_link_that_leads_round_in_a_circle_is_a_file_like_any_other(tmp_path: Path) -> None:
    """It fails when it is opened; the films beside it do not."""
    loop, film = tmp_path / "loop.mp4", tmp_path / "a.mp4"
    loop.symlink_to(loop)
    touch(film)
    assert find_videos([loop, film]) == [loop, film]
    assert find_videos([tmp_path]) == [film, loop]


def test_names_made_of_dots_never_name_a_folder_above(tmp_path: Path) -> None:
    one, other = tmp_path / "...mkv", tmp_path / "..mkv"
    assert name_folders([one]) == {one: "...mkv"}
    assert name_folders([other]) == {other: "..mkv"}
