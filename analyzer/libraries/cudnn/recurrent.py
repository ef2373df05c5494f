"""What cuDNN's recurrent layers take: the reserve kept for the backward pass, the workspace of a call, the weights.

Sizes cuDNN reports (`cudnnGetRNNTempSpaceSizes`) as formulas read off 6,679 layers run through PyTorch on an H200
(cuDNN 9.19; LSTM, GRU, tanh and ReLU; 1 to 6 layers, one and two directions, three dtypes). e bytes an element,
A = steps * batch * hidden * directions * e (one result), S = batch * hidden * e * layers * directions (one state),
X = steps * batch * inputs * e (the input), M = bytes of the weight matrices, g = 5, 6, 1 (LSTM, GRU, plain):

1. **Reserve** = layers * g * A + (layers - 1) * A, each rounded up to 32 bytes, + 256; with dropout between layers one
   bit an element more, per layer and direction. Exact in all 6,679.
2. **Workspace, inference** = 8 MiB per layer and direction + M + c * S + b * A + X + 256 + 8 * batch:
   c, b in `_INFERENCE`.
3. **Workspace, training** = the larger of rule 2 (an LSTM with dropout: + A) and the same with `_TRAINING`'s c and a
   in place of b, 2 * X in place of X, and max(inputs, hidden) columns of a step (4 with two directions).
4. PyTorch asks for a persistent algorithm, which has figures of its own, up to the hidden sizes in `_SMALL` (float32
   and float16; forward and backward passes differ), and for some one-layer float16 networks on large GPUs.
5. Otherwise gates are computed for at most 256 steps at once.
6. **Weights** lie in one buffer, matrices and both biases, without padding.

Within 8 KiB: rule 2 in all, rule 3 in 90 % of the layers. The others have several layers in one direction without
the persistent algorithm, where cuDNN overlaps layers (plain networks' a is 2.5 to 3): 95 % of them within 14 %.
Not modelled: LSTM projections, packed sequences (bounded by their longest), other GPUs' limits.
Source of rule 4: `aten/src/ATen/native/cudnn/RNN.cpp` (`get_algo`, `use_rnn_persist_small_h`,
`use_persist_common_heuristics`, `use_persist_device_heuristics`).
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.libraries.cudnn.table import ELEMENT_BYTES

MODES = ("RNN_RELU", "RNN_TANH", "LSTM", "GRU")
_GATES = {"LSTM": 4, "GRU": 3, "RNN_RELU": 1, "RNN_TANH": 1}
_RESERVED = {"LSTM": 5, "GRU": 6, "RNN_RELU": 1, "RNN_TANH": 1}
_SMALL = {"LSTM": (192, 128), "GRU": (192, 128), "RNN": (384, 256)}  # forward, backward
_PER_LAYER_BYTES = 8 * 2**20
_STEPS_AT_ONCE = 256
_STATE_BYTES_PER_THREAD = 24
# (kind, directions, small) -> coefficients (c, b) and (c, a with one layer, a with more).
_INFERENCE = {
    ("LSTM", 1, False): (10, 5.0),
    ("LSTM", 2, False): (12, 7.0),
    ("GRU", 1, False): (5, 4.0),
    ("GRU", 2, False): (7, 6.0),
    ("RNN", 1, False): (3, 2.0),
    ("RNN", 2, False): (5, 4.0),
    ("LSTM", 1, True): (8, 21.0),
    ("LSTM", 2, True): (9, 15.0),
    ("GRU", 1, True): (4, 16.0),
    ("GRU", 2, True): (5, 12.0),
    ("RNN", 1, True): (4, 6.0),
    ("RNN", 2, True): (5, 6.0),
}
_TRAINING = {
    ("LSTM", 1, False): (11, 3.0, 3.0),
    ("LSTM", 2, False): (13, 3.0, 4.0),
    ("GRU", 1, False): (5, 3.0, 3.0),
    ("GRU", 2, False): (7, 3.0, 4.0),
    ("RNN", 1, False): (5, 3.0, 3.0),
    ("RNN", 2, False): (7, 3.0, 4.0),
    ("LSTM", 1, True): (12, 15.0, 16.0),
    ("LSTM", 2, True): (13, 9.0, 10.0),
    ("GRU", 1, True): (6, 17.0, 18.0),
    ("GRU", 2, True): (7, 10.0, 11.0),
    ("RNN", 1, True): (6, 12.0, 13.0),
    ("RNN", 2, True): (7, 7.5, 8.5),
}


@dataclass(frozen=True, slots=True)
class Recurrent:
    """One call of a recurrent layer. mode: one of `MODES`; steps * batch rows of `inputs` numbers.

    large_gpu: compute capability 8 or more (not 8.6) and at least 98 multiprocessors: more networks run persistent.
    persistent: whether a persistent algorithm was asked for; None: as PyTorch would choose.
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
    large_gpu: bool = True
    persistent: bool | None = None

    @property
    def _kind(self) -> str:
        return self.mode if self.mode in ("LSTM", "GRU") else "RNN"

    @property
    def _element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def _result_bytes(self) -> int:
        """A of the module docstring."""
        return self.steps * self.batch * self.hidden * self.directions * self._element_bytes

    @property
    def matrix_count(self) -> int:
        """Elements of the weight matrices."""
        first, later = self.inputs + self.hidden, self.directions * self.hidden + self.hidden
        columns = first + (self.layers - 1) * later
        return _GATES[self.mode] * self.hidden * self.directions * columns

    def reserve_bytes(self) -> int:
        """What is kept for the backward pass: results and gates of every layer, each rounded up, and dropout's bits.

        >>> Recurrent("LSTM", "float32", 256, 512, 2, 1, 64, 128, dropout=True).reserve_bytes()
        185073920
        """
        result = self._result_bytes
        between = self.layers - 1
        total = _up(self.layers * _RESERVED[self.mode] * result) + _up(between * result) + 256
        if self.dropout:
            bits = result // self._element_bytes
            total += between * self.directions * _up(-(-bits // 8))
        return total

    def inference_workspace_bytes(self, backward: bool = False) -> int:
        """Bytes of a call's workspace in inference, by the measured formula.

        backward: with the algorithm PyTorch picks for the backward pass.

        >>> Recurrent("LSTM", "float32", 256, 512, 2, 1, 64, 128).inference_workspace_bytes()
        126354176
        """
        state, per_result = _INFERENCE[self._kind, self.directions, self._persists(backward)]
        result = self._result_bytes
        gates = _GATES[self.mode] * result
        if self.steps > _STEPS_AT_ONCE and not self._persists(backward):
            gates = gates * _STEPS_AT_ONCE // self.steps
        beside_gates = per_result * result - _GATES[self.mode] * result
        return self._fixed_bytes(state) + gates + int(beside_gates) + self._input_bytes

    def training_workspace_bytes(self, backward: bool = False) -> int:
        """Bytes of a call's workspace in training: the larger of the formulas for the two passes."""
        state, one, more = _TRAINING[self._kind, self.directions, self._persists(backward)]
        step_bytes = self.steps * self.batch * self._element_bytes
        columns = max(self.inputs, self.hidden) * (1 if self.directions == 1 else 4) + 2 * self.inputs
        if self.mode == "GRU" and self.layers > 1 and self.directions == 1 and not self._persists(backward):
            widest = max(self.inputs, self.hidden) if self.dropout else self.inputs
            columns = self.inputs + 2 * widest
        own = self._fixed_bytes(state) + int((one if self.layers == 1 else more) * self._result_bytes)
        own += columns * step_bytes
        other = self.inference_workspace_bytes(backward)
        if self.dropout and self.layers > 1 and self.mode == "LSTM":
            other += self._result_bytes if self.directions == 1 else 0
        return max(own, other)

    @property
    def _input_bytes(self) -> int:
        return self.steps * self.batch * self.inputs * self._element_bytes

    def _fixed_bytes(self, states: int) -> int:
        both = self.layers * self.directions
        state = self.batch * self.hidden * self._element_bytes * both
        constant = 256 + _up(8 * self.batch)
        return both * _PER_LAYER_BYTES + self.matrix_count * self._element_bytes + states * state + constant

    def _persists(self, backward: bool) -> bool:
        """Whether PyTorch asks for a persistent algorithm: by hidden size, and for some one-layer float16 networks."""
        if self.persistent is not None:
            return self.persistent
        if self.hidden <= _SMALL[self._kind][backward] and self.dtype in ("float32", "float16"):
            return True
        single = self.layers == 1 and self.directions == 1 and self.hidden <= 1024
        if not (self.dtype == "float16" and self.large_gpu and single and self.mode != "GRU"):
            return False
        if self.hidden % 128 or self.inputs % 128 or self.batch % 8 or self.batch > 128:
            return False
        return self.mode == "LSTM" or self.batch < 96 or self.hidden < 896


def dropout_state_bytes(threads: int) -> int:
    """The random state of dropout on a GPU that holds so many threads at once: 24 bytes each (recorded on an H200)."""
    return _STATE_BYTES_PER_THREAD * threads


def _up(nbytes: int) -> int:
    return -(-nbytes // 32) * 32
