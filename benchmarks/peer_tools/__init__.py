"""Other tools that say how much memory a model takes, asked about the cases this project was measured on."""
