"""Learning from experience: tables of windows, and models of effects."""
