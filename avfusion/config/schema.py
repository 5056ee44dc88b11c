"""The configuration: typed dataclasses with their limits.

Every key of the YAML files and of ``--section.key=value`` is a field below; nothing else is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MAX_SEED = 2**32 - 1


def _choice(default: str | int, *choices: str | int) -> Any:
    """A field limited to the given words or numbers."""
    return field(default=default, metadata={"choices": (default, *choices)})


def _number(default: float | None, *, low: float | None = None, high: float | None = None, odd: bool = False) -> Any:
    """A number field limited to ``low..high`` (both included), and to odd numbers on demand."""
    return field(default=default, metadata={"min": low, "max": high, "odd": odd})


@dataclass
class RunConfig:
    """Where the run lives and what it runs on."""

    dir: str | None = None  # default runs/<config>-<date>
    seed: int = _number(0, low=0, high=MAX_SEED)
    device: str = _choice("auto", "cpu", "cuda", "mps")
    threads: int = _number(0, low=0)  # CPU threads of torch; 0 leaves torch's own choice


@dataclass
class SyntheticConfig:
    """The built-in synthetic talkers (data.format: synthetic)."""

    train_scenes: int = _number(600, low=1)
    val_scenes: int = _number(150, low=1)
    test_scenes: int = _number(520, low=1)
    scene_s: float = _number(3.0, low=1.0)
    roles: list[str] = field(
        default_factory=list
    )  # kinds of scene, each as often as it is named; []: docs/data_card.md
    # The sound comes so many ms after its mouth, from and to; anew for every face. Within -40..200, what is natural.
    lag_ms: list[float] = field(default_factory=lambda: [-40.0, 200.0])
    espeak: float = _number(0.0, low=0, high=1)  # share of the voices made by the espeak-ng library, where installed
    seed: int = _number(0, low=0, high=MAX_SEED)


@dataclass
class AugmentConfig:
    """What training does to a clip. Each figure is a strength; 0 turns it off."""

    flip: float = _number(0.5, low=0, high=1)  # probability of a mirrored face
    shift: float = _number(0.06, low=0, high=0.5)  # crop jitter, share of the picture side
    zoom: float = _number(0.1, low=0, high=0.5)  # crop scale jitter
    brightness: float = _number(0.2, low=0, high=1)  # gain and offset jitter
    noise: float = _number(0.02, low=0, high=1)  # standard deviation of picture noise, full scale 1
    resync: float = _number(0.0, low=0, high=1)  # probability of the track's own sound 0.3 s or more off: not speaking
    gain_db: float = _number(6.0, low=0)  # level jitter of the sound
    eq_db: float = _number(0.0, low=0)  # random colour of the sound: a smooth curve over frequency within ± this
    audio_noise: float = _number(0.3, low=0, high=1)  # probability of white or pink noise in the sound
    audio_noise_snr_db: list[float] = field(default_factory=lambda: [5.0, 30.0])  # over the active part of the sound
    # From here on all is off by default; docs/augmentation.md says what each does.
    interferer: float = _number(0.0, low=0, high=1)  # probability of a voice from another clip of the training set
    interferer_snr_db: list[float] = field(default_factory=lambda: [0.0, 15.0])
    noise_folder: str | None = None  # folder of wav or flac files
    music_folder: str | None = None
    babble_folder: str | None = None  # speech, of which 3 to 7 files are heard at once
    folder_noise: float = _number(0.0, low=0, high=1)  # probability of sound from one of the given folders
    folder_snr_db: list[float] = field(default_factory=lambda: [0.0, 20.0])
    speed: float = _number(0.0, low=0, high=0.5)  # picture, sound and labels faster or slower by up to this share
    pitch_semitones: float = _number(0.0, low=0, high=12)  # sound alone higher or lower by up to this
    audio_shift_ms: float = _number(0.0, low=0, high=1000)  # sound earlier or later by up to this; labels stay
    rotate_degrees: float = _number(0.0, low=0, high=90)  # tilt of the face, ± this
    stretch: float = _number(0.0, low=0, high=1)  # width against height, up to this share more or less
    warp: float = _number(0.0, low=0, high=0.2)  # smooth bending of the picture, by up to this share of its side
    shake: float = _number(0.0, low=0, high=0.2)  # drift and tremble of the crop, by up to this share of its side
    gamma: float = _number(0.0, low=0, high=2)  # curve of the light: exponent 2 to the power of ± this
    occlusion: float = _number(0.0, low=0, high=1)  # probability of a box or bar in front of the face
    occlusion_area: list[float] = field(default_factory=lambda: [0.1, 0.3])  # share of the picture
    blur: float = _number(0.0, low=0, high=1)  # probability of a picture out of focus
    blur_sigma: list[float] = field(default_factory=lambda: [0.5, 2.0])  # pixels
    low_resolution: float = _number(0.0, low=0, high=1)  # probability of a picture shrunk and enlarged again
    low_resolution_side: list[int] = field(default_factory=lambda: [12, 24])  # pixels between the two
    drop_audio: float = _number(0.0, low=0, high=1)  # probability of a clip without sound; labels stay
    drop_video: float = _number(0.0, low=0, high=1)  # probability of a clip without picture; labels stay


@dataclass
class DataConfig:
    """Which face tracks, and how they become batches."""

    format: str = _choice("synthetic", "prepared", "talknet")
    root: str | None = None  # folder of the dataset
    # Leave out tracks that cannot be used (missing or damaged files, no labels), instead of stopping before training.
    allow_missing: bool = False
    train_split: str = "train"
    val_split: str = "val"
    crop_size: int = _number(48, low=16)  # side of the picture the model sees
    region: list[float] = field(default_factory=lambda: [0.0, 0.0, 1.0, 1.0])  # x1, y1, x2, y2 of the stored crop, 0..1
    num_mels: int = _number(64, low=8, high=80)  # beyond that, bins fall between two bins of the spectrum
    clip_frames: int = _number(60, low=8)  # longest training clip; longer tracks give a random stretch
    faces: int = _number(1, low=1)  # most faces of a training scene, drawn among those seen in its frames
    batch_frames: int = _number(900, low=8)  # pictures of faces in a batch, padding included
    workers: int = _number(0, low=0)
    cache_gb: float = _number(
        4.0, low=0
    )  # decoded clips kept in memory, in each worker; epochs after the first then read little
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)


@dataclass
class VisualConfig:
    """Face pictures to embeddings: 2D convolutions per frame, then a short convolution over time."""

    kind: str = _choice("small", "resnet18")  # resnet18 has its own channels and blocks, and a stem that sees ±2 frames
    # Of resnet18: null starts from nothing, with group norm; imagenet from torchvision's weights, with the statistics
    # of their batch norm held as they are.
    weights: str | None = field(default=None, metadata={"choices": (None, "imagenet")})
    channels: list[int] = field(
        default_factory=lambda: [16, 32, 48, 64]
    )  # one stage each, every stage halves the picture
    blocks: int = _number(1, low=1)  # residual blocks per stage
    temporal_kernel: int = _number(5, low=1, high=5, odd=True)  # frames; with the stem at most ±3 (120 ms)


@dataclass
class AudioConfig:
    """Log-mel to embeddings at 100 Hz: convolutions that stride in frequency only."""

    channels: list[int] = field(default_factory=lambda: [16, 32, 48])
    temporal_kernel: int = _number(11, low=1, high=15, odd=True)  # audio frames; with the rest at most ±120 ms


@dataclass
class FusionConfig:
    """How sound meets picture."""

    kind: str = _choice("cross_attention", "concat", "sum")  # sum: picture plus sound of the frame, nothing learnt
    layers: int = _number(1, low=1)
    heads: int = _number(4, low=1)
    window_s: float | None = 0.5  # each frame hears ± this many seconds; null: the whole scene
    key_hz: int = _choice(100, 25)  # keys and values a second; 25: the means of 40 ms, as in the published models
    positions: bool = True  # rotary positions in seconds
    null_key: bool = True
    qk_norm: bool = True
    audio_bypass: bool = False  # also add the sound around the attention, as the published models do


@dataclass
class SpeakerConfig:
    """Attention between the faces of a frame, after fusion."""

    layers: int = _number(0, low=0)  # 0: faces do not know of each other
    heads: int = _number(4, low=1)


@dataclass
class TemporalConfig:
    """Self-attention and convolution over time, after fusion."""

    layers: int = _number(1, low=0)
    heads: int = _number(4, low=1)
    window_s: float | None = 1.0
    kernel: int = _number(5, low=1, odd=True)  # frames of the depthwise convolution
    positions: bool = True  # rotary positions in seconds, up to 8 s; without them near and far are alike in the window
    order: str = _choice("attention_first", "convolution_first")


@dataclass
class ModelConfig:
    """The active-speaker detector."""

    # The others are models of the field, rebuilt (models/baselines); they fix some of the keys below.
    kind: str = _choice("avfusion", "talknet_style", "light_style", "lr_style")
    modality: str = _choice("audio_visual", "video", "audio")  # the last two are baselines
    embed_dim: int = _number(128, low=8)
    dropout: float = _number(0.1, low=0, high=0.9)
    causal: bool = False  # a score depends on nothing later than the picture and sound of lookahead_frames later
    lookahead_frames: int = _number(0, low=0, high=25)  # video frames of 40 ms, of a causal model
    # Where the contrastive loss compares sound and picture: in projections of their own, or in the queries and keys of
    # the first fusion layer (models without attention use projections all the same).
    contrast: str = _choice("projection", "attention")
    contrast_dim: int = _number(64, low=8)  # width of the projections
    visual: VisualConfig = field(default_factory=VisualConfig)
    audio: AudioConfig = field(default_factory=AudioConfig)
    fusion: FusionConfig = field(default_factory=FusionConfig)
    speaker: SpeakerConfig = field(default_factory=SpeakerConfig)
    temporal: TemporalConfig = field(default_factory=TemporalConfig)


@dataclass
class LossConfig:
    """Weights of the terms of the loss, and their settings; 0 turns a term off, and then it costs nothing.

    The audio-visual speaking loss has weight 1.
    """

    audio: float = _number(0.2, low=0)  # the speaking loss on the sound alone
    video: float = _number(0.2, low=0)  # and on the picture alone
    contrastive: float = _number(0.5, low=0)  # picture and sound of a speaking frame are alike, unlike other frames
    sync: float = _number(0.0, low=0)  # a clip's sound fits its picture in time better than shifted by 0.36 s and more
    null: float = _number(0.0, low=0)  # the null key takes all the attention unless the face is the audible speaker
    guided: float = _number(0.0, low=0)  # speaking frames attend near their natural lag, in the first guided_steps
    # Of contrastive, sync and guided: a sound may come this many video frames after its picture, from and to.
    lag_frames: list[int] = field(default_factory=lambda: [0, 0])
    temperature: float = _number(0.07, low=0.001)  # of contrastive
    negatives: str = _choice("batch", "clip")  # of contrastive: all other frames of the batch, or of the clip
    contrast_frames: str = _choice("all", "speaking")  # compared with: all frames, or (TalkNCE) the speaking ones only
    contrast_hz: int = _choice(25, 100)  # sounds compared: the 40 ms of each video frame, or single 10 ms of them
    sync_shifts: int = _number(25, low=9, high=100)  # false shifts go up to this many video frames beyond the lags
    sync_temperature: float = _number(0.07, low=0.001)
    null_frames: str = _choice("all", "not_speaking")  # supervise the null key on all real frames, or on those only
    guided_steps: int = _number(500, low=1)  # optimiser steps, from the first, in which guided counts
    guided_width_ms: float = _number(100.0, low=1)  # standard deviation around the middle of lag_frames without penalty
    guided_heads: int = _number(0, low=0)  # guide this many heads of every layer, the first ones; 0: all


@dataclass
class LearningRates:
    """How fast each part of the model learns, as a multiple of ``train.lr``; 0 holds it still."""

    visual: float = _number(1.0, low=0)
    audio: float = _number(1.0, low=0)
    fusion: float = _number(1.0, low=0)
    speaker: float = _number(1.0, low=0)
    temporal: float = _number(1.0, low=0)
    heads: float = _number(1.0, low=0)


@dataclass
class WeightDecays:
    """Weight decay of each part of the model; null takes ``train.weight_decay``."""

    visual: float | None = _number(None, low=0)
    audio: float | None = _number(None, low=0)
    fusion: float | None = _number(None, low=0)
    speaker: float | None = _number(None, low=0)
    temporal: float | None = _number(None, low=0)
    heads: float | None = _number(None, low=0)


@dataclass
class TrainConfig:
    """Optimisation."""

    encoders: str | None = None  # a checkpoint whose encoders of picture and sound are where training starts
    epochs: int = _number(10, low=1)
    contrastive_epochs: int = _number(0, low=0)  # epochs of contrastive loss alone before them
    patience: int = _number(0, low=0)  # stop after this many epochs without a better validation AP; 0 never does
    lr: float = _number(2e-3, low=0)
    lr_scale: LearningRates = field(default_factory=LearningRates)
    # Each layer further from the output learns this much more slowly: 0.8 gives the last layers lr, the ones below
    # 0.8 lr, then 0.64 lr ...; 1 is the same for all.
    layer_decay: float = _number(1.0, low=0.01, high=1)
    weight_decay: float = _number(0.01, low=0)  # of matrices and kernels; norms, biases and null keys never decay
    decay_of: WeightDecays = field(default_factory=WeightDecays)
    warmup: float = _number(0.1, low=0, high=1)  # share of all steps
    grad_clip: float = _number(1.0, low=0)  # largest gradient norm; 0 turns clipping off
    accumulate: int = _number(1, low=1)  # parts of data.batch_frames whose gradients make one step, in each process
    ema: float = _number(0.0, low=0, high=0.99999)  # keep a running average of the weights, and score that; 0 is off
    precision: str = _choice("float32", "bfloat16", "float16")
    compile: bool = False  # torch.compile; the first steps then take minutes
    channels_last: bool = False  # kernels of the picture's convolutions in that layout
    checkpoint_steps: int = _number(500, low=0)  # save within an epoch too, every so many steps; 0: after epochs only
    log_steps: int = _number(0, low=0)  # a row of training figures every so many steps; 0: one an epoch
    loss: LossConfig = field(default_factory=LossConfig)


@dataclass
class ReportConfig:
    """What is made once training ends, and while it goes on."""

    figures_per_role: int = _number(1, low=0)
    bootstrap: int = _number(1000, low=0)
    offset_accuracy: bool = True
    epoch_figures: int = _number(20, low=0)  # epochs, evenly spread, of which the probe clips' alignment is drawn
    # At the end, ask of every attention head what it listens to and whether the model needs it (docs/alignment.md), on
    # at most this many tracks, all roles alike; python -m avfusion.alignment takes all of them.
    inspect: bool = True
    inspect_tracks: int = _number(80, low=1)
    viewer_mb: float = _number(5.0, low=0)  # largest size of the page of scenes, which goes to W&B too; 0: no page


@dataclass
class DiarizationConfig:
    """How scores over time become stretches of speech."""

    smooth_s: float = _number(0.2, low=0)  # moving average over this long; 0: none
    onset: float = _number(0.5, low=0, high=1)  # speech starts where the score reaches this
    offset: float = _number(0.4, low=0, high=1)  # and ends where it falls below this; not above onset
    min_speech_s: float = _number(0.2, low=0)  # shorter stretches are dropped, once pauses are filled
    min_pause_s: float = _number(0.3, low=0)  # shorter pauses are filled


@dataclass
class WandbConfig:
    """Weights & Biases. ``auto`` is online when logged in, else offline."""

    mode: str = _choice("auto", "online", "offline", "disabled")
    project: str = "avfusion"
    entity: str | None = None
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    log_model: bool = False  # the best checkpoint as an artifact
    log_dataset: bool = False  # the dataset's description (tables, or the synthetic recipe) as an artifact
    table_rows: int = _number(500, low=0)  # frames in the table of predictions
    wait_s: float = _number(300.0, low=1)  # longest wait for uploads when the run ends


@dataclass
class Config:
    """Everything a run depends on."""

    run: RunConfig = field(default_factory=RunConfig)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    diarization: DiarizationConfig = field(default_factory=DiarizationConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
