"""Delivery: check that an optimised model gives what the original gives, hand over the checked file, and open it as it
was measured."""
