"""Where films and annotations of each corpus are to be had, and how large the films are.

AVA-ActiveSpeaker: github.com/cvdfoundation/ava-dataset (README) for the bucket and the lists of file names;
research.google.com/ava/download.html for the annotations. Labels of the test split were not found anywhere: the
ActivityNet challenges (2019 to 2021, activity-net.org/challenges/2021/tasks/guest_ava.html) scored it on their server.
The films of all splits take 167 GB (github.com/TaoRuijie/TalkNet-ASD, utils/tools.py).
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from avfusion.errors import AvfusionError

BUCKET = "https://s3.amazonaws.com/ava-dataset"
ANNOTATIONS = "https://research.google.com/ava/download"
TIMEOUT_S = 20

GETTING_STARTED = {
    "ava": f"""annotations (labels of train and val are public; of test only the films are):
  train  {ANNOTATIONS}/ava_activespeaker_train_v1.0.tar.bz2
  val    {ANNOTATIONS}/ava_activespeaker_val_v1.0.tar.bz2    (its folder is called ava_activespeaker_test_v1.0)
  test   not published: the ActivityNet challenge scored it on its server; its films can be scored, not evaluated
names of the films:
  train, val  {BUCKET}/annotations/ava_speech_file_names_v1.txt
  test        {BUCKET}/annotations/ava_file_names_test_v2.1.txt
films (all splits: 167 GB):
  train, val  {BUCKET}/trainval/NAME
  test        {BUCKET}/test/NAME""",
    "unitalk": """annotations and ready crops: python download_dataset.py of github.com/plnguyen2908/UniTalk-ASD
  csv/train_orig.csv, csv/val_orig.csv; its crops are read as they are: python -m data_prep.talknet --help
films: YouTube; the addresses are in video_list/train.csv and video_list/val.csv of the same repository""",
    "wasd": """annotations and films: python3 prepare_setup.py of github.com/Tiago-Roxo/WASD
  WASD/csv/train_orig.csv, WASD/csv/val_orig.csv (not *_body*), films in WASD/orig_videos/trainval""",
    "asw": """annotations: json/*.json of github.com/clovaai/lookwhostalking, one file a film; it names no splits
films: YouTube, https://www.youtube.com/watch?v=NAME_OF_THE_JSON, at most their first 1200 s are annotated""",
}


@dataclass(frozen=True)
class Download:
    """One film to download: its address, and its size in bytes where the server told it."""

    video_id: str
    address: str
    num_bytes: int | None = None


def ava_addresses(video_ids: Sequence[str], split: str, names: Sequence[str]) -> list[Download]:
    """The addresses of AVA films.

    Args:
        video_ids: the films.
        split: ``test`` has a folder of its own.
        names: file names with their endings, as the published lists have them; may be empty.

    Returns:
        One for each film; where the lists do not name it, the address ends in ``.*``.
    """
    folder = "test" if split == "test" else "trainval"
    name_of = {name.rsplit(".", 1)[0]: name for name in names}
    return [Download(v, f"{BUCKET}/{folder}/{quote(name_of[v]) if v in name_of else f'{v}.*'}") for v in video_ids]


def names_address(split: str) -> str:
    """Where the published list of AVA's film names is, of a split."""
    listed = "ava_file_names_test_v2.1.txt" if split == "test" else "ava_speech_file_names_v1.txt"
    return f"{BUCKET}/annotations/{listed}"


def read_names(source: str) -> list[str]:
    """A list of film file names, from a file or an address.

    Raises:
        AvfusionError: it cannot be had.
    """
    try:
        if source.startswith(("http://", "https://")):
            with urllib.request.urlopen(source, timeout=TIMEOUT_S) as answer:
                text = answer.read().decode("utf-8-sig")
        else:
            text = Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise AvfusionError(f"{source}: the list of film names cannot be read ({reason})") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def with_sizes(downloads: Sequence[Download]) -> list[Download]:
    """Asks the server for each film's size (HEAD requests, eight at a time); None where it does not answer."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(_with_size, downloads))


def _with_size(download: Download) -> Download:
    if download.address.endswith(".*"):
        return download
    try:
        request = urllib.request.Request(download.address, method="HEAD")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            length = answer.headers.get("Content-Length")
    except (urllib.error.URLError, OSError):
        return download
    return Download(download.video_id, download.address, int(length) if length and length.isdigit() else None)
