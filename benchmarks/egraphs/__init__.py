"""E-graphs: their growth, construction and extraction."""
