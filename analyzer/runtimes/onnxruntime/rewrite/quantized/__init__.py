"""Quantized models: DequantizeLinear, an operator, QuantizeLinear, and what ONNX Runtime makes of them.

Before nodes are assigned to providers quantization is spread (`spreading`); on the CPU provider operators
between them become integer operators (`groups`), and the rest is removed (`remains`). Questions about two
nodes are in `pairs`.
"""
