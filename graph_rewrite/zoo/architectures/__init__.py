"""The architectures of the zoo in PyTorch, a module each; `layers` and `weights` hold what several share."""
