"""cuDNN's memory for convolutions and recurrent layers."""
