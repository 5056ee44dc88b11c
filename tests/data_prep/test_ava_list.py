"""``python -m data_prep.ava list``: which films are there, and where the rest is."""

from __future__ import annotations

import http.server
import shutil
import threading
from pathlib import Path

import pytest

import data_prep.ava as command
import data_prep.film_sources as sources
from tests.data_prep.mini_ava import MiniAva


def test_list_tells_what_is_there_and_where_the_rest_is(
    mini: MiniAva, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    films = tmp_path / "films"
    films.mkdir()
    shutil.copy(mini.films / "NA.mp4", films)
    (tmp_path / "names.txt").write_text("NA.mp4\n007.webm\n")
    labels = ["--labels", f"train={mini.labels['train']}", f"val={mini.labels['val']}"]
    assert command.main(["list", *labels, "--films", str(films), "--names", str(tmp_path / "names.txt")]) == 0
    out = capsys.readouterr().out
    assert "train: 1 films, 1 absent; 4 tracks, 273 boxes" in out
    assert "val: 2 films, 1 absent; 4 tracks, 610 boxes" in out
    assert "size unknown  https://s3.amazonaws.com/ava-dataset/trainval/007.webm" in out
    assert "size unknown  https://s3.amazonaws.com/ava-dataset/trainval/-x.*" in out
    assert "NA.mp4" in out
    assert command.main(["list"]) == 0
    out = capsys.readouterr().out
    assert "ava_activespeaker_train_v1.0.tar.bz2" in out
    assert "test   not published" in out


class _Bucket(http.server.BaseHTTPRequestHandler):
    """A server that has two films of 1 and 2 MB and the list of their names."""

    def do_HEAD(self) -> None:
        sizes = {"/trainval/-x.mkv": 1_000_000, "/trainval/007.mkv": 2_000_000, "/test/_a.mp4": 3_000_000}
        size = sizes.get(self.path)
        self.send_response(200 if size else 404)
        self.send_header("Content-Length", str(size or 0))
        self.end_headers()

    def do_GET(self) -> None:
        names = {"ava_speech_file_names_v1.txt": b"-x.mkv\n007.mkv\nNA.mp4\n"}
        names["ava_file_names_test_v2.1.txt"] = b"_a.mp4\n_b.mkv\n"
        text = names.get(self.path.rsplit("/", 1)[1], b"")
        self.send_response(200 if text else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def test_list_asks_the_server_for_sizes(
    mini: MiniAva, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setattr(sources, "BUCKET", f"http://127.0.0.1:{server.server_port}")
        labels = [f"{split}={path}" for split, path in mini.labels.items()]
        assert command.main(["list", "--labels", *labels, "--sizes"]) == 0
        out = capsys.readouterr().out
        assert "1 MB  http://127.0.0.1" in out
        assert "to download: 2 MB and 1 of unknown size" in out
        # Nobody has labels of the test films: the published list names them.
        (tmp_path / "_b.mkv").touch()
        assert command.main(["list", "--sizes", "--films", str(tmp_path)]) == 0
        out = capsys.readouterr().out
        assert "test: 2 films in the list, 1 absent" in out
        assert f"_b  {tmp_path / '_b.mkv'}" in out
        assert f"3 MB  http://127.0.0.1:{server.server_port}/test/_a.mp4" in out
        assert "to download: 3 MB\n" in out
    finally:
        server.shutdown()
        server.server_close()
    assert command.main(["list", "--labels", *labels, "--sizes"]) == 1
    error = capsys.readouterr().err
    assert "the list of film names cannot be read" in error
    assert len(error.splitlines()) == 1
