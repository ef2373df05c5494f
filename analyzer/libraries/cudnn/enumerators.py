"""Enumerators of cuDNN's backend API that a convolution's questions need, by their names in `cudnn_graph.h`
(cuDNN 9.19) without the common beginning."""

from __future__ import annotations

from enum import IntEnum


class Descriptor(IntEnum):
    """`cudnnBackendDescriptorType_t`: CUDNN_BACKEND_..._DESCRIPTOR."""

    CONVOLUTION = 1
    ENGINE = 2
    ENGINECFG = 3
    ENGINEHEUR = 4
    EXECUTION_PLAN = 5
    KNOB_CHOICE = 7
    OPERATION_CONVOLUTION_FORWARD = 10
    OPERATION_CONVOLUTION_BACKWARD_FILTER = 11
    OPERATION_CONVOLUTION_BACKWARD_DATA = 12
    OPERATIONGRAPH = 15
    TENSOR = 17
    DEVICEPROP = 38


class Kind(IntEnum):
    """`cudnnBackendAttributeType_t`: CUDNN_TYPE_..., the type of an attribute's value."""

    HANDLE = 0
    DATA_TYPE = 1
    INT64 = 3
    FLOAT = 4
    CONVOLUTION_MODE = 7
    HEUR_MODE = 8
    KNOB_TYPE = 9
    NUMERICAL_NOTE = 11
    BACKEND_DESCRIPTOR = 15
    INT32 = 23
    CHAR = 24


class Attribute(IntEnum):
    """`cudnnBackendAttributeName_t`: CUDNN_ATTR_..."""

    CONVOLUTION_COMP_TYPE = 100
    CONVOLUTION_CONV_MODE = 101
    CONVOLUTION_DILATIONS = 102
    CONVOLUTION_FILTER_STRIDES = 103
    CONVOLUTION_POST_PADDINGS = 104
    CONVOLUTION_PRE_PADDINGS = 105
    CONVOLUTION_SPATIAL_DIMS = 106
    ENGINEHEUR_MODE = 200
    ENGINEHEUR_OPERATION_GRAPH = 201
    ENGINEHEUR_RESULTS = 202
    ENGINEHEUR_DEVICEPROP = 204
    ENGINECFG_ENGINE = 300
    ENGINECFG_KNOB_CHOICES = 302
    EXECUTION_PLAN_HANDLE = 400
    EXECUTION_PLAN_ENGINE_CONFIG = 401
    EXECUTION_PLAN_WORKSPACE_SIZE = 402
    EXECUTION_PLAN_DEVICEPROP = 407
    KNOB_CHOICE_KNOB_TYPE = 600
    KNOB_CHOICE_KNOB_VALUE = 601
    OPERATIONGRAPH_HANDLE = 800
    OPERATIONGRAPH_OPS = 801
    TENSOR_BYTE_ALIGNMENT = 900
    TENSOR_DATA_TYPE = 901
    TENSOR_DIMENSIONS = 902
    TENSOR_STRIDES = 903
    TENSOR_UNIQUE_ID = 906
    ENGINE_GLOBAL_INDEX = 1301
    ENGINE_NUMERICAL_NOTE = 1303
    DEVICEPROP_DEVICE_ID = 2700
    DEVICEPROP_JSON_REPRESENTATION = 2702


# An operation's descriptor, and the first of its attributes: alpha, beta, the convolution, w, x and y follow
# each other (for "data" the last two are dx and dy, for "weight" w is dw).
CONVOLUTIONS = {
    "forward": (Descriptor.OPERATION_CONVOLUTION_FORWARD, 700),
    "data": (Descriptor.OPERATION_CONVOLUTION_BACKWARD_DATA, 706),
    "weight": (Descriptor.OPERATION_CONVOLUTION_BACKWARD_FILTER, 712),
}
