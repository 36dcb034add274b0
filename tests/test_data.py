"""Data files are found or refused, never guessed: by folder, by cache, by checksum, and over a local web server."""

import hashlib
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from icml26 import data
from icml26.errors import Icml26Error, InputError, MissingData

CONTENT = b"N,B,K\r\n1,2,3\r\n"
SAMPLE = data.DataFile(
    name="sample",
    repository="owner/repository",
    commit="0" * 40,
    path="folder/sample.csv",
    bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    licence="MIT",
    what="a test's file",
)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, no data folder, and a registry of one small file."""
    monkeypatch.delenv("ICML26_DATA", raising=False)
    monkeypatch.setenv("ICML26_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(data, "registry", lambda: {"sample": SAMPLE})
    return tmp_path / "cache"


def write(folder: Path, content: bytes = CONTENT) -> Path:
    file = folder / SAMPLE.relative
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    return file


class Server(ThreadingHTTPServer):
    """Serves one body at every path and counts the requests."""

    body: bytes | None = CONTENT
    paths: list[str]


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.paths.append(self.path)
            self.send_response(200 if self.server.body is not None else 404)
            self.end_headers()
            self.wfile.write(self.server.body or b"not here")

        def log_message(self, *args):
            pass

    with Server(("127.0.0.1", 0), Handler) as running:
        running.paths = []
        monkeypatch.setattr(data, "HOST", f"http://127.0.0.1:{running.server_port}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def test_every_entry_of_the_registry_is_complete_and_its_own_file():
    entries = data.registry()
    assert {"azure-conv", "azure-code", "vicuna-lengths", "nqs", "gsm8k-test", "function-vectors/antonym"} <= set(
        entries
    )
    assert len({file.relative for file in entries.values()}) == len(entries)
    for file in entries.values():
        assert re.fullmatch(r"[0-9a-f]{40}", file.commit), file.name
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256), file.name
        assert file.bytes > 0
        assert file.licence
        assert file.what
        assert ".." not in file.relative
        assert file.url == f"https://raw.githubusercontent.com/{file.repository}/{file.commit}/{file.path}"


def test_the_named_folder_comes_before_the_cache(cache, tmp_path, monkeypatch):
    in_cache = write(cache / "data")
    assert data.path("sample") == in_cache
    in_folder = write(tmp_path / "copy")
    monkeypatch.setenv("ICML26_DATA", str(tmp_path / "copy"))
    assert data.path("sample") == in_folder


def test_a_folder_without_the_file_leaves_the_cache_to_answer(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("ICML26_DATA", str(tmp_path / "empty"))
    in_cache = write(cache / "data")
    assert data.path("sample") == in_cache


def test_a_missing_file_is_one_line_that_names_both_ways_to_have_it(cache, monkeypatch):
    monkeypatch.setenv("ICML26_DATA", "/nowhere")
    with pytest.raises(MissingData) as error:
        data.path("sample")
    line = str(error.value)
    assert "\n" not in line
    for part in ("icml26 data get sample", "ICML26_DATA", "owner/repository/folder/sample.csv", "/nowhere"):
        assert part in line
    assert data.available("sample") is False
    assert not cache.exists(), "looking for a file must leave nothing behind"


def test_an_altered_file_is_an_error_and_no_reason_for_a_stand_in(cache, tmp_path, monkeypatch):
    altered = write(tmp_path / "copy", CONTENT.replace(b"3", b"4"))
    monkeypatch.setenv("ICML26_DATA", str(tmp_path / "copy"))
    for call in (data.path, data.available, data.get):
        with pytest.raises(InputError, match=re.escape(str(altered))) as error:
            call("sample")
        assert not isinstance(error.value, MissingData)


def test_an_unknown_name_is_an_error_with_the_nearest_one(cache):
    for call in (data.path, data.available, data.get):
        with pytest.raises(InputError, match="did you mean 'sample'"):
            call("smaple")


def test_get_downloads_the_pinned_address_once_and_path_then_finds_it(cache, server):
    lines = []
    file = data.get("sample", lines.append)
    assert file == cache / "data" / SAMPLE.relative
    assert file.read_bytes() == CONTENT
    assert server.paths == [f"/owner/repository/{'0' * 40}/folder/sample.csv"]
    assert data.get("sample") == data.path("sample") == file
    assert len(server.paths) == 1
    assert any("downloading" in line for line in lines)


def test_get_takes_a_file_of_the_named_folder_without_any_request(cache, server, tmp_path, monkeypatch):
    file = write(tmp_path / "copy")
    monkeypatch.setenv("ICML26_DATA", str(tmp_path / "copy"))
    assert data.get("sample") == file
    assert not server.paths


def test_get_replaces_a_damaged_file_of_the_cache(cache, server):
    damaged = write(cache / "data", b"damaged")
    with pytest.raises(InputError, match="icml26 data get sample"):
        data.path("sample")
    assert data.get("sample") == damaged
    assert data.path("sample").read_bytes() == CONTENT


def test_a_download_of_other_content_is_refused_and_leaves_nothing(cache, server):
    server.body = b"another file"
    with pytest.raises(Icml26Error, match="not the registered file"):
        data.get("sample")
    assert not [file for file in cache.rglob("*") if file.is_file()]


@pytest.mark.parametrize("trouble", ["answer 404", "no answer"])
def test_a_failed_download_is_one_line_that_names_the_other_way(cache, server, monkeypatch, trouble):
    server.body = None
    if trouble == "no answer":
        monkeypatch.setattr(data, "HOST", "http://127.0.0.1:9")
    with pytest.raises(MissingData, match="ICML26_DATA") as error:
        data.get("sample")
    assert "\n" not in str(error.value)
    assert not [file for file in cache.rglob("*") if file.is_file()]


def test_a_cache_that_cannot_be_written_is_one_line(cache, server):
    cache.write_text("a file where the folder should be")
    with pytest.raises(Icml26Error, match="ICML26_CACHE"):
        data.get("sample")


def test_the_status_says_where_a_file_is_or_how_to_get_it(cache):
    (row,) = data.status()
    assert (row.name, row.size, row.ready) == ("sample", len(CONTENT), False)
    assert "icml26 data get sample" in row.where
    file = write(cache / "data")
    (row,) = data.status()
    assert (row.ready, row.where) == (True, str(file))


def test_the_real_files_in_the_named_folder_are_the_registered_ones():
    folder = os.environ.get("ICML26_DATA")
    if not folder:
        pytest.skip("ICML26_DATA names no folder with the real files")
    for name in data.registry():
        assert data.path(name).is_relative_to(Path(folder).expanduser().resolve())
