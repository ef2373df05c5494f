"""Engines that cuDNN compiles at run time: it lists them where it finds a driver, not where there is none.

Of depthwise convolutions in float16 and NCHW, the only ones of that layout that PyTorch hands to cuDNN, they
come first in most cases, and take no workspace, where the engines that are listed everywhere want a copy of
the input. Which of the two it is cuDNN decides by a heuristic that nobody has read: the shares are counted,
and both answers are in the range.

Source: the lists of an H100's handle, cuDNN 9.19, for 4,698 such convolutions with filters of 1, 3 and 5
(`tests/data/h100/depthwise_first.jsonl.gz`); a description in a process that has a GPU lists the same.
Not modelled: other compute capabilities, for which the shares of this one stand; engines compiled at run time
for other convolutions, which take no workspace and hardly ever come first.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.libraries.cudnn.convolution import Convolution, Plan

# Operation -> the engine, and in what share of the cases in which an engine with a workspace would be first
# without it it comes before that.
COMPILED = {"forward": (5, 0.968), "data": (6, 0.987), "weight": (19, 0.731)}


def with_compiled(call: Convolution, plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """A list as it is where a driver is found."""
    depthwise = call.groups == call.x_shape[1] > 1 and call.dtype == "float16" and not call.channels_last
    if not depthwise or not plans or not plans[0].workspace_bytes:
        return tuple(plans)
    engine, share = COMPILED[call.operation]
    return (Plan(engine, 0, deterministic=call.operation != "weight", share_first=share), *plans)
