"""Stands in for torchvision.transforms.functional."""

import enum


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def pil_to_tensor(*args, **kwargs):
    raise NotImplementedError("torchvision pil_to_tensor: the CPU engine has a stand-in only")
