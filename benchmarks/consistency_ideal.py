"""A voice held together over a minute, by the temporal block alone: what it could do if all before it did its part.

python benchmarks/consistency_ideal.py OUT --data=FOLDER --encoders=CHECKPOINT [--seeds=0,1,2,3,4]
                                       [--arms=half_attention,...] [--split=test] [--steps=400] [--threads=1]

The question of benchmarks/consistency.py without what stands in its way. FOLDER holds the same long scenes. Each token
of 0.2 s is told the truth of what can be seen (the face talks to what is heard, does not, or cannot be seen) and what
the frozen encoder of the sound (CHECKPOINT) says of it, in the 16 directions that tell voices best (Fisher's, learnt on
the training scenes: benchmarks/voice_templates.py). One temporal block of the model, with the arm's window, order and
positions, learns from the training scenes who is heard where the face cannot be seen. It is measured as there, also
with other sound. OUT/ARM-SEED.json; benchmarks/consistency_table.py makes the write-up. What is finished is kept.

``N`` tokens of a track, ``F`` features of a token, ``T`` video frames.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # where this folder is found
import avfusion
from avfusion.checkpoint import load_model
from avfusion.clock import VIDEO_HZ
from avfusion.config import load_config
from avfusion.errors import CommandParser, UsageError, run_command
from avfusion.models.temporal import TemporalBlock
from benchmarks.consistency import ARMS, DEFAULT_CONFIG, PEOPLE, log_mel_features, precisions
from benchmarks.experiment import check_splits, commit, dataset_facts, keep
from benchmarks.many_runs import read_names, read_seeds
from benchmarks.returning_frames import Frames, all_frames
from benchmarks.returning_sounds import CHANGES, PeopleWithOtherSound, scenes_of
from benchmarks.voice_templates import at_frames, voice_map

FRAMES_A_TOKEN = 5
WIDTH, HEADS, BATCH_TRACKS, LEARNING_RATE = 64, 4, 4, 3e-3
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Tracks:
    """Tracks of a split, ready to learn from.

    Attributes:
        dataset: they are of.
        frames: what is seen and heard, by the truth.
        tokens: ``(N, F)`` of each.
        speaking: ``(N,)`` of each, the share of a token's frames in which the face speaks.
    """

    dataset: Any
    frames: list[Frames]
    tokens: list[Array]
    speaking: list[Array]


class Voices:
    """What the encoder says of the sound in the directions that tell voices, measured by their spread.

    Args:
        features: ``(T, D)`` of the tracks of people of the training scenes.
        frames: of each.
    """

    def __init__(self, features: list[NDArray[np.float64]], frames: list[Frames]) -> None:
        self._directions = voice_map(features, frames)
        said = np.concatenate([(of[f.heard]) @ self._directions for of, f in zip(features, frames, strict=True)])
        self._mean, self._spread = said.mean(axis=0), said.std(axis=0)

    def of(self, features: NDArray[np.float64], heard: NDArray[np.bool_]) -> Array:
        """``(N, 16)``: the mean over the heard frames of each token; 0 where nothing is heard."""
        values = np.where(heard[:, None], (features @ self._directions - self._mean) / self._spread, 0.0)
        sums, counts = (
            part.reshape(-1, FRAMES_A_TOKEN, part.shape[1]).sum(axis=1) for part in (values, heard[:, None])
        )
        voices: Array = (sums / np.maximum(counts, 1)).astype(np.float32)
        return voices


class Listener(nn.Module):
    """Tokens to logits through one temporal block: ``(B, N, F)`` to ``(B, N)``.

    Args:
        features: ``F``.
        arm: settings of :data:`benchmarks.consistency.ARMS`.
    """

    def __init__(self, features: int, arm: list[str]) -> None:
        super().__init__()
        chosen = load_config(DEFAULT_CONFIG, arm).model.temporal
        self.into = nn.Linear(features, WIDTH)
        self.blocks = nn.ModuleList(
            TemporalBlock(
                WIDTH,
                HEADS,
                hz=VIDEO_HZ / FRAMES_A_TOKEN,
                window_s=chosen.window_s,
                kernel=chosen.kernel,
                attention_first=chosen.order == "attention_first",
                positions=chosen.positions,
            )
            for _ in range(chosen.layers)
        )
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """As of the class."""
        x = self.into(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.out(x)[..., 0]
        return logits


def main() -> None:
    """Reads the command line, trains, measures."""
    parser = CommandParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("out", type=Path, help="folder of the JSON files")
    parser.add_argument("--data", type=Path, required=True, help="a prepared dataset of long scenes (returning)")
    parser.add_argument("--encoders", type=Path, required=True, help="a checkpoint whose encoder of the sound is taken")
    parser.add_argument("--seeds", default="0,1,2,3,4", help="with commas between them (default: 0,1,2,3,4)")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {','.join(ARMS)} (default: all)")
    parser.add_argument("--split", default="test", help="measured (default: test)")
    parser.add_argument("--steps", type=int, default=400, help=f"of {BATCH_TRACKS} tracks each (default: 400)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: 1)")
    options = parser.parse_args()
    arms, seeds = read_names("--arms", options.arms, ARMS), read_seeds(options.seeds)
    if min(options.steps, options.threads) < 1:
        raise UsageError("--steps and --threads: expected 1 or more")
    check_splits(options.data, ["train", options.split])
    model, config, _ = load_model(options.encoders)
    torch.set_num_threads(options.threads)
    todo = [(arm, seed) for seed in seeds for arm in arms if not (options.out / f"{arm}-{seed}.json").is_file()]
    if not todo:
        print(f"{options.out}: nothing left to do")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    train, test, changed = read_all(options, sound_features(model.eval(), config.data.num_mels))
    for arm, seed in todo:
        path = options.out / f"{arm}-{seed}.json"
        keep(path, lambda arm=arm, seed=seed: train_and_measure(arm, int(seed), options, train, test, changed))


def sound_features(model: Any, num_mels: int) -> Callable[[Any, int], NDArray[np.float64]]:
    """Gives the ``(T, D)`` embeddings of the sound of a track, by video frame."""
    from avfusion.media.audio import LogMel

    to_log_mel, from_file = LogMel(num_mels), log_mel_features(num_mels)

    def features(dataset: Any, index: int) -> NDArray[np.float64]:
        if isinstance(dataset, PeopleWithOtherSound):
            log_mel = to_log_mel(torch.from_numpy(dataset.sound(index)))
        else:
            log_mel = torch.from_numpy(from_file(dataset, index))
        with torch.inference_mode():
            return at_frames(model.audio(log_mel[None], None)[0].float().numpy())

    return features


def read_all(
    options: argparse.Namespace, features: Callable[[Any, int], NDArray[np.float64]]
) -> tuple[Tracks, Tracks, dict[str, Tracks]]:
    """Tracks to learn from, tracks to measure, and those of people again with other sound."""
    from avfusion.data.prepared import PreparedDataset

    learnt, held_out = PreparedDataset(options.data, "train"), PreparedDataset(options.data, options.split)
    scenes_of(held_out)
    frames = all_frames(learnt)
    heard = features_of(learnt, features)
    people = [index for index, of_track in enumerate(frames) if of_track.person]
    voices = Voices([heard[index] for index in people], [frames[index] for index in people])
    train = ready(learnt, frames, heard, voices)
    others = all_frames(held_out)
    test = ready(held_out, others, features_of(held_out, features), voices)
    people = [index for index, of_track in enumerate(others) if of_track.person]
    changed = {}
    for change in CHANGES:
        dataset = PeopleWithOtherSound(held_out, people, change)
        changed[change] = ready(
            dataset, [others[index] for index in people], features_of(dataset, features), voices, of_voice=change
        )
    return train, test, changed


def features_of(dataset: Any, features: Callable[[Any, int], NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Of every track; tracks of one sound share them."""
    known: dict[str, NDArray[np.float64]] = {}
    found = []
    for index, track in enumerate(dataset.tracks):
        if track.audio_id not in known:
            known[track.audio_id] = features(dataset, index)
        found.append(known[track.audio_id])
    return found


