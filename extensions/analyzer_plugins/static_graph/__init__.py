"""Common parts of PaddlePaddle's and TensorFlow's executors: a graph of variables, each with one buffer."""
