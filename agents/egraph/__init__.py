"""Agents on e-graphs: the parts that they share, and TENSAT."""
