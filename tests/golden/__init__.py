"""Recorded states of all zoo models, and the test that compares with them."""
