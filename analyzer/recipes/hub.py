"""A model's config.json by its name on the Hugging Face hub: from transformers' cache on this machine, else
fetched, that file alone.

1. A cached file is used as it is, without a request to the hub.
2. Else huggingface_hub fetches it into its cache, with the user's own settings (HF_ENDPOINT, HF_TOKEN,
   HF_HUB_OFFLINE, ...).
3. Both happen in a process of their own: huggingface_hub reads its settings when it is imported, and here it
   is imported later, to be offline.

Sources: huggingface_hub's `hf_hub_download`, and the errors it documents.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from analyzer import child
from analyzer.errors import MissingPackageError, TargetError, install

FILE = "config.json"
_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")


def config_file(name: str, revision: str | None = None, file: str = FILE) -> Path:
    """Return the configuration of a model by its name, "ORG/NAME", fetched where it is not cached.

    revision: a branch, a tag or a commit of the repository; None: main. file: its path there. Raises
    TargetError, which says why it is not to be had, or MissingPackageError.
    """
    if not _NAME.fullmatch(name) or ".." in name:
        raise TargetError(f"hf:{name} is no model's name", "write hf:ORG/NAME")
    if importlib.util.find_spec("huggingface_hub") is None:
        raise MissingPackageError(
            f"hf:{name} is looked up by huggingface_hub, which is not installed",
            f"{install('llm')}, or give the model's config.json",
        )
    ran = subprocess.run(
        child.command(__name__, name, revision or "main", file),
        # Telemetry would ask for more than the file.
        env={**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer: dict[str, str] = json.loads(ran.stdout)
    except ValueError:
        lines = ran.stderr.strip().splitlines() or ["no message"]
        raise TargetError(f"hf:{name} was not fetched: {lines[-1]}", f"give the model's {file}") from None
    if "path" not in answer:
        raise TargetError(answer["error"], answer["hint"])
    return Path(answer["path"])


def _looked_up(name: str, revision: str, file: str) -> dict[str, str]:
    """Return {"path": ...}, or {"error": ..., "hint": ...}."""
    from huggingface_hub import (
        constants,
        errors,
        get_hf_file_metadata,
        hf_hub_download,
        hf_hub_url,
        try_to_load_from_cache,
    )

    at = "" if revision == "main" else f" at {revision}"
    address = f"{constants.ENDPOINT}/{name}"
    kept = try_to_load_from_cache(name, file, revision=revision)
    if isinstance(kept, str):
        return {"path": kept}
    if constants.HF_HUB_OFFLINE:
        return {
            "error": f"hf:{name}{at} is not in the cache on this machine, and HF_HUB_OFFLINE is set",
            "hint": f"unset HF_HUB_OFFLINE, or give the model's {file}",
        }
    try:
        # Asked first, since downloading tries a machine without network for half a minute.
        get_hf_file_metadata(hf_hub_url(name, file, revision=revision), timeout=constants.HF_HUB_ETAG_TIMEOUT)
        return {"path": hf_hub_download(name, file, revision=revision)}
    except errors.GatedRepoError:
        problem = f"{address} asks for consent to its conditions"
        hint = f"accept them there and `hf auth login`, or give the model's {file}"
    except errors.RevisionNotFoundError:
        problem = f"{address} has no revision {revision!r}"
        hint = "--revision takes a branch, a tag or a commit"
    except errors.RepositoryNotFoundError:
        problem = f"there is no model {address}, or it is private"
        hint = "check the name; a private one needs `hf auth login`"
    except errors.RemoteEntryNotFoundError:
        problem, hint = f"{address}{at} has no {file}", "name a model of transformers"
    except errors.HfHubHTTPError as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        problem, hint = f"{address}{at} was not fetched: {first}", f"try again, or give the model's {file}"
    except Exception as error:  # of the library that speaks HTTP for this release of huggingface_hub
        problem = (
            f"hf:{name}{at} is not in the cache on this machine, and {constants.ENDPOINT} cannot be reached"
        )
        hint = f"go online, or give the model's {file} ({type(error).__name__}: {error})"
    return {"error": problem, "hint": hint}


if __name__ == "__main__":
    # Libraries' output is no answer.
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    json.dump(_looked_up(*sys.argv[-3:]), answers)
    answers.flush()
