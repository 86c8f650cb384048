"""Stands in for torchvision: the few names that SGLang and transformers import for images, which never come."""
