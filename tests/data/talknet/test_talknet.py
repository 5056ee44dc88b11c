"""Facts about the TalkNet layout read in place: each frame shows its own picture, with its own sound and label.

Pictures are flat: the picture of row ``i`` has the grey level ``5 + 4 i``. Sounds tell the film's time: sample ``n`` of
the film is ``n mod 60000 - 30000`` in 16 bits.
"""

from __future__ import annotations

import csv
import pickle
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from avfusion.config import DataConfig
from avfusion.data.batching import ClipLoader
from avfusion.data.clips import Skipped
from avfusion.data.examples import Examples, Request
from avfusion.data.open import open_dataset
from avfusion.data.talknet.checks import check_talknet
from avfusion.data.talknet.dataset import TalkNetDataset
from avfusion.data.talknet.tables import read_loader
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import LogMel, fit_to_frames
from benchmarks.talknet_layout import LayoutTrack, write_layout

ROWS = 50
WORDS = ("NOT_SPEAKING", "SPEAKING_AUDIBLE", "SPEAKING_NOT_AUDIBLE")


def stamps(first_s: float, rate_hz: float, rows: int = ROWS) -> NDArray[np.float64]:
    """Times of rows as AVA writes them: two digits."""
    return np.round(first_s + np.arange(rows) / rate_hz, 2)


def ramp(start_s: float, end_s: float) -> NDArray[np.float32]:
    """A sound whose samples tell the time."""
    samples = np.arange(round(16_000 * start_s), round(16_000 * end_s))
    return ((samples % 60_000 - 30_000) / 32768).astype(np.float32)


def layout_track(entity_id: str, times_s: NDArray[np.float64], video_id: str = "film", seed: int = 0) -> LayoutTrack:
    rng = np.random.default_rng(seed)
    labels = [WORDS[value] for value in rng.integers(0, 3, len(times_s))]
    crops = [np.full((20 + 3 * (i % 5), 16 + i % 7), (5 + 4 * i) % 256, np.uint8) for i in range(len(times_s))]
    boxes = np.tile(np.array([0.1, 0.2, 0.3, 0.5], np.float32), (len(times_s), 1))
    sound = ramp(float(times_s[0]), float(times_s[-1]) + 0.1)
    return LayoutTrack(video_id, entity_id, times_s, boxes, labels, crops, sound)


def write(root: Path, tracks: Sequence[LayoutTrack], split: str = "train", **options: bool) -> Path:
    write_layout(root, split, tracks, 95, **options)
    return root


def assert_own_rows(dataset: TalkNetDataset, index: int, track: LayoutTrack) -> None:
    """Every frame shows the row nearest in time, hears the film's sound at its time, and has that row's label."""
    found, clip = dataset.tracks[index], dataset.read(index)
    rows_ms, frames_ms = (np.rint(1000 * times_s).astype(int) for times_s in (track.times_s, found.timestamps_s))
    row = np.abs(rows_ms[None] - frames_ms[:, None]).argmin(axis=1)  # halfway: the earlier one
    np.testing.assert_array_equal(clip.crops[:, 56, 56], (5 + 4 * row) % 256)
    np.testing.assert_array_equal(clip.speaking, [track.labels[i] == "SPEAKING_AUDIBLE" for i in row])
    heard = round(16_000 * found.start_s) + np.arange(len(clip.audio))
    in_wav = (heard >= round(16_000 * track.times_s[0])) & (heard < round(16_000 * track.times_s[-1]))
    assert in_wav.sum() >= len(clip.audio) - 640 - 2 * 320
    np.testing.assert_array_equal(clip.audio[in_wav], ramp(heard[0] / 16_000, (heard[-1] + 1) / 16_000)[in_wav])
    assert not clip.audio[~in_wav].any()  # at the ends, by a frame and a half at most


