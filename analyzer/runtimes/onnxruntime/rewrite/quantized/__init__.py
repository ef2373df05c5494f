"""Quantized models: DequantizeLinear, an operator, QuantizeLinear, and what ONNX Runtime makes of them.

Before nodes are assigned to providers quantization is spread (`spreading`); on the CPU provider operators
between them become integer operators (`groups`), and what is left over goes (`remains`). What two nodes share
is in `pairs`.
"""
