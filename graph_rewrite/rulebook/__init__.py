"""Descriptions of the rules: the catalogue, drawings, reasons for refusals, and the command ``rewritegym rules``."""
