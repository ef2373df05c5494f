"""A program in a sandbox, as the command line puts one there, without what analyses it: python inside.py [--keep DIR] [--no-network] PROGRAM
WORDS."""

import os
import runpy
import sys

import analyzer_sandbox as sandbox


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def main(words):
    keep = words.pop(1) if words[0] == "--keep" else None
    words = words[1:] if keep else words
    network = words[0] != "--no-network"
    words = words if network else words[1:]
    sandbox.own_process = True
    sandbox.enter(write, lambda *said: print(*said, sep="\n", file=sys.stderr), keep, network)
    box = sandbox.current()
    if words[0].startswith("-"):
        raise SystemExit(f"no such option: {words[0]}")
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")
    box.ended()
    print(*box.notes(), sep="\n")
    box.outside.ask("write", os.environ.get("REPORT", os.devnull), b"report")
    sandbox.finish(3)


if __name__ == "__main__":
    main(sys.argv[1:])
