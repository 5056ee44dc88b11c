"""Sounds from the user's folders: which are found, what is read of them, at which ratio they come, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from avfusion.config import AugmentConfig
from avfusion.data.augment import folders
from avfusion.data.augment.draws import Draws
from avfusion.data.augment.folders import SoundFolders
from avfusion.data.augment.mixing import Added, active_power
from avfusion.data.augment.sound import augment_audio
from avfusion.errors import AvfusionError, UsageError

Only = Callable[..., AugmentConfig]


def write(
    path: Path, hz: float, seconds: float = 3.0, rate: int = 16_000, channels: int = 1, level: float = 0.1
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = level * np.sin(2 * np.pi * hz * np.arange(round(rate * seconds)) / rate)
    soundfile.write(path, np.repeat(wave[:, None], channels, axis=1), rate)


def tones_of(sound: np.ndarray, candidates: list[int]) -> dict[int, float]:
    """The power of each tone that can be heard; sounds of whole seconds."""
    spectrum = np.abs(np.fft.rfft(sound)) * 2 / len(sound)
    seconds = len(sound) / 16_000
    powers = {hz: float(spectrum[round(hz * seconds)] ** 2 / 2) for hz in candidates}
    return {hz: power for hz, power in powers.items() if power > 1e-4}


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100, 48_000])
@pytest.mark.parametrize("channels", [1, 3])
def test_files_of_any_rate_and_channels_come_as_16_khz_mono(tmp_path: Path, rate: int, channels: int) -> None:
    write(tmp_path / "a.wav", 1000, 5.0, rate, channels)
    sound = SoundFolders({"noise": str(tmp_path)}).draw(16_000, np.random.default_rng(0))
    assert len(sound) == 16_000
    assert tones_of(sound, [500, 1000, 2000]) == {1000: pytest.approx(0.005, rel=0.02)}


def test_of_a_long_file_only_the_stretch_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time = np.arange(60 * 44_100) / 44_100
    soundfile.write(tmp_path / "long.flac", 0.5 * time / 60, 44_100)  # its level tells the time
    read, plain_read = [], folders._read

    def counting(file: folders.SoundFile, start: int, count: int) -> np.ndarray:
        read.append(count)
        return plain_read(file, start, count)

    monkeypatch.setattr(folders, "_read", counting)
    at_s = []
    for seed in range(30):
        sound = SoundFolders({"noise": str(tmp_path)}).draw(32_000, np.random.default_rng(seed))
        at_s.append(float(sound[16_000]) * 120)
    assert set(read) == {2 * 44_100 + 1}
    assert 0 <= min(at_s) < 15
    assert 45 < max(at_s) <= 60


def test_a_short_file_is_repeated(tmp_path: Path) -> None:
    write(tmp_path / "short.wav", 500, 0.5)
    sound = SoundFolders({"music": str(tmp_path)}).draw(32_000, np.random.default_rng(0))
    assert len(sound) == 32_000
    assert tones_of(sound, [500]) == {500: pytest.approx(0.005, rel=0.05)}


@pytest.mark.parametrize("kind", ["noise", "music", "babble"])
@pytest.mark.parametrize("snr_db", [0.0, 10.0])
def test_each_kind_comes_at_the_asked_ratio(tmp_path: Path, kind: str, snr_db: float, only: Only) -> None:
    rng = np.random.default_rng(0)
    for number in range(8):
        sound = rng.standard_normal(48_000) * 10 ** rng.uniform(-4, -0.5)
        sound[: 4800 * number] = 0  # some pause for most of the time
        soundfile.write(tmp_path / f"{number}.wav", sound, 16_000, subtype="FLOAT")
    own = rng.standard_normal(38_400).astype(np.float32)
    own[:25_600] = 0
    for seed in range(6):
        other = SoundFolders({kind: str(tmp_path)}).draw(len(own), np.random.default_rng(seed))
        heard = augment_audio(own, only(), Draws(seed), [Added(other, snr_db)]) - own
        speech = np.mean(own[25_600:].astype(np.float64) ** 2)
        assert 10 * np.log10(speech / active_power(heard)) == pytest.approx(snr_db, abs=0.5)
        if kind == "babble":  # several at once have no long pauses: here the plain mean says the same
            assert 10 * np.log10(speech / np.mean(heard**2)) == pytest.approx(snr_db, abs=1.5)


def test_babble_is_three_to_seven_voices_of_one_loudness(tmp_path: Path) -> None:
    tones = [300 + 200 * number for number in range(12)]
    for hz in tones:
        write(tmp_path / f"speaker{hz}" / "a.flac", hz, level=hz / 4000)
    found = []
    for seed in range(60):
        voices = tones_of(SoundFolders({"babble": str(tmp_path)}).draw(16_000, np.random.default_rng(seed)), tones)
        assert list(voices.values()) == pytest.approx([1.0] * len(voices), rel=0.02)
        found.append(len(voices))
    assert set(found) == {3, 4, 5, 6, 7}


def test_each_folder_is_chosen_alike_and_each_file_of_it(tmp_path: Path) -> None:
    write(tmp_path / "noise" / "a.wav", 500)
    write(tmp_path / "music" / "a.wav", 1000)
    write(tmp_path / "music" / "deep" / "b.WAV", 2000)
    both = SoundFolders({"noise": str(tmp_path / "noise"), "music": str(tmp_path / "music")})
    heard = [next(iter(tones_of(both.draw(16_000, np.random.default_rng(s)), [500, 1000, 2000]))) for s in range(400)]
    assert heard.count(500) / 400 == pytest.approx(0.5, abs=0.08)
    assert heard.count(1000) / 400 == pytest.approx(0.25, abs=0.07)


def test_silence_between_sounds_is_drawn_again(tmp_path: Path) -> None:
    sound = np.zeros(160_000)
    sound[80_000:] = 0.1
    soundfile.write(tmp_path / "a.wav", sound, 16_000)
    open_folder = SoundFolders({"noise": str(tmp_path)})
    silent = sum(not open_folder.draw(1600, np.random.default_rng(seed)).any() for seed in range(100))
    assert silent < 20  # one in two without; one in sixteen with four tries


def test_what_is_wrong_with_a_folder_is_told_in_one_line(tmp_path: Path) -> None:
    def told(kind: str, folder: Path, error: type[AvfusionError] = UsageError) -> str:
        with pytest.raises(error) as caught:
            SoundFolders({kind: str(folder)})
        assert "\n" not in str(caught.value)
        return str(caught.value)

    absent = tmp_path / "absent"
    expected = "expected a folder with wav or flac files"
    assert told("noise", absent) == f"data.augment.noise_folder: {absent} does not exist; {expected}"
    (tmp_path / "empty").mkdir()
    assert "music_folder: " in told("music", tmp_path / "empty")
    assert "holds nothing, and no wav or flac file" in told("music", tmp_path / "empty")
    (tmp_path / "empty" / "a.mp3").write_bytes(b"x")
    assert "holds a.mp3, and no wav" in told("music", tmp_path / "empty")
    broken = tmp_path / "broken" / "b.wav"
    write(broken.with_name("a.wav"), 500)
    broken.write_text("no sound")
    assert told("noise", broken, AvfusionError).startswith(f"data.augment.noise_folder: {broken} is no folder")
    message = told("babble", broken.parent, AvfusionError)
    assert message.startswith(f"data.augment.babble_folder: {broken} cannot be read as sound (")
    assert message.endswith("; repair or remove it")


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_files_without_their_sound_are_refused_beforehand(tmp_path: Path, damage: str) -> None:
    if damage == "cut":
        noise = np.random.default_rng(0).uniform(-0.5, 0.5, 80_000)
        soundfile.write(tmp_path / "a.flac", noise, 16_000)
        content = (tmp_path / "a.flac").read_bytes()
        (tmp_path / "a.flac").write_bytes(content[: len(content) // 2])
    else:
        soundfile.write(tmp_path / "a.flac", np.zeros(0), 16_000)
    with pytest.raises(AvfusionError, match=r"a\.flac .*; repair or remove it"):
        SoundFolders({"noise": str(tmp_path)})


def test_a_file_that_goes_away_later_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", 500)
    opened = SoundFolders({"noise": str(tmp_path)})
    (tmp_path / "a.wav").unlink()
    with pytest.raises(AvfusionError, match=r"^data\.augment\.noise_folder: .*a\.wav cannot be read as sound any more"):
        opened.draw(1600, np.random.default_rng(0))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_files_whose_samples_are_no_numbers_are_refused_beforehand(tmp_path: Path, value: float) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(8000, value), 16_000, subtype="FLOAT")
    with pytest.raises(AvfusionError) as caught:
        SoundFolders({"music": str(tmp_path)})
    assert str(caught.value) == (
        f"data.augment.music_folder: {tmp_path / 'a.wav'} holds samples that are no numbers (NaN or infinite);"
        " repair or remove it"
    )


def test_a_sample_in_the_middle_that_is_no_number_is_told_with_its_place(tmp_path: Path) -> None:
    sound = np.zeros(80_000)
    sound[30_000:50_000] = np.nan
    soundfile.write(tmp_path / "a.wav", sound, 16_000, subtype="FLOAT")
    opened = SoundFolders({"babble": str(tmp_path)})
    with pytest.raises(AvfusionError) as caught:
        opened.draw(80_000, np.random.default_rng(0))
    assert str(caught.value) == (
        f"data.augment.babble_folder: {tmp_path / 'a.wav'} holds samples that are no numbers (NaN or infinite)"
        " between 0.0 s and 5.0 s; repair or remove it"
    )


def test_real_noises_are_read(shared: Path) -> None:
    """ESC-50 at 44.1 kHz, four microphones in one file, room responses shorter than a clip."""
    opened = SoundFolders({"noise": str(shared / "speech" / "noise"), "babble": str(shared / "speech" / "librispeech")})
    for seed in range(20):
        sound = opened.draw(38_400, np.random.default_rng(seed))
        assert sound.shape == (38_400,)
        assert sound.dtype == np.float32
        assert active_power(sound) > 1e-9
