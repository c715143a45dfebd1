"""The parameters of the architectures, free of PyTorch: a cached model is found without it."""
