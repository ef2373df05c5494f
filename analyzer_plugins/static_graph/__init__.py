"""What PaddlePaddle's and TensorFlow's executors have in common: a graph of variables, each with one
buffer."""
