"""Buffers of cuDNN's recurrent layers: the weights, the reserve kept for the backward pass, the workspace of
a call.

Sizes cuDNN gives (`cudnnGetRNNWeightSpaceSize`, `cudnnGetRNNTempSpaceSizes`), as sums of parts, each rounded
up to 32 bytes. With s = layers * batch * hidden, a = rows * hidden numbers of one direction (rows: steps *
batch, or of packed sequences the sum of their lengths), d directions, g = 4, 3, 1 gates (LSTM, GRU, plain):

1. **Weights**: matrices of all layers, then two biases of every layer, without padding.
2. **Reserve**: the gates of all layers (g * a; GRU: 6 * a), of an LSTM its cells, the results between layers,
   with a projection those before and behind it; with dropout between layers one bit an element and direction;
   256 bytes.
3. **Forward**: 8 MiB a layer and direction, 256 bytes, the matrices, states, and the gates of all steps, or
   of 256 at once in one direction.
4. **Backward**: the same without gates; the wider of input and result; the results of a layer. Layers in one
   direction overlap: each works on some steps at once, the more the fewer sequences there are, and what lies
   between two of them is as long as that.
5. Sequences that are not packed are packed first: 8 bytes each, copies of input, result and states, twice in
   training.
6. Training takes the larger of forward (dropout in one direction: and one result) and backward.
7. **Persistent** kernels, for those who ask for them, take their gates four times more. There are none for
   bfloat16.

Measured: 113,496 layers asked about on an H100 (cuDNN 9.19), all of them to the byte: every mode, type and
direction, 1 to 6 layers, packed or not, with projections and dropout
(4,000 in `tests/data/h100/recurrent_sizes.json.gz`); 1,200 run on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, up

MODES = ("RNN_RELU", "RNN_TANH", "LSTM", "GRU")
Algorithm = Literal["standard", "static", "small"]
ALGORITHMS: tuple[Algorithm | None, ...] = ("standard", "static", None, "small")  # cudnnRNNAlgo_t
_GATES = {"LSTM": 4, "GRU": 3, "RNN_RELU": 1, "RNN_TANH": 1}
_PER_LAYER_BYTES = 8 * 2**20
_FIXED_BYTES, _ALIGNMENT = 256, 32
_STEPS_AT_ONCE = 256
_BYTES_PER_SEQUENCE = 8
_PERSISTENT_COLUMNS = 2432  # of hidden size, in the backward pass of "static"
_LONG_STEPS, _LONG_STEPS_AT_ONCE = 128, 8
# Layers that overlap work on so many steps at once, with so many sequences at most.
_OVERLAPPING = ((1, 32), (8, 16), (16, 8), (96, 4))
_MANY_SEQUENCES_AT_ONCE = 2
_STATE_BYTES_PER_THREAD = 24


@dataclass(frozen=True, slots=True)
class Recurrent:
    """One call of a recurrent layer. mode: one of `MODES`; `inputs`: features of a step; `steps`: of the
    longest of `batch` sequences.

    projection: what an LSTM's results are projected to; 0: nothing. rows: the sum of the lengths of packed
    sequences; None: not packed.
    algorithm: what the program asks cuDNN for.
    """

    mode: str
    dtype: str
    inputs: int
    hidden: int
    layers: int
    directions: int
    batch: int
    steps: int
    dropout: bool = False
    projection: int = 0
    rows: int | None = None
    algorithm: Algorithm = "standard"

    @property
    def weight_count(self) -> int:
        """Elements of the weights' buffer."""
        return self._matrix_count + 2 * self._gates * self.hidden * self.layers * self.directions

    def reserve_bytes(self) -> int:
        """Return the bytes of the reserve space kept for the backward pass.

        >>> Recurrent("LSTM", "float32", 256, 512, 2, 1, 64, 128, dropout=True).reserve_bytes()
        185073920
        """
        gates = 6 if self.mode == "GRU" else self._gates
        result = self.directions * self._rows * self.hidden
        total = _FIXED_BYTES + self._up(self.layers * gates * result, (self.layers - 1) * result)
        if self.mode == "LSTM":
            total += self._up(self.layers * result)
        if self.projection:
            projected = self.layers * self.directions * self._rows * self.projection
            total += self._up(self.layers * result, projected)
        if self.dropout:
            elements = self.directions * self.steps * self.batch * self._width
            total += (self.layers - 1) * self.directions * up(-(-elements // 8), _ALIGNMENT)
        return total

    def inference_workspace_bytes(self) -> int:
        """Return the bytes of a call's workspace in inference.

        >>> Recurrent("LSTM", "float32", 256, 512, 2, 1, 64, 128).inference_workspace_bytes()
        126354176
        """
        return self._forward_bytes + self._packing_bytes(1)

    def training_workspace_bytes(self) -> int:
        """Return the bytes of a call's workspace in training, forward or backward."""
        forward = self._forward_bytes + self._packing_bytes(1)
        if self.dropout and self.directions == 1:
            forward += self._up(self._rows * self.hidden)
        return max(forward, self._backward_bytes + self._packing_bytes(2))

    @property
    def _forward_bytes(self) -> int:
        """Bytes of the forward workspace."""
        state, result, up = self._state, self._rows * self.hidden, self._up
        both, gates = self.directions == 2, self._gates
        total = self._weight_bytes + up(2 * state if self._persists else gates * self.directions * state)
        if self.mode == "LSTM":
            total += up(2 * self.directions * state)
        if both:
            total += up(4 * state, 2 * gates * result, 4 * result)
        elif self._persists:
            total += up(gates * result)
        else:
            total += up(gates * min(self._rows, _STEPS_AT_ONCE * self.batch) * self.hidden)
        if self._persists:
            total += up(4 * gates * result)
        return total

    @property
    def _backward_bytes(self) -> int:
        """Bytes of the backward workspace."""
        state, result, up = self._state, self._rows * self.hidden, self._up
        both, persists = self.directions == 2, self._persists
        total = self._weight_bytes + up(2 * state if persists or both else state)
        if self.mode == "LSTM":
            total += up(2 * self.directions * state)
        total += up((4 if both else 1) * self._rows * max(self.inputs, self.hidden))
        if both:
            total += up(4 * state) + up((2 if self.layers == 1 else 4) * result)
        elif persists or self.layers == 1:
            total += up((1 if self.layers == 1 else 2) * result)
        else:
            total += up(min(self._rows, self._overlapping_steps * self.batch) * self.hidden)
        if persists:
            total += up((6 if self.mode == "GRU" else self._gates) * result)
            if self.algorithm == "static":
                total += max(up(8 * result), up((self.batch + _PERSISTENT_COLUMNS) * self.hidden))
            else:
                total += up(8 * result)
        return total

    @property
    def _weight_bytes(self) -> int:
        total = _FIXED_BYTES + self.layers * self.directions * _PER_LAYER_BYTES + self._up(self._matrix_count)
        if self.projection:
            total += self._up(self.directions * self._rows * self.hidden)
        return total

    def _packing_bytes(self, times: int) -> int:
        """Return the bytes for packing sequences that are not packed. times: copies of them."""
        if self.rows is not None:
            return 0
        both = self.layers * self.directions * self.batch
        copies = self._up(self._rows * self.inputs, self.directions * self._rows * self._width)
        copies += 2 * self._up(both * self._width)
        if self.mode == "LSTM":
            copies += 2 * self._up(both * self.hidden)
        return up(_BYTES_PER_SEQUENCE * self.batch, _ALIGNMENT) + times * copies

    @property
    def _overlapping_steps(self) -> int:
        """Number of time steps that overlapping layers hold at once."""
        at_once = next((steps for most, steps in _OVERLAPPING if self.batch <= most), _MANY_SEQUENCES_AT_ONCE)
        if self.steps >= _LONG_STEPS:
            at_once = max(at_once, _LONG_STEPS_AT_ONCE)
        return min(self.steps, self.layers * at_once + max(8, at_once))

    @property
    def _gates(self) -> int:
        return _GATES[self.mode]

    @property
    def _width(self) -> int:
        """Numbers of one direction's result."""
        return self.projection or self.hidden

    @property
    def _rows(self) -> int:
        return self.steps * self.batch if self.rows is None else self.rows

    @property
    def _state(self) -> int:
        """Numbers of all layers' states in one direction."""
        return self.layers * self.batch * self.hidden

    @property
    def _persists(self) -> bool:
        return self.algorithm != "standard" and self.dtype != "bfloat16"

    @property
    def _matrix_count(self) -> int:
        columns = self.inputs + self._width + (self.layers - 1) * (self.directions + 1) * self._width
        count = self._gates * self.hidden * self.directions * columns
        return count + self.layers * self.directions * self.projection * self.hidden

    def _up(self, *counts: int) -> int:
        """Return the bytes of as many numbers, each count's aligned."""
        return sum(up(count * ELEMENT_BYTES[self.dtype], _ALIGNMENT) for count in counts)


def dropout_state_bytes(threads: int) -> int:
    """Return the bytes of dropout's random state: 24 for each resident thread (recorded, H200)."""
    return _STATE_BYTES_PER_THREAD * threads
