"""Settings of augmentation that cannot be meant, each told in one line before anything is read."""

from __future__ import annotations

import pytest

from avfusion.config import ConfigError, load_config


def error_of(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [f"--data.augment.{override}" for override in overrides])
    return str(caught.value).removeprefix("config error: data.augment.")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("audio_noise_snr_db=[5]", "audio_noise_snr_db: expected the lowest and the highest dB, found [5.0]"),
        ("interferer_snr_db=[5, 0]", "interferer_snr_db: expected the lowest and the highest dB, found [5.0, 0.0]"),
        ("folder_snr_db=[0, 1, 2]", "folder_snr_db: expected the lowest and the highest dB, found [0.0, 1.0, 2.0]"),
        (
            "occlusion_area=[0, 0.3]",
            "occlusion_area: expected the lowest and the highest share of the picture, from 0.001 to 0.9,"
            " found [0.0, 0.3]",
        ),
        (
            "blur_sigma=[0, 1]",
            "blur_sigma: expected the lowest and the highest number of pixels, from 0.1 on, found [0.0, 1.0]",
        ),
        (
            "low_resolution_side=[2, 9]",
            "low_resolution_side: expected the lowest and the highest number of pixels, from 4 on, found [2, 9]",
        ),
        ("occlusion=1.5", "occlusion: expected a number from 0 to 1, found 1.5 (from --data.augment.occlusion=1.5)"),
        ("speed=0.004", "speed: expected 0 or at least 0.01 (whole percents), found 0.004"),
        (
            "folder_noise=0.3",
            "folder_noise: 0.3 asks for sound from a folder and none is given; set data.augment.noise_folder,"
            " music_folder or babble_folder",
        ),
    ],
)
def test_a_wrong_setting_is_told(override: str, message: str) -> None:
    assert error_of(override) == message


def test_settings_that_contradict_each_other_are_told() -> None:
    assert error_of("drop_audio=0.6", "drop_video=0.5") == (
        "drop_audio: 0.6 and drop_video 0.5 are more than 1 together; no clip loses both"
    )
    assert error_of("resync=0.1", "audio_shift_ms=320") == (
        "audio_shift_ms: sound moved by 320.0 ms would keep its label, while resync calls sound 320 ms off not"
        " speaking; expected less, or data.augment.resync=0"
    )
    # The default picture has 48 pixels.
    assert error_of("low_resolution=0.1", "low_resolution_side=[12, 64]").endswith(
        "from 4 to 48 (a picture has data.crop_size 48), found [12, 64]"
    )
    assert error_of("blur=0.1", "blur_sigma=[1, 13]").endswith(
        "from 0.1 to 12 (a picture has data.crop_size 48), found [1.0, 13.0]"
    )


@pytest.mark.parametrize(
    "overrides",
    [
        ["low_resolution_side=[12, 64]", "blur_sigma=[1, 13]"],  # both off
        ["drop_audio=0.5", "drop_video=0.5"],
        ["resync=0.1", "audio_shift_ms=319"],
        ["audio_shift_ms=1000"],
        ["folder_noise=0.3", "music_folder=anywhere"],
        ["babble_folder=null"],
    ],
)
def test_what_goes_together_is_accepted(overrides: list[str]) -> None:
    load_config(None, [f"--data.augment.{override}" for override in overrides])


def test_new_options_are_off_by_default() -> None:
    augment = load_config(None).data.augment
    off = ("interferer", "folder_noise", "speed", "pitch_semitones", "audio_shift_ms", "occlusion", "blur")
    off += ("low_resolution", "drop_audio", "drop_video")
    assert {name: getattr(augment, name) for name in off} == dict.fromkeys(off, 0.0)
    assert (augment.noise_folder, augment.music_folder, augment.babble_folder) == (None, None, None)
