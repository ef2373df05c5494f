"""Weights of four bits (MatMulNBits of com.microsoft), as language models are exported."""

import graphs
import numpy as np
import onnxruntime as ort
from onnx import TensorProto

WIDTH, LAYERS, BLOCK = 2048, 12, 32


class FourBits(graphs.Network):
    """Matrix products with weights of four bits and a scale for every 32 of them."""

    def linear(self, x, width, out):
        """A matrix product of packed weights."""
        packed = self.constant(np.random.randint(0, 256, (out, width // BLOCK, BLOCK // 2)).astype(np.uint8))
        scales = self.constant(np.full(out * (width // BLOCK), 0.01, self.dtype))
        return self.node(
            "MatMulNBits", x, packed, scales, domain="com.microsoft", K=width, N=out, bits=4, block_size=BLOCK
        )


def network():
    """Linear layers between a table of words and numbers for each word."""
    net = FourBits(np.float16)
    tokens = net.input("tokens", ["batch", "length"], TensorProto.INT64)
    x = net.node("Gather", net.weight(32000, WIDTH), tokens)
    for _ in range(LAYERS):
        inner = net.node("Sigmoid", net.linear(net.norm(x, WIDTH), WIDTH, 4 * WIDTH))
        x = net.node("Add", x, net.linear(inner, 4 * WIDTH, WIDTH))
    net.output("logits", net.linear(x, WIDTH, 32000), ["batch", "length", 32000])
    return net.save("quantized")


session = ort.InferenceSession(network(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
for batch, length in ((1, 1), (1, 128), (4, 256), (8, 512), (1, 1), (2, 64)):
    (logits,) = session.run(None, {"tokens": np.random.randint(0, 32000, (batch, length))})
    print(f"{batch} x {length}: {logits.shape}")
