"""Recorded Fourier transforms once more: RECORDED.jsonl.gz, prints how many asked for the same, and what differs."""

import gzip
import json
import sys

import torch

COMPLEX = {torch.float16: torch.complex32, torch.float32: torch.complex64, torch.float64: torch.complex128}


def events(call):
    """What a call asks of the allocator and gives back: "+" or "-" and bytes."""
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history(context=None)
    result = call()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    del result
    signs = {"alloc": "+", "free_completed": "-"}
    return [[signs[entry["action"]], entry["size"]] for entry in trace if entry["action"] in signs]


def transform(row):
    real = getattr(torch, row["dtype"])
    dtype = real if row["kind"] == "r2c" else COMPLEX[real]
    x = torch.empty_strided(*row["x"], dtype=dtype, device="cuda")
    dims = row["dims"]
    if row["kind"] == "c2r":
        last = row["y"][0][dims[-1]]
        return events(lambda: torch.ops.aten._fft_c2r(x, dims, 0, last))
    if row["kind"] == "r2c":
        return events(lambda: torch.ops.aten._fft_r2c(x, dims, 0, True))
    return events(lambda: torch.ops.aten._fft_c2c(x, dims, 0, True))


def main():
    with gzip.open(sys.argv[1], "rt") as file:
        rows = [json.loads(line) for line in file]
    same, others = 0, []
    for row in rows:
        found = transform(row)
        same += found == row["events"]
        if found != row["events"]:
            others.append([row, found])
    print(json.dumps({"same": same, "others": others}))


main()
