"""The protocol by which agents and other tools are compared: cold runs, controls, and one judgement of all results."""
