"""Each fault planted in a small dataset is found, with its count and the tracks it spoils; a clean one is clean."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from avfusion.data.annotations import read_annotations
from avfusion.data.verify.files import crop_content, crop_header, crop_stretch, sound_content, sound_header
from avfusion.data.verify.findings import Finding
from avfusion.data.verify.prepared import verify
from avfusion.data.verify.result import skipped_tracks
from avfusion.errors import AvfusionError, UsageError
from avfusion.media.audio import write_audio
from avfusion.media.mp4_header import read_mp4_header
from avfusion.media.write import write_crops

FRAMES = 30
Spoil = Callable[[Path], None]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, small_dataset: Callable[..., Path]) -> Path:
    return small_dataset(tmp_path_factory.mktemp("clean") / "d")


@pytest.fixture
def root(clean: Path, tmp_path: Path) -> Path:
    """A copy of the clean dataset, to be spoiled."""
    return Path(shutil.copytree(clean, tmp_path / "d"))


def crops_of(root: Path, number: int, split: str = "train") -> Path:
    return next((root / "crops" / split).glob(f"{split}{number}_1-*.mp4"))


def sound_of(root: Path, number: int, split: str = "train") -> Path:
    return root / "audio" / split / f"{split}{number}.flac"


def noise(frames: int = FRAMES) -> np.ndarray:
    return np.random.default_rng(5).normal(0, 0.05, 640 * frames).astype(np.float32)


def moving(frames: int = FRAMES, size: int = 32) -> np.ndarray:
    return np.random.default_rng(6).integers(0, 255, (frames, size, size), dtype=np.uint8)


def replace_sound(path: Path, audio: np.ndarray) -> None:
    path.unlink()
    write_audio(path, audio)


def replace_crops(path: Path, frames: np.ndarray, fps: int = 25) -> None:
    path.unlink()
    write_crops(path, frames, fps)


def change_rows(root: Path, change: Callable[[list[dict[str, str]]], None]) -> None:
    """Edits ``tracks.csv``."""
    path = root / "tracks.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    header = list(rows[0])
    change(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def edit_text(path: Path, old: str, new: str, count: int = -1) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, count))


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [finding.as_line() for finding in findings]
    return findings[0]


# --- faults of files that the fast check finds for certain -----------------------------------------------------------


def remove_sound(root: Path) -> None:
    sound_of(root, 3).unlink()


def empty_sound(root: Path) -> None:
    sound_of(root, 3).write_bytes(b"")


def cut_sound(root: Path) -> None:
    path = sound_of(root, 3)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def short_sound(root: Path) -> None:
    replace_sound(sound_of(root, 3), noise(FRAMES - 1))


def sound_at_another_rate(root: Path) -> None:
    path = sound_of(root, 3)
    soundfile.write(path, np.repeat(noise(), 2), 32_000, format="FLAC")


def stereo_sound(root: Path) -> None:
    soundfile.write(sound_of(root, 3), np.stack([noise(), noise()], axis=1), 16_000, format="FLAC")


def silent_sound(root: Path) -> None:
    replace_sound(sound_of(root, 3), np.zeros(640 * FRAMES, np.float32))


def constant_sound(root: Path) -> None:
    replace_sound(sound_of(root, 3), np.full(640 * FRAMES, 0.25, np.float32))


def remove_crops(root: Path) -> None:
    crops_of(root, 3).unlink()


def empty_crops(root: Path) -> None:
    crops_of(root, 3).write_bytes(b"")


def short_crops(root: Path) -> None:
    replace_crops(crops_of(root, 3), moving(FRAMES - 5))


def crops_at_another_rate(root: Path) -> None:
    replace_crops(crops_of(root, 3), moving(), fps=30)


def crops_of_another_size(root: Path) -> None:
    replace_crops(crops_of(root, 3), moving(size=48))


def black_crops(root: Path) -> None:
    replace_crops(crops_of(root, 3), np.zeros((FRAMES, 32, 32), np.uint8))


def frozen_crops(root: Path) -> None:
    replace_crops(crops_of(root, 3), np.repeat(moving(1), FRAMES, axis=0))


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("spoil", "what", "case"),
    [
        (remove_sound, "sound files are missing", "audio/train/train3.flac"),
        (empty_sound, "sound files cannot be read", "audio/train/train3.flac (empty file)"),
        (cut_sound, "sound files are cut short or damaged", "audio/train/train3.flac (its end cannot be read)"),
        (short_sound, "sound files are too short for their tracks", "audio/train/train3.flac (1.16 s of 1.20 s)"),
        (sound_at_another_rate, "sound files are not mono at 16000 Hz", "train3.flac (32000 Hz, 1 channels)"),
        (stereo_sound, "sound files are not mono at 16000 Hz", "train3.flac (16000 Hz, 2 channels)"),
        (silent_sound, "tracks are labelled as speaking over silent or constant sound", "'train3:1' of 'train3'"),
        (constant_sound, "tracks are labelled as speaking over silent or constant sound", "'train3:1' of 'train3'"),
        (remove_crops, "crop files are missing", "crops/train/train3_1-"),
        (empty_crops, "crop files cannot be read", "(empty file)"),
        (short_crops, "crop files are shorter than their tracks", "(25 frames of 30)"),
        (crops_at_another_rate, "crop files are not at 25 fps", "(30 fps)"),
        (crops_of_another_size, "crop files are not of the dataset's size 32x32", "(48x48)"),
        (black_crops, "crop files are black or empty", "(100% of its pictures)"),
        (frozen_crops, "crop files show one frozen picture although somebody speaks", "crops/train/train3_1-"),
    ],
)
def test_a_bad_file_is_found_and_makes_its_track_unusable(
    root: Path, spoil: Spoil, what: str, case: str, fast: bool
) -> None:
    spoil(root)
    verification = verify(root, fast=fast, bar=False)
    fault = only(verification.faults)
    assert fault.what == what
    assert len(fault.cases) == 1
    assert fault.total == 12  # 8 + 4 tracks, each with a file of its own
    assert case in fault.cases[0]
    skipped = skipped_tracks(verification.faults, "train", verification.listed["train"])
    assert skipped.tracks == {("train3", "train3:1")}
    assert skipped.total == 8
    assert skipped.reasons == {what: 1}
    assert not skipped_tracks(verification.faults, "val", verification.listed["val"]).tracks


@pytest.mark.parametrize("fast", [True, False])
def test_a_dataset_without_a_fault_has_no_finding(clean: Path, fast: bool) -> None:
    before = {path: path.read_bytes() for path in clean.rglob("*") if path.is_file()}
    verification = verify(clean, fast=fast, bar=False)
    assert [finding.as_line() for finding in verification.findings] == []
    train, val = verification.summaries
    assert (train.split, train.num_tracks, train.num_videos, train.num_frames) == ("train", 8, 8, 240)
    assert (val.split, val.num_tracks, train.num_unlabelled) == ("val", 4, 0)
    assert train.speaking == 0.5
    # The sound is noise of standard deviation 0.05: 20 log10(0.05) = -26 dB.
    np.testing.assert_allclose(train.levels_db, -26.02, atol=0.3)
    assert len(train.levels_db) == 8
    assert {path: path.read_bytes() for path in clean.rglob("*") if path.is_file()} == before


# --- what only decoding everything shows ------------------------------------------------------------------------------


def test_crops_that_break_in_the_middle_are_found_by_the_whole_check(root: Path) -> None:
    path = crops_of(root, 3)
    content = bytearray(path.read_bytes())
    start, end = content.index(b"mdat"), content.index(b"moov")
    middle = (start + end) // 2
    content[middle : middle + 300] = bytes(np.random.default_rng(1).integers(0, 256, 300, dtype=np.uint8))
    path.write_bytes(content)
    fault = only(verify(root, bar=False).faults)
    assert fault.what == "crop files stop decoding before their end"
    assert "decoding stops after" in fault.cases[0]
    assert fault.tracks == {("train", "train3", "train3:1")}


def test_sound_that_breaks_in_the_middle_and_sound_that_is_no_number_are_found(root: Path) -> None:
    long = noise(FRAMES * 10)
    replace_sound(sound_of(root, 2), long)
    content = bytearray(sound_of(root, 2).read_bytes())
    content[len(content) // 2 : len(content) // 2 + 400] = bytes(400)
    sound_of(root, 2).write_bytes(content)
    bad = noise()
    bad[[7, 9000]] = np.nan, np.inf
    wav = root / "audio" / "train" / "floats.wav"
    soundfile.write(wav, bad, 16_000, subtype="FLOAT")
    change_rows(root, lambda rows: rows[5].update(audio="audio/train/floats.wav"))
    faults = {fault.what: fault for fault in verify(root, ["train"], bar=False).faults}
    assert set(faults) == {"sound files cannot be read to their end", "sound files hold samples that are no number"}
    assert "train2.flac" in faults["sound files cannot be read to their end"].cases[0]
    assert faults["sound files hold samples that are no number"].cases[0] == "audio/train/floats.wav (2 samples)"


def test_several_processes_find_what_one_finds(root: Path) -> None:
    silent_sound(root)
    frozen_crops(root)
    alone, together = (verify(root, jobs=jobs, bar=False) for jobs in (1, 2))
    assert len(alone.faults) == 2
    assert [finding.as_line() for finding in together.findings] == [finding.as_line() for finding in alone.findings]
    assert together.summaries == alone.summaries


# --- silence and still pictures that are right ------------------------------------------------------------------------


def never_speaks(root: Path, number: int) -> None:
    path = root / "labels" / "train.csv"
    lines = path.read_text().splitlines(keepends=True)
    name = f"train{number},"
    path.write_text("".join(x.replace("SPEAKING_AUDIBLE", "NOT_SPEAKING") if x.startswith(name) else x for x in lines))


@pytest.mark.parametrize("fast", [True, False])
def test_silence_over_a_face_that_never_speaks_is_a_note_and_over_the_role_silence_is_nothing(
    root: Path, fast: bool
) -> None:
    silent_sound(root)
    frozen_crops(root)
    never_speaks(root, 3)
    verification = verify(root, fast=fast, bar=False)
    assert verification.faults == []
    assert sorted(note.what for note in verification.notes) == [
        "crop files of faces that never speak show one frozen picture",
        "tracks that never speak (or have no labels) lie over silent or constant sound",
    ]
    change_rows(root, lambda rows: [row.update(role="silence") for row in rows])
    notes = verify(root, fast=fast, bar=False).notes
    assert [note.what for note in notes] == ["crop files of faces that never speak show one frozen picture"]


def test_sound_that_ends_early_under_speech_is_told(root: Path) -> None:
    """Frames 15..29 speak. Silent from frame 27: a fifth of them; from frame 20: two thirds, which is a fault."""
    for first, is_note in ((27, True), (20, False)):
        audio = noise()
        audio[640 * first :] = 0
        replace_sound(sound_of(root, 3), audio)
        finding = only(list(verify(root, bar=False).findings))
        assert finding.is_note == is_note
        assert f"({(30 - first) / 15:.0%})" in finding.cases[0]


def test_every_silent_sound_is_found_by_the_fast_check_however_many_there_are(
    tmp_path: Path, small_dataset: Callable[..., Path]
) -> None:
    """Silence takes fewer bytes than anything else, so it is looked for among the smallest files."""
    root = small_dataset(tmp_path / "d", {"train": 60}, frames=12)
    silent = range(1, 60, 2)
    for number in silent:
        replace_sound(sound_of(root, number), np.zeros(640 * 12, np.float32))
    fault = only(verify(root, fast=True, bar=False).faults)
    assert len(fault.cases) == len(silent)


# --- tables -----------------------------------------------------------------------------------------------------------


def drop_a_label_row(root: Path) -> None:
    path = root / "labels" / "train.csv"
    path.write_text("".join(x for x in path.read_text().splitlines(keepends=True) if not x.startswith("train3,0.400")))


def add_an_unknown_track(root: Path) -> None:
    path = root / "labels" / "train.csv"
    path.write_text(path.read_text() + "ghost,0.000,0,0,1,1,NOT_SPEAKING,ghost:1\n")


def move_a_stamp(root: Path) -> None:
    edit_text(root / "labels" / "train.csv", "train3,0.440,", "train3,0.470,", 1)


def pixel_boxes(root: Path) -> None:
    path = root / "labels" / "train.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(x.replace("0.300000", "190.5") if x.startswith("train3,") else x for x in lines))


def list_twice(root: Path) -> None:
    change_rows(root, lambda rows: rows.append(dict(rows[3])))


def nobody_speaks(root: Path) -> None:
    edit_text(root / "labels" / "val.csv", "SPEAKING_AUDIBLE", "NOT_SPEAKING")


def unreadable_labels(root: Path) -> None:
    (root / "labels" / "val.csv").unlink()


@pytest.mark.parametrize(
    ("spoil", "what", "cases", "total", "tracks"),
    [
        (drop_a_label_row, "tracks have more or fewer label rows than frames", 1, 12, 1),
        (add_an_unknown_track, "labelled tracks have no row in tracks.csv (labels without crops)", 1, 12, 1),
        (move_a_stamp, "tracks have label rows that are no frames of 25 fps from their start_s", 1, 12, 1),
        (pixel_boxes, "tracks have boxes far outside the picture", 1, 12, 1),
        (list_twice, "tracks are listed twice in tracks.csv", 1, 13, 0),
        (nobody_speaks, "splits have no frame that is labelled as speaking", 1, 2, 0),
        (unreadable_labels, "label files cannot be read", 1, 2, 0),
    ],
)
def test_tables_that_are_wrong_are_told(
    root: Path, spoil: Spoil, what: str, cases: int, total: int, tracks: int
) -> None:
    spoil(root)
    fault = only(verify(root, fast=True, bar=False).faults)
    assert (fault.what, len(fault.cases), fault.total, len(fault.tracks)) == (what, cases, total, tracks)


@pytest.mark.parametrize(("x1", "is_fine"), [("-0.700000", True), ("-1.000000", True), ("-1.100000", False)])
def test_a_box_is_refused_here_exactly_if_the_extraction_refuses_it(root: Path, x1: str, is_fine: bool) -> None:
    path = root / "labels" / "train.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(x.replace(",0.100000,", f",{x1},") if x.startswith("train3,") else x for x in lines))
    assert (verify(root, fast=True, bar=False).faults == []) == is_fine
    if is_fine:
        assert len(read_annotations(path)) == 8
    else:
        with pytest.raises(AvfusionError, match="not pixels"):
            read_annotations(path)


def test_a_box_without_area_is_a_note_and_does_not_stop_the_extraction(root: Path) -> None:
    """Such rows are in AVA-like corpora; the crop then follows the boxes around them."""
    path = root / "labels" / "train.csv"
    edit_text(path, "train3,0.400,0.100000,0.200000,0.300000", "train3,0.400,0.100000,0.200000,0.100000")
    note = only(list(verify(root, fast=True, bar=False).findings))
    assert note.is_note
    assert note.cases == ["'train3:1' of 'train3' (train): frame 10"]
    assert len(read_annotations(path)) == 8


def test_splits_that_share_a_video_a_group_or_a_file_are_told(root: Path) -> None:
    def leak(rows: list[dict[str, str]]) -> None:
        rows[0]["group"] = rows[8]["group"] = "clip 1"
        rows[9]["audio"], rows[10]["crops"] = rows[1]["audio"], rows[2]["crops"]

    change_rows(root, leak)
    edit_text(root / "tracks.csv", "val,val3,", "val,train7,")
    edit_text(root / "labels" / "val.csv", "val3,", "train7,")
    faults = {fault.what: fault for fault in verify(root, fast=True, bar=False).faults}
    assert faults["videos are in more than one split"].cases == ["'train7': train, val"]
    assert faults["groups (source clips) are in more than one split"].cases == ["'clip 1': train, val"]
    assert faults["sound files are used by more than one split"].cases == ["'audio/train/train1.flac': train, val"]
    assert "crops/train/train2_1" in faults["crop files are used by more than one split"].cases[0]
    assert len(faults) == 4
    assert verify(root, ["train"], fast=True, bar=False).faults == []  # alone it gives nothing away


def test_a_copy_of_another_splits_file_is_found_by_the_whole_check(root: Path) -> None:
    shutil.copyfile(sound_of(root, 4), sound_of(root, 1, "val"))
    fault = only(verify(root, bar=False).faults)
    assert fault.what == "sound files are copies of a file of another split"
    assert fault.cases == ["'audio/train/train4.flac = audio/val/val1.flac': train, val"]


def test_files_and_counts_that_no_longer_fit_are_notes(root: Path) -> None:
    change_rows(root, lambda rows: rows.pop(0))
    path = root / "labels" / "train.csv"
    path.write_text("".join(x for x in path.read_text().splitlines(keepends=True) if not x.startswith("train0,")))
    verification = verify(root, fast=True, bar=False)
    assert verification.faults == []
    counts, files = verification.notes
    assert counts.cases == ["train: 7 tracks, told 8", "train: 210 frames, told 240"]
    assert (len(files.cases), files.total) == (2, 24)
    assert files.cases[0] == "audio/train/train0.flac"


def test_an_unlabelled_split_is_no_fault_and_is_counted(tmp_path: Path, small_dataset: Callable[..., Path]) -> None:
    verification = verify(small_dataset(tmp_path / "d", {"own": 3}, labelled=False), bar=False)
    assert verification.findings == []
    (own,) = verification.summaries
    assert (own.num_tracks, own.num_unlabelled, own.speaking) == (3, 3, None)
    finding = verification.unlabelled()
    assert finding is not None
    assert (len(finding.cases), finding.total) == (3, 3)


def test_what_is_no_dataset_is_told_in_one_line(tmp_path: Path, clean: Path, root: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        verify(tmp_path / "absent", bar=False)
    with pytest.raises(UsageError, match=r"no split 'test'.*train, val"):
        verify(clean, ["test"], bar=False)
    info = json.loads((root / "dataset.json").read_text())
    (root / "dataset.json").write_text(json.dumps({**info, "fps": 30}))
    with pytest.raises(AvfusionError, match=r"30 fps.*expected format 1, 25 fps"):
        verify(root, bar=False)


# --- single files -----------------------------------------------------------------------------------------------------


def test_the_quick_header_reader_agrees_with_the_decoder_on_every_file_it_understands(shared: Path) -> None:
    import av

    understood = 0
    for path in sorted((shared / "cases" / "media").iterdir()):
        header = read_mp4_header(path) if path.is_file() else None
        if header is None:
            continue
        understood += 1
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            expected = (stream.frames, float(stream.average_rate), stream.width, stream.height)
        assert (header.num_frames, header.width, header.height) == (expected[0], *expected[2:]), path.name
        assert header.fps == pytest.approx(expected[1], rel=1e-6), path.name
        assert header.is_cut == (path.name == "truncated_faststart.mp4")
    assert understood >= 20


def test_files_that_no_reader_understands_are_told_and_never_raise(shared: Path, tmp_path: Path) -> None:
    media = shared / "cases" / "media"
    states = {name: crop_header(media / name).state for name in ("zero_byte.mp4", "text_named.mp4", "audio_only.mp4")}
    assert set(states.values()) == {"unreadable"}
    assert crop_header(media / "truncated_no_moov.mp4").state == "unreadable"
    assert crop_header(media / "truncated_faststart.mp4").state == "cut"
    assert crop_header(tmp_path).state == sound_header(tmp_path).state == "unreadable"
    assert crop_header(tmp_path / "absent.mp4").state == sound_header(tmp_path / "absent.flac").state == "missing"
    assert "decoding stops" in crop_content(media / "text_named.mp4").error
    assert sound_header(media / "text_named.mp4").state == "unreadable"
    assert sound_content(media / "text_named.mp4").error


def test_a_crop_file_cut_at_any_byte_is_told_by_its_header_and_never_raises(tmp_path: Path) -> None:
    """The table of pictures comes last in the file, so some cuts leave a header that opens and promises everything."""
    path, cut = tmp_path / "whole.mp4", tmp_path / "cut.mp4"
    write_crops(path, moving(3, size=16))
    content, whole = path.read_bytes(), crop_content(path)
    assert crop_header(path).state == whole.error == ""
    states = set()
    for size in range(len(content)):
        cut.write_bytes(content[:size])
        states.add(crop_header(cut).state)
        found = crop_content(cut)
        assert found.error or found.change.tolist() == whole.change.tolist(), size  # what follows the tables is no loss
        assert crop_stretch(cut, 0, 3).error or not found.error, size
    assert states == {"unreadable", "cut"}


def test_a_crop_file_with_a_damaged_header_never_raises(tmp_path: Path) -> None:
    """Other bytes anywhere in the header: an unknown codec, names that are no text, counts beyond the file."""
    path, damaged = tmp_path / "whole.mp4", tmp_path / "damaged.mp4"
    write_crops(path, moving(3, size=16))
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for start in range(content.index(b"moov") - 4, len(content) - 4, 3):
        damaged.write_bytes(content[:start] + rng.bytes(4) + content[start + 4 :])
        crop_header(damaged)
        crop_content(damaged)
        crop_stretch(damaged, 0, 3)
