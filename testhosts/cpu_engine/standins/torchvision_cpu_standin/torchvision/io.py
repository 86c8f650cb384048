"""Stands in for torchvision.io."""


class ImageReadMode:
    """Only ever named."""


def decode_image(*args, **kwargs):
    raise NotImplementedError("torchvision.io.decode_image: the CPU engine has a stand-in only")


def decode_jpeg(*args, **kwargs):
    raise NotImplementedError("torchvision.io.decode_jpeg: the CPU engine has a stand-in only")
