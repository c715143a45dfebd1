"""Random valid models, whole optimisations of them, and a comparison that knows what rounding may change."""
