"""Other machines: experiment trackers and hubs that are told nothing, and who else a program speaks with.

1. wandb, mlflow, comet, neptune and SwanLab are switched off by their own settings, also where the program
   says otherwise; mlflow writes to the overlay. A call that would change a repository of the Hugging Face
   hub does nothing and answers as if it had.
2. Any other machine a connection goes to is written down, by the name it was asked for; without `network` it
   is refused.

Sources: each library's documentation of its variables; `huggingface_hub/hf_api.py`. Not modelled: connections
that libraries in C make by themselves (gRPC, another language's programs): they are refused where a whole
process has no network, and not written down.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from analyzer_sandbox.importing import exchange, once_imported

_HUB_CHANGES = re.compile(
    r"(create|delete|update|move|upload|preupload|add|edit|rename|merge|comment|change|super_squash"
    r"|permanently|duplicate|request_space|set_space|pause|restart|enable|disable|run_job|run_uv|grant"
    r"|accept|reject|cancel|unlike)(_|$)"
)


def variables(folder: str) -> dict[str, str]:
    """Return the environment variables that silence trackers. folder: where mlflow may write."""
    return {
        "WANDB_MODE": "disabled", "COMET_AUTO_LOG_DISABLE": "1", "NEPTUNE_MODE": "offline",
        "SWANLAB_MODE": "disabled", "MLFLOW_TRACKING_URI": f"file://{folder}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }  # fmt: skip


class Services:
    """folder: where it is written down who was met, a line each ("host NAME", "tracker NAME"), by all
    processes of a program.
    aside: whether the calling thread is none of the program's."""

    def __init__(self, folder: str, network: bool, aside: Callable[[], bool] = lambda: False) -> None:
        self._list = os.path.join(folder, "met")
        self._network, self._is_bypassed = network, aside
        self._recorded: set[str] = set()
        self._names: dict[str, str] = {}

    def contacts(self) -> list[str]:
        """Return the recorded lines, each once."""
        with contextlib.suppress(FileNotFoundError), open(self._list, encoding="utf-8") as lines:
            return list(dict.fromkeys(lines.read().splitlines()))
        return []

    def _record(self, line: str) -> None:
        if line not in self._recorded:
            self._recorded.add(line)
            with contextlib.suppress(OSError), open(self._list, "a", encoding="utf-8") as lines:
                lines.write(f"{line}\n")

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Replace trackers' and sockets' functions while open."""
        changes: dict[str, Callable[[Any], Any]] = {
            "socket": self._socket, "wandb": self._wandb, "mlflow": self._mlflow, "neptune": self._neptune,
            "neptune_scale": self._neptune_scale, "huggingface_hub.hf_api": self._hub,
            "comet_ml": self._by_variable, "swanlab": self._by_variable,
        }  # fmt: skip
        with contextlib.ExitStack() as stack:

            def imported(module: ModuleType) -> None:
                stack.callback(exchange(changes[module.__name__](module)))

            for name in changes:
                stack.enter_context(once_imported(name, imported))
            yield

    # -- connections

    def _socket(self, module: Any) -> Iterator[tuple[Any, str, Any]]:
        """Yield replacements that note which host an address is of, and which the program connects to."""
        original = module.getaddrinfo

        def getaddrinfo(host: Any, *arguments: Any, **named: Any) -> Any:
            addresses = original(host, *arguments, **named)
            if isinstance(host, str) and not self._is_bypassed():
                self._names.update({entry[4][0]: host for entry in addresses})
            return addresses

        yield module, "getaddrinfo", getaddrinfo
        for name, kinds in (
            ("connect", module.SOCK_STREAM),
            ("connect_ex", module.SOCK_STREAM),
            ("sendto", module.SOCK_DGRAM),
        ):
            yield module.socket, name, self._connecting(getattr(module.socket, name), kinds, module)

    def _connecting(self, original: Any, kind: int, module: Any) -> Any:
        """Return a replacement for a socket's connecting method, which records the host."""

        def call(connection: Any, *arguments: Any) -> Any:
            address = arguments[-1]
            if (
                connection.type == kind
                and connection.family in (module.AF_INET, module.AF_INET6)
                and not self._is_bypassed()
            ):
                host = self._names.get(address[0], address[0])
                if not address[0].startswith("127.") and host not in ("::1", "localhost", "0.0.0.0", ""):
                    self._record(f"host {host}")
                    if not self._network:
                        raise OSError(errno.ENETUNREACH, f"--no-network: no connection to {host}")
            return original(connection, *arguments)

        return call

    # -- trackers

    def _for_program(self, tracker: str, original: Any, replacement: Any) -> Any:
        """Return a function that calls `replacement` for the program and `original` for everything else."""

        def call(*arguments: Any, **named: Any) -> Any:
            if self._is_bypassed():
                return original(*arguments, **named)
            self._record(f"tracker {tracker}")
            return replacement(*arguments, **named)

        return call

    def _forced(self, tracker: str, original: Any, **settings: Any) -> Any:
        return self._for_program(
            tracker, original, lambda *arguments, **named: original(*arguments, **{**named, **settings})
        )

    def _by_variable(self, module: ModuleType) -> tuple[()]:
        """Record a tracker that its environment variable silences."""
        self._record(f"tracker {module.__name__}")
        return ()

    def _wandb(self, module: Any) -> Iterator[tuple[Any, str, Any]]:
        yield module, "init", self._forced("wandb", module.init, mode="disabled")

    def _neptune(self, module: Any) -> Iterator[tuple[Any, str, Any]]:
        for name in ("init_run", "init_project", "init_model", "init_model_version"):
            if hasattr(module, name):
                yield module, name, self._forced("neptune", getattr(module, name), mode="offline")

    def _neptune_scale(self, module: Any) -> Iterator[tuple[Any, str, Any]]:
        yield module.Run, "__init__", self._forced("neptune", module.Run.__init__, mode="offline")

    def _mlflow(self, module: Any) -> Iterator[tuple[Any, str, Any]]:
        """Yield replacements that keep MLflow on local files, whatever tracking server the program names."""
        yield (
            module,
            "set_tracking_uri",
            self._for_program("mlflow", module.set_tracking_uri, lambda uri: None),
        )
        yield module, "start_run", self._forced("mlflow", module.start_run)
        client = module.MlflowClient.__init__

        def made(self: Any, tracking_uri: Any = None, *arguments: Any, **named: Any) -> None:
            del tracking_uri
            client(self, None, *arguments, **named)

        yield module.MlflowClient, "__init__", self._for_program("mlflow", client, made)

    def _hub(self, module: Any) -> Iterator[tuple[Any, str, Any]]:
        """Yield replacements for the hub's functions that change a repository: they report success."""

        def answered(name: str) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                texts = [argument for argument in arguments if isinstance(argument, str)]
                repository = named.get("repo_id") or next(iter(texts), "nobody/nothing")
                address = (
                    f"https://huggingface.co/{repository if '/' in repository else 'nobody/' + repository}"
                )
                if name == "create_repo":
                    return module.RepoUrl(address)
                message = named.get("commit_message") or ""
                info = module.CommitInfo(
                    f"{address}/commit/0", commit_message=message, commit_description="", oid="0"
                )
                return _done(info) if named.get("run_as_future") else info

            return call

        for name in filter(_HUB_CHANGES.match, dir(module.HfApi)):
            for holder in (module.HfApi, module):  # the module has the methods of an instance of its own
                if hasattr(holder, name):
                    yield (
                        holder,
                        name,
                        self._for_program("the Hugging Face hub", getattr(holder, name), answered(name)),
                    )


def _done(result: Any) -> Any:
    from concurrent.futures import Future

    future: Any = Future()
    future.set_result(result)
    return future
