"""TASO's generator of substitutions, and the coverage of rule files of other systems."""
