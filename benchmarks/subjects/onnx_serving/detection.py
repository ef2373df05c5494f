"""Boxes from images of several sizes, of which non-maximum suppression keeps some."""

import graphs
import numpy as np
import onnxruntime as ort
from onnx import TensorProto

CLASSES = 20


def detector():
    """A few convolutions; each place of the last has a box and a number for each class."""
    net = graphs.Network()
    x, channels = net.input("images", ["batch", 3, "height", "width"]), 3
    for out in (32, 64, 128, 256):
        x = net.convolution(net.convolution(x, channels, out, stride=2), out, out)
        channels = out
    boxes = net.node("Transpose", net.convolution(x, channels, 4, 1, active=False), perm=[0, 2, 3, 1])
    boxes = net.node("Reshape", boxes, net.constant(np.array([0, -1, 4])))
    numbers = net.node("Sigmoid", net.convolution(x, channels, CLASSES, 1, active=False))
    numbers = net.node("Reshape", numbers, net.constant(np.array([0, CLASSES, -1])))
    limits = [np.array([50]), np.array([0.5], np.float32), np.array([0.6], np.float32)]
    kept = net.node("NonMaxSuppression", boxes, numbers, *map(net.constant, limits))
    net.output("kept", kept, ["count", 3], TensorProto.INT64)
    net.output("boxes", boxes, ["batch", "places", 4])
    return net.save("detector")


session = ort.InferenceSession(detector(), providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
for batch, side in ((1, 320), (4, 320), (1, 640), (4, 640), (2, 480), (1, 320)):
    kept, boxes = session.run(None, {"images": np.random.rand(batch, 3, side, side).astype(np.float32)})
    print(f"{batch} images of {side}: {boxes.shape}")
