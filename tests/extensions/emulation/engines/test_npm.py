"""llama.cpp's libraries from a package, by a registry on this machine (`analyzer_emulation/npm.py`)."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from analyzer.errors import OptionError, RunError
from analyzer_emulation import npm, store

FILES = {
    "package/bins/linux-x64-cuda/libllama.cuda.so": b"library",
    "package/bins/linux-x64-cuda/llama-addon.node": b"addon",
    "package/bins/linux-x64-cuda/_nlcBuildMetadata.json": b"{}",
    "../../outside.so": b"outside",
}


def archive() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as made:
        for name, content in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("package/link.so")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    return written.getvalue()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    content, asked = archive(), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("ANALYZER_CACHE", str(tmp_path))
    digest = base64.b64encode(hashlib.sha512(content).digest()).decode()
    monkeypatch.setattr(npm, "BUILDS", {"0.5.0": npm.Build("3.22.1", 1000, digest)})
    yield asked
    server.shutdown()
    server.server_close()


def test_libraries_alone_are_kept(registry: list[str]) -> None:
    told: list[str] = []
    engine = store.install(["llama.cpp"], told.append)
    assert registry == ["/@node-llama-cpp/linux-x64-cuda/-/linux-x64-cuda-3.22.1.tgz"]
    found = sorted(path.name for path in engine.folder.iterdir())
    assert found == ["_nlcBuildMetadata.json", "engine.json", "libllama.cuda.so", "outside.so"]
    assert (engine.name, [one.name for one in store.every() if one.complete]) == (
        "llama.cpp-0.5.0",
        [engine.name],
    )
    assert any("to download" in text for text in told)
    assert store.remove("llama.cpp-0.5.0").name == engine.name and not list(store.every())


@pytest.mark.usefixtures("registry")
def test_another_archive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npm, "BUILDS", {"0.5.0": npm.Build("3.22.1", 1000, "another")})
    with pytest.raises(RunError, match="is not the release that is known here"):
        store.install(["llama.cpp==0.5.0"], lambda _: None)
    assert not [one for one in store.every() if one.complete]


@pytest.mark.usefixtures("registry")
def test_releases_that_are_not_known_and_registries_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(OptionError, match=r"llama\.cpp 9\.9 is not known here"):
        store.install(["llama.cpp==9.9"], lambda _: None)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9/")
    with pytest.raises(RunError, match=r"llama\.cpp is not installed"):
        store.install(["llama.cpp"], lambda _: None)
