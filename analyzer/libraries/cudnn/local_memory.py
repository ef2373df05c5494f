"""Kernels of cuDNN whose local memory the driver keeps: hundreds of MiB beside the allocator.

A kernel that spills its registers needs local memory for every thread the GPU can hold at once. The driver
reserves it when the kernel first runs, and does not give it back ("This size isn't reset", CUDA driver API,
`cuCtxSetLimit`): a process keeps the most that any kernel needs, above what a stack may have from the start.

1. Of cuDNN 9.19's convolutions it is engine 16 of the weight gradient (`wgrad2d_shmem_tiling`, compiled when
   it runs): 16 bits, NCHW, stride and dilation 1. With its second tile (knob `CUDNN_KNOB_TYPE_TILE_SIZE`, 2)
   a thread takes 2,512 bytes with 5 x 5 filters and 4,936 with 7 x 7 ones: 384 and 1,010 MiB on an H100.
2. Where no plans can be asked, the second tile is taken for at most four channels a group whose plan takes
   no workspace, and in benchmark mode for what an H200 was seen to try: 5 x 5 filters in depthwise
   convolutions of images up to 16 x 16, 7 x 7 ones into at most three channels.

Source: used memory after each of 1,231 convolutions on an H100, in a new process after each that kept some:
23 did, all 22 with the second tile and those filters among them
(`tests/data/h100/local_memory_survey.json.gz`); bytes a thread by the rule of
`analyzer_emulation/native/memory.c`, to eight. In benchmark mode NVML after each call of 88 networks and
single convolutions on an H200 (`tests/data/h200/convolution_plans.json.gz`). Not known: what decides for one
input and one output channel, which have no such knob (1 of 24 kept 1,010 MiB); other architectures, taken to
be the same; other releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzer.libraries.cudnn.convolution import Convolution, Plan, up

FIVE, SEVEN = "local_memory_5x5", "local_memory_7x7"
_FILTERS: dict[tuple[int, ...], str] = {(5, 5): FIVE, (7, 7): SEVEN}
FRAME_BYTES = {FIVE: 2512, SEVEN: 4936}
_STACK_BYTES = 1024  # cudaLimitStackSize as a process begins
_PAGE = 2 << 20
_ENGINE, _TILE, _SECOND = 16, 2, 2
_LARGEST_SIDE, _FEW_OUTPUTS, _FEW_INPUTS = 16, 3, 4


def is_compiled(operation: str, engine: int) -> bool:
    """Return whether it is the engine whose knobs decide about local memory."""
    return operation == "weight" and engine == _ENGINE


def family(call: Convolution) -> str | None:
    """Return the family of local memory a call's kernels may keep, None if they keep none.

    >>> family(Convolution("weight", "float16", False, (8, 3, 45, 45), (16, 3, 5, 5), (2, 2), (1, 1), (1, 1)))
    'local_memory_5x5'
    """
    if call.operation != "weight" or call.dtype not in ("float16", "bfloat16") or call.channels_last:
        return None
    if call.stride != (1, 1) or call.dilation != (1, 1):
        return None
    return _FILTERS.get(call.w_shape[2:])


def keeps(call: Convolution, plan: Plan) -> bool:
    """Return whether the driver keeps local memory once a plan of a call with a family has run."""
    return is_compiled(call.operation, plan.engine) and (_TILE, _SECOND) in plan.knobs


def kept_by(
    call: Convolution, plans: Sequence[Plan] | None, workspace_bytes: int, benchmark: bool
) -> str | None:
    """Return the family of local memory that is kept once a call has run, None if none is.

    plans: those that run (the first, in benchmark mode all that are timed); None: nobody can be asked.
    workspace_bytes: of the plan that runs.
    """
    of_call = family(call)
    if of_call is None:
        return None
    if plans is not None:
        keeping = any(keeps(call, plan) for plan in plans)
    else:
        few = call.w_shape[1] <= _FEW_INPUTS and call.w_shape[:2] != (1, 1)
        keeping = (workspace_bytes == 0 and few) or (benchmark and _was_tried(call))
    return of_call if keeping else None


def _was_tried(call: Convolution) -> bool:
    """Return whether benchmark mode's trials of a call with a family were seen to keep local memory."""
    if call.w_shape[2] == 5:
        return call.groups == call.x_shape[1] > 1 and max(call.x_shape[2:]) <= _LARGEST_SIDE
    return call.groups == 1 and call.w_shape[0] <= _FEW_OUTPUTS


def kept_bytes(families: Iterable[str], threads: int) -> int:
    """Return the bytes the driver keeps for kernels of these families, beyond its stacks, of a GPU that can
    hold so many threads.

    >>> kept_bytes([FIVE], 132 * 2048) >> 20, kept_bytes([FIVE, SEVEN], 132 * 2048) >> 20, kept_bytes([], 1)
    (384, 1010, 0)
    """
    frame = max((FRAME_BYTES[family] for family in families if family in FRAME_BYTES), default=_STACK_BYTES)
    return up(frame * threads, _PAGE) - up(_STACK_BYTES * threads, _PAGE)
