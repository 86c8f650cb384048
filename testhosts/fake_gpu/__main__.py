"""python3 -m testhosts.fake_gpu [--driver VERSION]: build the layer of a host with eight cards and print its directory."""

import argparse
import os

from ..state import State
from . import layer

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python3 -m testhosts.fake_gpu", description=layer.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--driver", metavar="VERSION", help="as if this driver were installed, 580.95.05 for one")
    os.umask(0o022)
    print(layer.build(State.from_environment(), parser.parse_args().driver))
