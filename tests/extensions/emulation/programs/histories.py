"""What the programs beside this one print of a call: its tensors, and what it asked of the allocator."""

import torch


def events(call):
    """What a call asks of the allocator and gives back: bytes, freed ones negative."""
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history(context=None)
    result = call()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    signs = {"alloc": 1, "free_completed": -1}
    return result, [signs[entry["action"]] * entry["size"] for entry in trace if entry["action"] in signs]


def told(value):
    if isinstance(value, torch.Tensor):
        return ["T", list(value.shape), str(value.dtype)[6:], list(value.stride())]
    return value
