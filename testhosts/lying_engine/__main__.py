"""python3 -m testhosts.lying_engine build: the layer of test hosts on which the stand-in for SGLang can be installed."""

from __future__ import annotations

import argparse
import os

from . import layer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m testhosts.lying_engine", description=layer.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the layer, unless it is there, and print its directory")
    parser.parse_args()
    os.umask(0o022)  # service users of the test hosts read the layer
    print(layer.build())


if __name__ == "__main__":
    main()