def ready(
    dataset: Any, frames: list[Frames], heard: list[NDArray[np.float64]], voices: Voices, of_voice: str = ""
) -> Tracks:
    """The tokens of tracks: what is seen of the mouth, whether it can be seen, whether somebody is heard, the voice."""
    tokens, speaking = [], []
    for track, of_track, features in zip(dataset.tracks, frames, heard, strict=True):
        hidden = of_track.hidden & of_track.person
        audible = of_track.heard & (hidden | (of_voice != "silenced"))
        seen = np.where(hidden | ~audible, 0.0, np.where(track.speaking, 1.0, -1.0))
        plain = _pooled(np.stack([seen, hidden, audible], axis=1))
        tokens.append(np.concatenate([plain, voices.of(features, audible)], axis=1))
        speaking.append(_pooled(track.speaking[:, None])[:, 0])
    return Tracks(dataset, frames, tokens, speaking)


def _pooled(values: NDArray[Any]) -> Array:
    """``(T, C)`` to the means of each token ``(N, C)``."""
    means: Array = values.reshape(-1, FRAMES_A_TOKEN, values.shape[1]).mean(axis=1).astype(np.float32)
    return means


def train_and_measure(
    arm: str, seed: int, options: argparse.Namespace, train: Tracks, test: Tracks, changed: dict[str, Tracks]
) -> dict[str, Any]:
    """All figures of one training, ready for JSON."""
    began = time.process_time()
    model = learn(arm, seed, options.steps, train)
    passes = BATCH_TRACKS * options.steps / len(train.tokens)
    hidden = {
        change: precisions(tracks.dataset, tracks.frames, scores_of(model, tracks), (PEOPLE,))[PEOPLE]
        for change, tracks in changed.items()
    }
    return {
        "arm": arm,
        "seed": seed,
        "steps": options.steps,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "minutes": round((time.process_time() - began) / 60, 3),
        "commit": commit(),
        "versions": {"avfusion": avfusion.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": f"{platform.machine()}, {options.threads} threads, cpu",
        "settings": ARMS[arm],
        "common_settings": [f"--steps={options.steps}"],
        "epochs": {"encoders": 0, "arm": round(passes, 1)},
        "dataset": dataset_facts(options.data),
        "short": None,
        "splits": options.split,
        "tracks": len(test.tokens),
        "parts": precisions(test.dataset, test.frames, scores_of(model, test)),
        "changed": hidden,
    }


def learn(arm: str, seed: int, steps: int, train: Tracks) -> Listener:
    """Trains one block; the order of tracks is the same for every arm."""
    torch.manual_seed(seed)
    model = Listener(train.tokens[0].shape[1], ARMS[arm])
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        batch = rng.integers(len(train.tokens), size=BATCH_TRACKS)
        tokens, speaking = (
            torch.from_numpy(np.stack([values[index] for index in batch])) for values in (train.tokens, train.speaking)
        )
        loss = F.binary_cross_entropy_with_logits(model(tokens), speaking)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.inference_mode()
def scores_of(model: Listener, tracks: Tracks) -> list[Array]:
    """``(T,)`` of each track: a frame has the score of its token."""
    return [
        np.repeat(model(torch.from_numpy(tokens)[None])[0].sigmoid().numpy(), FRAMES_A_TOKEN)
        for tokens in tracks.tokens
    ]


if __name__ == "__main__":
    sys.exit(run_command(main))
