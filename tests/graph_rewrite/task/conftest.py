"""Tiny models: the fixtures that the environments are tested with."""

from tests.envs.conftest import make_env, relu, tower, tower_env

__all__ = ["make_env", "relu", "tower", "tower_env"]
