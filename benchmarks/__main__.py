"""`python -m benchmarks releases torch A B`: the benchmarks that are commands (the others are scripts, by their path)."""

from __future__ import annotations

import sys

from benchmarks import gpu_profiles
from benchmarks.published import compare, litgpt, torchtune, vllm_logs
from benchmarks.releases import changes

COMMANDS = {
    "releases": changes.main,
    "gpu_profiles": gpu_profiles.main,
    "published": compare.main,
    "litgpt": litgpt.main,
    "torchtune": torchtune.main,
    "vllm_logs": vllm_logs.main,
}

if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in COMMANDS:
        sys.exit(f"usage: python -m benchmarks {{{','.join(COMMANDS)}}} ...")
    sys.exit(COMMANDS[sys.argv[1]](sys.argv[2:]))
