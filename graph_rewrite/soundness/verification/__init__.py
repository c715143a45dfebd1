"""The verifier of rules and its command line."""