@pytest.mark.parametrize("rate_hz", [25, 29.97, 23.976, 20, 12.5, 50])
@pytest.mark.parametrize("first_s", [0.0, 9.5, 902.04])
def test_every_frame_has_its_own_picture_sound_and_label_at_any_rate(
    tmp_path: Path, rate_hz: float, first_s: float
) -> None:
    """Class T06, and order by number: 9.96 before 10.00."""
    track = layout_track("film:1", stamps(first_s, rate_hz))
    dataset = TalkNetDataset(write(tmp_path, [track]), "train")
    assert not check_talknet(dataset)
    (found,) = dataset.tracks
    assert (found.video_id, found.entity_id) == ("film", "film:1")
    assert abs(found.start_s - first_s) <= 0.02
    assert found.start_s * 25 == pytest.approx(round(found.start_s * 25))
    assert abs(found.num_frames - (ROWS - 1) * 25 / rate_hz - 1) <= 1
    assert_own_rows(dataset, 0, track)


@pytest.mark.parametrize(("first", "count"), [(0, 1), (7, 20), (49, 1), (0, 50), (30, 20)])
def test_a_stretch_is_that_part_of_the_whole(tmp_path: Path, first: int, count: int) -> None:
    dataset = TalkNetDataset(write(tmp_path, [layout_track("film:1", stamps(902.04, 25))]), "train")
    whole, part = dataset.read(0), dataset.read(0, first, count)
    np.testing.assert_array_equal(part.crops, whole.crops[first : first + count])
    np.testing.assert_array_equal(part.audio, whole.audio[640 * first : 640 * (first + count)])
    np.testing.assert_array_equal(part.speaking, whole.speaking[first : first + count])
    for wrong in ((-1, 5), (40, 11), (0, 0)):
        with pytest.raises(AvfusionError, match="which has 50"):
            dataset.read(0, *wrong)


def test_t12_the_wav_of_a_track_gives_the_features_of_the_whole_film(tmp_path: Path) -> None:
    """Stamps from 902 s, a wav that starts at 0: the log-mel is that of the film's sound at 902 s."""
    rng = np.random.default_rng(1)
    film = np.round(8000 * rng.standard_normal(5 * 16_000).clip(-3, 3)).astype(np.float32) / 32768  # 900 .. 905 s
    times = stamps(902.0, 25, 26)  # 902.00 .. 903.00
    track = layout_track("film:1", times)
    cut = LayoutTrack(**{**track.__dict__, "sound": film[32_000:]})
    dataset = TalkNetDataset(write(tmp_path, [cut]), "train")
    log_mel = LogMel(64)
    found = log_mel(torch.from_numpy(dataset.read(0).audio))
    expected = log_mel(torch.from_numpy(film[32_000 : 32_000 + 26 * 640]))
    # The layout's wav ends at 903.00, where the 26th frame begins: windows up to 12.5 ms before are the film's.
    torch.testing.assert_close(found[:98], expected[:98], atol=1e-6, rtol=0)
    shifted = log_mel(torch.from_numpy(film[32_000 + 640 : 32_000 + 640 * 27]))
    assert (found[:98] - shifted[:98]).abs().mean() > 0.1


def test_long_gaps_split_a_track_and_short_ones_do_not(tmp_path: Path) -> None:
    times = stamps(100.0, 25, 80)
    keep = np.r_[0:20, 23:40, 60:80]  # 3 rows missing, later 20
    track = layout_track("film:1", times[keep])
    dataset = TalkNetDataset(write(tmp_path, [track]), "train")
    assert [(t.entity_id, t.start_s, t.num_frames) for t in dataset.tracks] == [
        ("film:1", 100.0, 40),
        ("film:1#2", 102.4, 20),
    ]
    assert not check_talknet(dataset)
    clip = dataset.read(1)
    np.testing.assert_array_equal(clip.crops[:, 56, 56], (5 + 4 * np.arange(37, 57)) % 256)
    np.testing.assert_array_equal(clip.audio[: 19 * 640], ramp(102.4, 102.4 + 19 * 0.04))
    np.testing.assert_array_equal(dataset.read(0).audio, ramp(100.0, 101.6))  # the wav goes on through the gap


ODD_IDS = ("-x", "NA", "null", "007", "1e5", "a", "_mAfwH6i90E_0900_0940:0", "a film of more than 11:3:2", "人脸")


def test_d04_odd_ids_stay_text_and_find_their_files(tmp_path: Path) -> None:
    tracks = [layout_track(f"{name}:1", stamps(10.0 + i, 25, 12), name, i) for i, name in enumerate(ODD_IDS)]
    for loader in (True, False):
        root = write(tmp_path / str(loader), tracks, loader=loader)
        dataset = TalkNetDataset(root, "train")
        assert {track.video_id for track in dataset.tracks} == set(ODD_IDS)
        assert not check_talknet(dataset)
        by_video = {track.video_id: index for index, track in enumerate(dataset.tracks)}
        for track in tracks:
            assert_own_rows(dataset, by_video[track.video_id], track)


