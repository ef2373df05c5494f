"""`hf:ORG/NAME`: the configuration alone is fetched, from a hub on this machine; what is not to be had is said."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import AnalyzerError, MissingDependencyError, OptionError, TargetError
from analyzer.options import Options
from analyzer.pipeline.config import script_of
from analyzer.recipes.config import opened

pytest.importorskip("huggingface_hub")
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 64,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
OLDER = {**LLAMA, "num_hidden_layers": 1}
# What the hub answers for (repository, revision): a file, or a status and its X-Error-Code.
ANSWERS: dict[tuple[str, str], Any] = {
    ("org/there", "main"): LLAMA,
    ("org/there", "v1"): OLDER,
    ("org/gated", "main"): (403, "GatedRepo"),
    ("org/absent", "main"): (404, "RepoNotFound"),
    ("org/empty", "main"): (404, "EntryNotFound"),
    ("org/ill", "main"): (503, ""),
}


class Hub(BaseHTTPRequestHandler):
    """The few answers of huggingface.co that fetching a file needs."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.asked.append(f"{self.command} {self.path}")
        repository, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        found = ANSWERS.get((repository, revision), (404, "RevisionNotFound"))
        if isinstance(found, tuple):
            self.send_response(found[0])
            self.send_header("X-Error-Code", found[1])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = json.dumps(found).encode() if file == "config.json" else b"weights"
        self.send_response(200)
        self.send_header("ETag", f'"{abs(hash(body)):040x}"')
        self.send_header("X-Repo-Commit", f"{abs(hash(revision)):040x}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """A hub on this machine, and an empty cache: what it was asked until now, and ends with its last call."""
    handler = type("Asked", (Hub,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def asked() -> list[str]:
        return list(handler.asked)

    yield asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_configuration_alone_is_fetched_and_once(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened("hf:org/there").document == LLAMA
    asked = hub()
    assert asked and {request.split()[1] for request in asked} == {"/org/there/resolve/main/config.json"}
    assert opened("hf:org/there").document == LLAMA and hub() == asked  # from the cache
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert opened("hf:org/there").document == LLAMA and hub() == asked


def test_a_revision(hub: Any) -> None:
    assert opened("hf:org/there", "v1").document == OLDER == opened("hf:org/there@v1").document
    assert all("/resolve/v1/" in request for request in hub())
    shown = script_of("hf:org/there", Options(revision="v1", device="h200"))
    (path,) = re.findall(r"AutoConfig\.from_pretrained\('([^']+)'", shown)
    assert json.loads(Path(path).read_text()) == OLDER
    with pytest.raises(OptionError, match="revision is of hf:ORG/NAME"):
        opened("config.json", "v1")


@pytest.mark.parametrize(
    ("name", "revision", "message", "hint"),
    [
        ("org/gated", None, "org/gated asks for consent to its conditions", "accept them there"),
        ("org/absent", None, "there is no model http", "check the name"),
        ("org/empty", None, "org/empty has no config.json", "name a model of transformers"),
        ("org/there", "v9", "org/there has no revision 'v9'", "--revision takes a branch"),
        ("org/ill", None, "org/ill was not fetched: ", "try again"),
    ],
)
def test_what_is_not_to_be_had_is_said(
    hub: Any, name: str, revision: str | None, message: str, hint: str
) -> None:
    with pytest.raises(TargetError) as caught:
        opened(f"hf:{name}", revision)
    assert message in caught.value.message and caught.value.hint.startswith(hint)
    assert hub() and all("/config.json" in request for request in hub())


def test_offline_it_says_so(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(TargetError, match="not in the cache on this machine, and HF_HUB_OFFLINE is set"):
        opened("hf:org/there")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(TargetError, match=r"http://127\.0\.0\.1:9 cannot be reached") as caught:
        opened("hf:org/there")
    assert caught.value.hint.startswith("go online, or give the model's config.json") and hub() == []


@pytest.mark.parametrize("name", ["../../etc", "", "a/b/c", "org/x?y", "--help"])
def test_what_is_no_name_is_not_asked_for(hub: Any, name: str) -> None:
    with pytest.raises(AnalyzerError, match="is no model's name"):
        opened(f"hf:{name}")
    assert hub() == []


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analyzer.recipes.hub.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError) as caught:
        opened("hf:org/there")
    assert "[llm]" in caught.value.hint


def test_a_name_of_the_hub_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from analyzer.targets import parse

    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(TargetError) as caught:
        parse("meta-llama/Llama-3.1-8B")
    assert caught.value.hint == "did you mean 'hf:meta-llama/Llama-3.1-8B'?"
    for file in ("models/resnet", "org/net.py", "org/config.json", "a/b/c", "/tmp/none"):
        with pytest.raises(TargetError) as caught:
            opened(file)
        assert "hf:" + file not in caught.value.hint
