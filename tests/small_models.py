"""Smallest variants of the zoo's models that keep every kind of block."""

SMALL: dict[str, dict[str, int]] = {
    "bert": {"layers": 2, "hidden": 32, "heads": 2, "seq_len": 16, "vocab": 100, "positions": 32},
    "bert-tiny": {"vocab": 1000},
    "vit": {"image_size": 32, "patch": 8, "layers": 2, "hidden": 32, "heads": 2, "classes": 10},
    "dalle": {"layers": 2, "hidden": 32, "heads": 2, "seq_len": 16, "vocab": 100, "positions": 32},
    "transformer-transducer": {
        "layers": 2, "label_layers": 1, "hidden": 32, "heads": 2, "seq_len": 16, "labels": 8, "vocab": 50,
    },
    "nasrnn": {"hidden": 32, "steps": 2},
    "squeezenet": {"image_size": 64, "classes": 10},
    "mobilenet-v2": {"image_size": 64, "repeats": 2, "width_percent": 25, "classes": 10},
    "resnet18": {"image_size": 64, "width": 16, "stage2": 1, "stage3": 1, "stage4": 1, "classes": 10},
    "resnet50": {
        "image_size": 32, "width_per_group": 8, "stage1": 1, "stage2": 2, "stage3": 1, "stage4": 1, "classes": 10,
    },
    "resnext50": {"image_size": 64, "classes": 10, "stage1": 1, "stage2": 2, "stage3": 1, "stage4": 1},
    "inception-v3": {"image_size": 107, "grid35": 1, "grid17": 1, "grid8": 1, "width_percent": 12, "classes": 10},
    "nasnet-a": {"image_size": 71, "stages": 2, "cells": 1, "filters": 192, "stem": 8, "classes": 10},
    "vgg19": {"image_size": 64, "width": 8, "hidden": 64, "classes": 10},
    "csrnet": {"image_size": 64, "width": 8},
    "resnet3d18": {"image_size": 32, "frames": 4, "width": 8, "stage2": 1, "stage3": 1, "stage4": 1, "classes": 10},
}  # fmt: skip
"""Parameters by model of the zoo."""
