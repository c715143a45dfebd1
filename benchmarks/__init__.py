"""What reproduces the figures that README and docs quote."""
