"""Functions that rules of several packages share: axes, slices, constants, operands, element-wise operators, and the
geometry of convolutions."""
