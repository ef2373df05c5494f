"""Pooling and resizing.

Source: `aten/src/ATen/native/cuda/` `DilatedMaxPool2d.cu`, `DilatedMaxPool3d.cu`, `AveragePool2d.cu`,
`AdaptiveAveragePooling.cu`, `AdaptiveAveragePooling3d.cu`, `AdaptiveMaxPooling2d.cu`,
`AdaptiveMaxPooling3d.cu`, `UpSample*.cu`, `Col2Im.cu`.

Not modelled: results that are resized in place by the caller.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.layout import (
    bytes_of,
    format_copy_bytes,
    is_channels_last,
    suggests_channels_last,
)
from analyzer.runtimes.pytorch.scratch.script import Script, present, rule

_IMAGES, _VOLUMES = 4, 5  # dimensions of a batch


# Below so many channels the nearest neighbour of a channels-last image is looked up in a contiguous copy of
# it.
_FEW_CHANNELS = 4


@rule("aten::max_pool2d_with_indices", "aten::avg_pool2d", name="pooling")
def either_format(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Kernels run in the memory format the input suggests: an input dense in that format is read in place,
    any other is copied to it after the results are allocated.
    """
    script.outputs()
    source = present(operator, "self")
    script.temporary(format_copy_bytes(source, suggests_channels_last(source)))


@rule("aten::upsample_bilinear2d", name="bilinear")
def bilinear(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The kernel reads any strides; one for channels-last inputs copies what is not dense in that format.

    Source: `upsample_bilinear2d_out_cuda_template`, UpSampleBilinear2d.cu.
    """
    script.outputs()
    if suggests_channels_last(source := present(operator, "self")):
        script.temporary(format_copy_bytes(source, channels_last=True))


@rule("aten::max_pool2d_with_indices_backward", "aten::avg_pool2d_backward", name="pooling-grad")
def either_format_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Gradient, input and, for max pooling, the saved indices are each copied if they are not dense in the
    memory format the input suggests.
    """
    grad, source = present(operator, "grad_output"), present(operator, "self")
    script.outputs()
    channels_last = suggests_channels_last(source)
    script.temporaries(format_copy_bytes(source, channels_last), format_copy_bytes(grad, channels_last))
    if operator.name.startswith("aten::max_pool2d"):
        script.temporary(format_copy_bytes(operator.tensor("indices"), channels_last))


@rule("aten::_adaptive_avg_pool2d", name="adaptive-average")
def adaptive_average(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Images in neither memory format are copied before the result is allocated; a single one is read as it
    lies."""
    source = operator.tensor("self")
    if source is not None and len(source.shape) == _IMAGES and not is_channels_last(source):
        script.copies(source)
    script.outputs()


@rule("aten::_adaptive_avg_pool2d_backward", name="adaptive-average-grad")
def adaptive_average_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The gradient is read as it lies where the input is channels last, else copied if it is not
    contiguous."""
    script.outputs()
    if not suggests_channels_last(present(operator, "self")):
        script.copies(operator.tensor("grad_output"))


@rule(
    "aten::upsample_nearest2d",
    "aten::upsample_nearest2d_backward",
    "aten::_upsample_nearest_exact2d",
    "aten::_upsample_nearest_exact2d_backward",
    "aten::upsample_bilinear2d_backward",
    name="resize",
)
def resize(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The input, or the gradient, is read in place if it is dense in the memory format it suggests, else
    copied. One that is channels last and has fewer than four channels is resized contiguous, into a
    contiguous result that is copied over (recorded with three channels, and with 32 otherwise; four is where
    the kernels' source draws the line).

    Source: UpSampleNearest2d.cu, UpSampleBilinear2d.cu.
    """
    source, result = present(operator, "grad_output", "self"), present(operator, 0)
    script.outputs()
    channels_last = suggests_channels_last(source)
    if channels_last and source.shape[1] < _FEW_CHANNELS:
        script.copies(result)
        channels_last = False
    script.temporary(format_copy_bytes(source, channels_last))


@rule("aten::max_pool3d_with_indices", "aten::max_pool3d_with_indices_backward", name="pooling-volume")
def pool_volume(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A batch of volumes is pooled in the format it suggests: what lies otherwise is copied. Source:
    DilatedMaxPool3d.cu."""
    script.outputs()
    source = present(operator, "self")
    channels_last = len(source.shape) > _IMAGES and suggests_channels_last(source)
    script.temporary(format_copy_bytes(operator.tensor("grad_output", "self"), channels_last))


@rule("aten::adaptive_max_pool2d", name="contiguous-results")
def contiguous_results(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A batch that is not contiguous is copied, and a result that is to be strided computed beside it and
    copied over; one image is read as it lies."""
    script.outputs()
    source = operator.tensor("self")
    if source is not None and len(source.shape) >= _IMAGES:
        script.copies(*operator.outputs, source)


@rule("aten::col2im")
def col2im(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The result is made as large as the input and resized: one that is smaller keeps that memory, a larger
    one is taken anew.

    Source: aten/src/ATen/native/cuda/Col2Im.cu, `col2im_cuda`.
    """
    source, result = operator.tensor("self"), operator.outputs[0]
    nbytes = bytes_of(source) if source is not None else 0
    if result is None or bytes_of(result) <= nbytes:
        script.output(0, nbytes)
        script.copies(source)
        return
    script.temporary(nbytes)
    script.copies(source)
    script.output(0)


@rule("aten::_adaptive_avg_pool3d", name="adaptive-average-3d")
def adaptive_average_3d(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A batch that is not contiguous is copied before the result; one volume is read as it lies."""
    source = operator.tensor("self")
    if source is not None and len(source.shape) == _VOLUMES:
        script.copies(source)
    script.outputs()


@rule("aten::adaptive_max_pool3d", name="adaptive-max-3d")
def adaptive_max_3d(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A batch that is not contiguous is copied after the results; one volume is read as it lies."""
    source = operator.tensor("self")
    script.outputs()
    if source is not None and len(source.shape) == _VOLUMES:
        script.copies(source)
