"""What is left behind when an optimisation is killed, or asked to end, at any moment."""
