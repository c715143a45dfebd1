"""The machine that results belong to: its description, its cores, and how quiet it is."""
