"""Networks of the serving scripts beside this file, made with onnx.helper: weights are random numbers, every first
dimension is free."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEADS = 12


class Network:
    """A graph under construction; methods add nodes and return their result's name. dtype: of weights and
    activations."""

    def __init__(self, dtype=np.float32):
        self.dtype = np.dtype(dtype)
        self.kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self._random = np.random.default_rng(0)

    def input(self, name, shape, kind=None):
        """Add an input and return its name."""
        self.inputs.append(helper.make_tensor_value_info(name, kind or self.kind, shape))
        return name

    def output(self, name, result, shape, kind=None):
        """Make a node's result an output."""
        self.nodes.append(helper.make_node("Identity", [result], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind or self.kind, shape))

    def constant(self, array):
        """Add an initializer and return its name."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weight(self, *shape):
        """Add an initializer of random numbers and return its name."""
        values = self._random.standard_normal(shape, np.float32) / math.sqrt(max(np.prod(shape[1:]), 1))
        return self.constant(values.astype(self.dtype))

    def node(self, op, *inputs, outputs=1, domain="", **attributes):
        """Add a node and return its result's name, or names."""
        names = [f"{op.lower()}{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(op, list(inputs), names, name=names[0], domain=domain, **attributes)
        )
        return names[0] if outputs == 1 else names

    def convolution(self, x, channels, out, size=3, stride=1, active=True, groups=1):
        """A convolution with its bias, and Relu."""
        y = self.node(
            "Conv",
            x,
            self.weight(out, channels // groups, size, size),
            self.weight(out),
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[size // 2] * 4,
            group=groups,
        )
        return self.node("Relu", y) if active else y

    def linear(self, x, width, out):
        """A matrix product and its bias."""
        return self.node("Add", self.node("MatMul", x, self.weight(width, out)), self.weight(out))

    def norm(self, x, width):
        """Layer normalization over the last dimension."""
        return self.node("LayerNormalization", x, self.weight(width), self.weight(width), axis=-1)

    def heads(self, x, width):
        """Batch, length, width -> batch, heads, length, width of a head."""
        shape = self.constant(np.array([0, -1, HEADS, width // HEADS]))
        return self.node("Transpose", self.node("Reshape", x, shape), perm=[0, 2, 1, 3])

    def attention(self, x, width, past=None):
        """Attention; past: names of keys and values before. Returns its result, all keys and all values."""
        query, key, value = (self.heads(self.linear(x, width, width), width) for _ in range(3))
        if past is not None:
            key, value = (self.node("Concat", *pair, axis=2) for pair in zip(past, (key, value), strict=True))
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=[0, 1, 3, 2]))
        scale = self.constant(np.array(math.sqrt(width // HEADS), self.dtype))
        weights = self.node("Softmax", self.node("Div", scores, scale), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, value), perm=[0, 2, 1, 3])
        joined = self.node("Reshape", mixed, self.constant(np.array([0, -1, width])))
        return self.linear(joined, width, width), key, value

    def block(self, x, width, past=None):
        """A transformer's layer. Returns its result, keys and values."""
        mixed, key, value = self.attention(self.norm(x, width), width, past)
        x = self.node("Add", x, mixed)
        inner = self.node("Relu", self.linear(self.norm(x, width), width, 4 * width))
        return self.node("Add", x, self.linear(inner, 4 * width, width)), key, value

    def save(self, name):
        """Write the model into a folder for temporary files and return its path."""
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        path = Path(tempfile.mkdtemp(prefix="serving-")) / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
        return str(path)


def resnet(blocks=(3, 4, 6, 3), dtype=np.float32, classes=1000):
    """ResNet with bottlenecks, by default that of 50 layers: "images" to "logits"."""
    net = Network(dtype)
    x = net.convolution(net.input("images", ["batch", 3, "height", "width"]), 3, 64, 7, 2)
    x, channels = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for stage, count in enumerate(blocks):
        for place in range(count):
            inner, out = 64 << stage, 256 << stage
            stride = 2 if stage and not place else 1
            y = net.convolution(x, channels, inner, 1)
            y = net.convolution(net.convolution(y, inner, inner, 3, stride), inner, out, 1, active=False)
            short = x if place else net.convolution(x, channels, out, 1, stride, active=False)
            x, channels = net.node("Relu", net.node("Add", y, short)), out
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    net.output("logits", net.linear(x, channels, classes), ["batch", classes])
    return net.save("resnet")


def encoder(layers=6, width=768, words=30522, dtype=np.float32):
    """A transformer over whole sentences: "tokens" to "hidden"."""
    net = Network(dtype)
    tokens = net.input("tokens", ["batch", "length"], TensorProto.INT64)
    x = net.norm(net.node("Gather", net.weight(words, width), tokens), width)
    for _ in range(layers):
        x, _, _ = net.block(x, width)
    net.output("hidden", net.norm(x, width), ["batch", "length", width])
    return net.save("encoder")


def decoder(layers=6, width=768, words=32000, dtype=np.float16):
    """A transformer with keys and values of the tokens before: "tokens", "past_key_0" ... to "logits",
    "present_key_0" ..."""
    net = Network(dtype)
    tokens = net.input("tokens", ["batch", "length"], TensorProto.INT64)
    x = net.node("Gather", net.weight(words, width), tokens)
    presents = []
    for layer in range(layers):
        shape = ["batch", HEADS, "past", width // HEADS]
        past = [net.input(f"past_{what}_{layer}", shape) for what in ("key", "value")]
        x, *present = net.block(x, width, past)
        presents += zip((f"present_{what}_{layer}" for what in ("key", "value")), present, strict=True)
    net.output("logits", net.linear(net.norm(x, width), width, words), ["batch", "length", words])
    for name, result in presents:
        net.output(name, result, ["batch", HEADS, "total", width // HEADS])
    return net.save("decoder")
