"""The graph every target becomes: operators, the storages they read and write, and what happens when."""

from analyzer.graph.communicator import Communicator
from analyzer.graph.dtype import dtype_bits, dtype_bytes, nbytes_of
from analyzer.graph.model import (
    Argument,
    Birth,
    Category,
    Death,
    Graph,
    GraphError,
    LeafOutput,
    Mark,
    Moment,
    Operator,
    Phase,
    Run,
    Storage,
    StreamUse,
    StreamWait,
    TensorMeta,
    contiguous_strides,
    lies_channels_last,
    storages_in,
)
from analyzer.graph.view import to_networkx, view_of

__all__ = [
    "Argument",
    "Birth",
    "Category",
    "Communicator",
    "Death",
    "Graph",
    "GraphError",
    "LeafOutput",
    "Mark",
    "Moment",
    "Operator",
    "Phase",
    "Run",
    "Storage",
    "StreamUse",
    "StreamWait",
    "TensorMeta",
    "contiguous_strides",
    "dtype_bits",
    "dtype_bytes",
    "lies_channels_last",
    "nbytes_of",
    "storages_in",
    "to_networkx",
    "view_of",
]