@pytest.mark.parametrize("substitute", ["_", "\uf03a", "-", "%3A", ""])
def test_d06_folders_copied_to_a_disk_without_colons_are_found(tmp_path: Path, substitute: str) -> None:
    tracks = [layout_track(f"fi:lm:{n}", stamps(10.0, 25, 12), "fi:lm", n) for n in range(3)]
    root = write(tmp_path, tracks)
    for path in sorted(root.rglob("*:*"), key=lambda path: -len(path.parts)):
        path.rename(path.with_name(path.name.replace(":", substitute)))
    dataset = TalkNetDataset(root, "train")
    assert [track.entity_id for track in dataset.tracks] == ["fi:lm:0", "fi:lm:1", "fi:lm:2"]
    assert not check_talknet(dataset)
    for index, track in enumerate(tracks):
        assert_own_rows(dataset, index, track)


def test_two_tracks_that_share_a_folder_on_such_a_disk_are_told(tmp_path: Path) -> None:
    tracks = [layout_track(name, stamps(10.0, 25, 12)) for name in ("f_1", "f:1")]
    root = write(tmp_path, tracks)
    for path in sorted(root.rglob("*:*"), key=lambda path: -len(path.parts)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    whats = {finding.what for finding in check_talknet(TalkNetDataset(root, "train"))}
    assert whats == {"tracks share their pictures with another track", "tracks share their sounds with another track"}


def test_the_folder_of_the_first_eleven_characters_is_found(tmp_path: Path) -> None:
    """Where TalkNet's own loader looks, whatever the video is called."""
    track = layout_track("a long video name:1", stamps(10.0, 25, 12), "a long video name")
    root = write(tmp_path, [track])
    for name in ("clips_videos", "clips_audios"):
        (root / name / "train" / "a long video name").rename(root / name / "train" / "a long vide")
    dataset = TalkNetDataset(root, "train")
    assert not check_talknet(dataset)
    assert_own_rows(dataset, 0, track)


def reorder(root: Path, change: Callable[[list[str]], str]) -> None:
    table = root / "csv" / "train_orig.csv"
    table.write_bytes(change(table.read_text().splitlines()).encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: "\ufeff" + "\r\n".join(lines) + "\r\n",
        lambda lines: "\n".join([lines[0], *np.random.default_rng(0).permutation(lines[1:])]),
        lambda lines: "\n".join(["," + lines[0], *(f"{n},{line}" for n, line in enumerate(lines[1:]))]),  # of pandas
        lambda lines: "\n".join(lines[1:]),
    ],
    ids=["bom_crlf", "shuffled", "index_column", "no_header"],
)
def test_d05_tables_of_any_origin_give_the_same_tracks(tmp_path: Path, change: Callable[[list[str]], str]) -> None:
    tracks = [layout_track(f"film:{n}", stamps(10.0 + n, 25, 12), seed=n) for n in range(3)]
    root = write(tmp_path, tracks)
    loader = root / "csv" / "train_loader.csv"
    text = loader.read_text().replace("\n", "\r\n")
    loader.write_bytes(f"\ufeffentity_id\tframes\tfps\tlabels\tindex\r\n\r\n{text}".encode())
    reorder(root, change)
    dataset = TalkNetDataset(root, "train")
    assert not check_talknet(dataset)
    for index, track in enumerate(tracks):
        assert_own_rows(dataset, index, track)


