"""Stands in for torchvision.transforms."""

from . import functional
from .functional import InterpolationMode

__all__ = ["InterpolationMode", "functional"]
