"""python3 -m testhosts.nvidia_repo: build the layer of the repository, unless it is there, and print its directory."""

import os

from ..state import State
from . import layer

if __name__ == "__main__":
    os.umask(0o022)  # the host's web server and apt's own user read it
    print(layer.build(State.from_environment()))
