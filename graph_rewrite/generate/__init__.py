"""Where substitutions come from besides people: TASO's generator, and the rule files of other systems."""
