"""Bundles: a folder with a model for all shapes and models for single shapes, which share one file of weights."""
