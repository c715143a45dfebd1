"""Partially equivalent rewrites (PET, OSDI'21): programs that are equal to a part of a graph except in known boxes."""
