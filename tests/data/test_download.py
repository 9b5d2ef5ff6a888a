"""Downloads against a server on this machine that resumes, breaks off, lies and fails."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from covey.core.errors import CoveyError
from covey.data import cache, load
from covey.data.public import getting
from covey.data.public.getting import fetch
from covey.data.public.registry import Source, find

CONTENT = bytes(range(256)) * 2000


@dataclass
class Site:
    """The files that the server has, and the requests that it received."""

    url: str = ""
    content: bytes = CONTENT
    tag: str | None = '"one"'
    cut: int | None = None  # bytes after which the connection ends
    ranges: bool = True
    status: int = 200
    asked: list[str] = field(default_factory=list)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range", "")
        self.asked.append(asked)
        begin = int(asked.removeprefix("bytes=").rstrip("-") or 0)
        same = handler.headers.get("If-Range") == self.tag
        begin = begin if self.ranges and same else 0
        if begin > len(self.content) or (begin and begin == len(self.content)):
            handler.send_error(416)
            return
        body = self.content[begin:]
        handler.send_response(self.status if self.status != 200 else 206 if begin else 200)
        handler.send_header("Content-Length", str(len(body)))
        if self.tag:
            handler.send_header("ETag", self.tag)
        handler.end_headers()
        handler.wfile.write(body if self.cut is None else body[: self.cut])


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COVEY_DATA", raising=False)
    here = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.serve(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        here.url = f"http://127.0.0.1:{server.server_port}/file.bin"
        yield here
        server.shutdown()
        thread.join()


def md5(content: bytes) -> str:
    return "md5:" + hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_a_file_comes_whole_and_only_once(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "file.bin"
    assert fetch(site.url, target, md5(CONTENT), lambda *n: seen.append(n)) == target
    assert target.read_bytes() == CONTENT and seen[-1] == (len(CONTENT), len(CONTENT))
    fetch(site.url, target, md5(CONTENT))
    assert len(site.asked) == 1
    assert [p.name for p in target.parent.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("cut", [1000, len(CONTENT) - 1])
def test_a_broken_download_goes_on_where_it_stopped(site: Site, tmp_path: Path, cut: int) -> None:
    site.cut = cut
    with pytest.raises(CoveyError, match=rf"ended after {cut:,} of .*goes on where it stopped"):
        fetch(site.url, tmp_path / "file.bin")
    assert not (tmp_path / "file.bin").exists()
    site.cut = None
    fetch(site.url, tmp_path / "file.bin", md5(CONTENT))
    assert site.asked == ["", f"bytes={cut}-"]


@pytest.mark.parametrize(
    "change", [{"ranges": False}, {"tag": '"two"', "content": CONTENT[::-1]}, {"content": b"short"}]
)
def test_another_version_is_begun_anew(site: Site, tmp_path: Path, change: dict[str, Any]) -> None:
    site.cut = 1000
    with pytest.raises(CoveyError):
        fetch(site.url, tmp_path / "file.bin")
    for key, value in {"cut": None, **change}.items():
        setattr(site, key, value)
    fetch(site.url, tmp_path / "file.bin", md5(site.content))


def test_without_a_version_nothing_is_joined(site: Site, tmp_path: Path) -> None:
    site.cut, site.tag = 1000, None
    with pytest.raises(CoveyError):
        fetch(site.url, tmp_path / "file.bin")
    site.cut = None
    fetch(site.url, tmp_path / "file.bin", md5(CONTENT))
    assert site.asked == ["", ""]


def test_a_wrong_checksum_keeps_nothing(site: Site, tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=r"wrong checksum: md5 .* expected .*Run again"):
        fetch(site.url, tmp_path / "file.bin", md5(b"other"))
    assert not list(tmp_path.glob("file.bin*"))
    (tmp_path / "file.bin").write_bytes(b"damaged later")
    fetch(site.url, tmp_path / "file.bin", md5(CONTENT))
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("name", ["file.zip", "file.gz"])
def test_a_damaged_archive_without_checksum_keeps_nothing(
    site: Site, tmp_path: Path, name: str
) -> None:
    with pytest.raises(CoveyError, match="damaged archive"):
        fetch(site.url, tmp_path / name)
    assert not list(tmp_path.glob("file*"))


def test_no_network_and_a_refusal_are_one_line(site: Site, tmp_path: Path) -> None:
    site.status = 404
    with pytest.raises(CoveyError, match=r"127\.0\.0\.1 answered 404 .*--from FILE"):
        fetch(site.url, tmp_path / "file.bin")
    with pytest.raises(CoveyError, match=r"cannot reach 127\.0\.0\.1 .*no network\?"):
        fetch("http://127.0.0.1:9/file.bin", tmp_path / "file.bin", wait=2)
    assert not list(tmp_path.glob("file*"))


def test_a_folder_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(CoveyError, match=r"cannot write .*set COVEY_CACHE"):
        fetch(site.url, tmp_path / "taken" / "file.bin")


# --- whole datasets ---

RATINGS = b"1::1::5::978300760\n1::2::3::978302109\n2::1::4::978301968\n"
INTER = (
    "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    "1\t7\t3\t881250949\n2\t7\t3\t5\n2\t9\t1\t6\n"
)
ITEM = (
    "item_id:token\tmovie_title:token_seq\trelease_year:token\n"
    '7\tKolya "x\t1996\n9\tL.A. Confidential\t1997\n'
)


def archive(**files: str | bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for name, content in files.items():
            made.writestr(name, content)
    return file.getvalue()


def small(site: Site, name: str = "ml-1m") -> Source:
    site.content = archive(**{"ml-1m/ratings.dat": RATINGS})
    return replace(find(name), url=site.url.replace(".bin", ".zip"), checksum=md5(site.content))


def test_a_dataset_comes_from_its_place(site: Site) -> None:
    assert len(getting.get(small(site))) == 3
    assert len(load("ml-1m")) == 3 and cache.names() == ["ml-1m"]


def test_both_parts_of_a_split_come(site: Site) -> None:
    site.content = b"0 10 11\n1 12\n"
    source = replace(find("gowalla-lightgcn"), url=site.url.rsplit("/", 1)[0])
    dataset = getting.get(source)
    assert dataset.part_E is not None and dataset.part_E.tolist() == [0, 0, 0, 2, 2, 2]
    assert len(site.asked) == 2 and load("gowalla-lightgcn").n_items == 3


def test_a_failed_get_prepares_nothing(site: Site) -> None:
    source = small(site)
    site.cut = 10
    with pytest.raises(CoveyError, match="ended after 10 of"):
        getting.get(source)
    assert not cache.names()
    site.cut = None
    getting.get(source)
    assert site.asked == ["", "bytes=10-"] and cache.names() == ["ml-1m"]


def test_a_dataset_given_by_hand_says_where(site: Site) -> None:
    with pytest.raises(CoveyError, match=r"by hand only: get it from https.*--from FILE"):
        getting.get(find("qb-article"))


def test_original_files_under_covey_data_need_no_network(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "ml-1m").mkdir(parents=True)
    (tmp_path / "data" / "ml-1m" / "ratings.dat").write_bytes(RATINGS)
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "data"))
    assert len(getting.get(find("ml-1m"))) == 3 and not site.asked


def wheel(content: bytes | None = None) -> Path:
    path = cache.downloads() / "recbole-1.2.1-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    inside = {f"{getting.INSIDE}/ml-100k.inter": INTER, f"{getting.INSIDE}/ml-100k.item": ITEM}
    path.write_bytes(archive(**inside) if content is None else content)
    return path


def test_the_wheel_of_recbole_stands_in(site: Site) -> None:
    source = replace(find("ml-100k"), url=site.url)
    site.status = 503
    with pytest.raises(CoveyError, match=r"answered 503.*covey data get ml-100k --recbole"):
        getting.get(source)
    wheel()
    d = getting.get(source)
    assert (d.name, len(d), d.clock, d.titles) == (
        "ml-100k",
        3,
        True,
        ('Kolya "x', "L.A. Confidential"),
    )
    assert len(load("ml-100k")) == 3


def test_an_installed_recbole_is_read_without_importing_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site" / getting.INSIDE
    folder.mkdir(parents=True)
    (tmp_path / "site" / "recbole" / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "ml-100k.inter").write_text(INTER)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert len(getting.get_recbole()) == 3


def test_pip_is_asked_for_the_wheel_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], **_: Any) -> Any:
        asked.append(words)
        wheel()
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr("subprocess.run", run)
    assert len(getting.get_recbole()) == 3
    assert {"download", "--no-deps", "recbole==1.2.1"} <= set(asked[0])
    cache.prepared("ml-100k").unlink()
    wheel(b"half")
    with pytest.raises(CoveyError, match=r"recbole.*not a zip file.*remove that file"):
        getting.get_recbole()
    assert not cache.names()


def test_pip_that_fails_is_one_line(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = type(
        "Done", (), {"returncode": 1, "stderr": "noise\nERROR: No matching distribution\n"}
    )
    monkeypatch.setattr("subprocess.run", lambda *_, **__: failed)
    with pytest.raises(
        CoveyError, match=r"pip could not fetch recbole==1\.2\.1 \(ERROR: No matching"
    ):
        getting.get_recbole()