def test_hidden_and_other_files_in_a_folder_do_not_count(tmp_path: Path) -> None:
    track = layout_track("film:1", stamps(10.0, 25, 12))
    root = write(tmp_path, [track])
    for name in ("._10.04.jpg", ".DS_Store", "Thumbs.db"):
        (root / "clips_videos/train/film/film:1" / name).write_bytes(b"x")
    dataset = TalkNetDataset(root, "train")
    assert not check_talknet(dataset)
    assert_own_rows(dataset, 0, track)


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Eight tracks of 25 rows in two films."""
    tracks = [layout_track(f"f{n % 2}:{n}", stamps(10.0 + n, 25, 25), f"f{n % 2}", n) for n in range(8)]
    return write(tmp_path / "root", tracks)


def pictures(root: Path, number: int = 3) -> Path:
    return root / f"clips_videos/train/f{number % 2}/f{number % 2}:{number}"


def sound(root: Path, number: int = 3) -> Path:
    return root / f"clips_audios/train/f{number % 2}/f{number % 2}:{number}.wav"


def loader_line(root: Path, number: int, change: Callable[[list[str]], list[str]]) -> None:
    path = root / "csv" / "train_loader.csv"
    lines = path.read_text().splitlines()
    lines[number] = "\t".join(change(lines[number].split("\t")))
    path.write_text("\n".join(lines) + "\n")


def add_line(root: Path, number: int) -> None:
    path = root / "csv" / "train_loader.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[number]]) + "\n")


def length(seconds: float) -> Callable[[Path], None]:
    return lambda root: soundfile.write(sound(root), ramp(0, seconds), 16_000, subtype="PCM_16")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8000])


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no_folder": (lambda root: shutil.rmtree(pictures(root)), "have no pictures, first: .*f1:3 .missing, 25 rows"),
    "fewer": (
        lambda root: (pictures(root) / "13.40.jpg").unlink(),
        "have fewer pictures than rows, first: .*f1:3 .24 pictures, 25 rows",
    ),
    "more": (
        lambda root: shutil.copy(pictures(root) / "13.40.jpg", pictures(root) / "13.41.jpg"),
        "have more pictures than rows, first: .*f1:3 .26 pictures, 25 rows",
    ),
    "no_time": (
        lambda root: (pictures(root) / "13.40.jpg").rename(pictures(root) / "face.jpg"),
        "have pictures whose name is no time in seconds, first: .*f1:3 .1 of 25",
    ),
    "moved": (
        lambda root: (pictures(root) / "13.40.jpg").rename(pictures(root) / "13.42.jpg"),
        "have pictures of other times than their rows, first: .*f1:3 .picture 13.42, row 13.40 s",
    ),
    "png": (
        lambda root: (pictures(root) / "13.40.jpg").rename(pictures(root) / "13.40.png"),
        r"have pictures that are no JPEG, first: .*f1:3 .1 such as 13\.40\.png, expected \.jpg",
    ),
    "loader_twice": (
        lambda root: add_line(root, 3),
        "have two lines in the loader file, first: f1:3 .line 9",
    ),
    "no_sound": (lambda root: sound(root).unlink(), r"have no sound file, first: .*f1:3\.wav"),
    "empty_sound": (length(0), "have an empty sound file .*f1:3"),
    "zero_bytes": (lambda root: sound(root).write_bytes(b""), "cut short or damaged, first: .*empty file"),
    "cut_sound": (lambda root: cut(sound(root)), "have less sound than rows|cut short or damaged"),
    "short": (length(0.9), "have less sound than rows, first: .*0.90 s of sound, 0.96 s from first row to last"),
    "long": (length(1.2), "have more sound than rows, first: .*1.20 s of sound, 0.96 s from first row to last"),
    "loader_count": (
        lambda root: loader_line(root, 3, lambda cells: [cells[0], "24", *cells[2:]]),
        "another number of frames in the loader file than rows, first: f1:3 .line 4: 24 frames, 25 labels, 25 rows",
    ),
    "loader_labels": (
        lambda root: loader_line(root, 3, lambda cells: [*cells[:3], cells[3].replace("1", "0"), cells[4]]),
        "other labels in the loader file than in their rows, first: f1:3 .line 4: .* of 25",
    ),
    "loader_rate": (
        lambda root: loader_line(root, 3, lambda cells: [*cells[:2], "29.97", *cells[3:]]),
        "another rate in the loader file than their rows, first: f1:3 .line 4: 29.97 fps, rows stand at 25.00",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_once_with_its_case_and_its_track(root: Path, name: str) -> None:
    """Classes D01 and D02: counted, named, and never replaced by zeros."""
    assert not check_talknet(TalkNetDataset(root, "train"))
    spoil, expected = FAULTS[name]
    spoil(root)
    (finding,) = check_talknet(TalkNetDataset(root, "train"))
    assert not finding.is_note
    line = finding.as_line()
    assert line.startswith("1 of 8 tracks ")
    assert re.search(expected, line), line
    assert finding.tracks == {("train", "f1", "f1:3")}
    data = DataConfig(format="talknet", root=str(root))
    with pytest.raises(AvfusionError, match="1 of 8 tracks") as caught:
        open_dataset(data, "train")
    assert "\n" not in str(caught.value)
    kept = TalkNetDataset(root, "train", Skipped(frozenset({("f1", "f1:3")}), 8))
    assert len(kept.tracks) == 7


def test_all_sounds_elsewhere_are_counted(root: Path) -> None:
    """D01: the wrong folder of sound."""
    shutil.move(root / "clips_audios/train/f0", root / "f0")
    (finding,) = check_talknet(TalkNetDataset(root, "train"))
    assert finding.as_line().startswith("4 of 8 tracks have no sound file, first: clips_audios/train/f0/f0:0.wav")
    shutil.move(root / "clips_audios", root / "other")
    with pytest.raises(UsageError, match="lacks the folder clips_audios/train"):
        TalkNetDataset(root, "train")


def test_a_track_that_only_the_loader_file_names_is_told(root: Path) -> None:
    loader_line(root, 3, lambda cells: ["f1:99", *cells[1:]])
    findings = check_talknet(TalkNetDataset(root, "train"))
    lines = [finding.as_line() for finding in findings]
    assert lines[0].startswith(
        "1 of 8 lines of train_loader.csv name a track that train_orig.csv has not, first: f1:99"
    )
    assert lines[1].startswith("1 of 8 tracks of train_orig.csv are not in train_loader.csv and are left out")
    assert [finding.is_note for finding in findings] == [False, True]
    found = {"of": 8, "names": ["'f1:3' of 'f1'"]}
    left_out = TalkNetDataset(root, "train").left_out  # goes into the report
    assert left_out == {"tracks of train that train_loader.csv does not name": found}


def test_labels_that_are_no_labels_are_noted(root: Path) -> None:
    """AVA's test rows all say SPEAKING_AUDIBLE: an AP over them is 100 %."""
    table = root / "csv" / "train_orig.csv"
    rows = list(csv.reader(table.open()))
    for row in rows[1:]:
        row[6] = "SPEAKING_AUDIBLE"
    csv.writer(table.open("w")).writerows(rows)
    (root / "csv" / "train_loader.csv").unlink()
    (finding,) = check_talknet(TalkNetDataset(root, "train"))
    assert finding.is_note
    assert "speak in every frame" in finding.what


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: root.parent / "nothing", "it is no folder; expected csv/train_orig.csv, clips_videos/train/"),
        (lambda root: root.parent, "it holds root; expected csv/train_orig.csv"),
        (lambda root: root / "csv", "did you mean .*root?"),
        (lambda root: root / "clips_videos", "did you mean .*root?"),
        (
            lambda root: shutil.move(root / "clips_videos", root / "faces") and root,
            "lacks the folder clips_videos/train",
        ),
    ],
)
def test_a_wrong_folder_is_told_in_one_line(root: Path, spoil: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        TalkNetDataset(spoil(root), "train")
    assert "\n" not in str(caught.value)


def test_each_format_points_to_the_other(root: Path) -> None:
    with pytest.raises(UsageError, match=r"holds the TalkNet layout \(read it with --data\.format=talknet\)"):
        open_dataset(DataConfig(format="prepared", root=str(root)), "train")
    shutil.rmtree(root / "csv")
    (root / "dataset.json").write_text("{}")
    with pytest.raises(UsageError, match=r"this is a prepared dataset: --data\.format=prepared"):
        open_dataset(DataConfig(format="talknet", root=str(root)), "train")


def test_an_unknown_split_and_a_missing_root_are_usage_errors(root: Path) -> None:
    with pytest.raises(UsageError, match=r"no split 'val': csv/val_orig.csv is missing; found train"):
        TalkNetDataset(root, "val")
    with pytest.raises(UsageError, match=r"needs the folder that holds csv.*--data\.root=FOLDER"):
        open_dataset(DataConfig(format="talknet"), "train")


@pytest.mark.parametrize(
    ("line", "found"),
    [("f:1\t3", "f:1\t3"), ("f:1\tx\t25\t[0]\t1", "x"), ("f:1\t1\t25\t[0, 7]\t1", "7"), ("f:1 1 25.0 [0] 3", "f:1 1")],
)
def test_a_wrong_line_of_the_loader_file_is_named(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "train_loader.csv"
    path.write_text(f"f:0\t2\t25.0\t[0, 1]\t7\n{line}\n")
    with pytest.raises(AvfusionError, match=r"train_loader\.csv line 2: found .*expected entity_id, frames"):
        read_loader(path)


def test_pictures_may_end_in_jpeg_and_what_is_png_inside_is_named(root: Path) -> None:
    whole = TalkNetDataset(root, "train")
    index = [track.entity_id for track in whole.tracks].index("f1:3")
    before = whole.read(index)
    for path in pictures(root).iterdir():
        path.rename(path.with_suffix(".JPEG" if path.stem == "13.40" else ".jpeg"))
    dataset = TalkNetDataset(root, "train")
    assert not check_talknet(dataset)
    np.testing.assert_array_equal(dataset.read(index).crops, before.crops)
    (pictures(root) / "13.40.JPEG").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    with pytest.raises(AvfusionError, match=r"13\.40\.JPEG is a PNG picture, expected JPEG"):
        dataset.read(index)


def test_a_table_without_rows_is_one_line(root: Path) -> None:
    table = root / "csv" / "train_orig.csv"
    table.write_text(table.read_text().splitlines()[0] + "\n")
    with pytest.raises(AvfusionError, match=r"train_orig\.csv: the file holds no row"):
        open_dataset(DataConfig(format="talknet", root=str(root)), "train")


def test_d08_a_picture_that_breaks_later_is_named_in_one_line(root: Path) -> None:
    dataset = TalkNetDataset(root, "train")
    examples = Examples(dataset, DataConfig(crop_size=16, cache_gb=0.0))
    (pictures(root) / "13.40.jpg").write_bytes(b"no picture")
    for workers in (0, 1):
        loader = ClipLoader(examples, [[Request(index, 0, 20)] for index in range(8)], workers)
        with pytest.raises(AvfusionError, match=r"f1:3/13\.40\.jpg is no whole JPEG picture") as caught:
            list(loader)
        assert "\n" not in str(caught.value)


def test_a_wav_that_shrinks_later_is_an_error_not_zeros(root: Path) -> None:
    dataset = TalkNetDataset(root, "train")
    length(0.5)(root)
    index = next(i for i, track in enumerate(dataset.tracks) if track.entity_id == "f1:3")
    with pytest.raises(AvfusionError, match=r"asked for 0\.00 \.\. 1\.00 s of .*f1:3\.wav, which lasts 0\.50 s"):
        dataset.read(index)
    assert dataset.read(index, 0, 12).audio.any()


def test_a_subset_reads_the_same_in_another_process(root: Path) -> None:
    dataset = TalkNetDataset(root, "train")
    part = pickle.loads(pickle.dumps(dataset.subset([5, 2])))
    for index, whole in enumerate((5, 2)):
        assert part.tracks[index].entity_id == dataset.tracks[whole].entity_id
        np.testing.assert_array_equal(part.read(index).audio, dataset.read(whole).audio)
    assert len(pickle.dumps(part)) < 0.6 * len(pickle.dumps(dataset))


def test_sound_of_another_rate_is_resampled(tmp_path: Path) -> None:
    """UniTalk and others may keep 44.1 kHz."""
    track = layout_track("film:1", stamps(10.0, 25, 50))
    root = write(tmp_path, [track])
    path = root / "clips_audios/train/film/film:1.wav"
    time_s = np.arange(round(44_100 * 1.96)) / 44_100
    soundfile.write(path, np.stack([0.5 * np.sin(2 * np.pi * 440 * time_s)] * 2, axis=1), 44_100)
    dataset = TalkNetDataset(root, "train")
    (note,) = check_talknet(dataset)
    assert note.is_note
    assert "44100 Hz" in note.cases[0]
    expected = fit_to_frames(0.5 * np.sin(2 * np.pi * 440 * np.arange(round(1.96 * 16_000)) / 16_000), 50)
    np.testing.assert_allclose(dataset.read(0).audio[200:31_000], expected[200:31_000], atol=2e-3)
