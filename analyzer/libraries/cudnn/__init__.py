"""What cuDNN takes for convolutions and recurrent layers."""
