"""python3 -m testhosts.cpu_engine {build,lock} [--release RELEASE …]"""

from __future__ import annotations

import argparse
import os
import sys

from . import layer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m testhosts.cpu_engine", description=layer.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the layer, unless it is there, and print its directory")
    build.add_argument("--release", nargs="+", choices=layer.releases(), default=layer.DEFAULT_RELEASES)
    lock = commands.add_parser("lock", help="refresh the hashes in the locks after a change of pins or stand-ins")
    lock.add_argument("--release", nargs="+", choices=layer.releases(), default=layer.releases())
    arguments = parser.parse_args()

    os.umask(0o022)  # service users of the test hosts read the layer
    try:
        if arguments.command == "build":
            print(layer.build(arguments.release))
        else:
            for release in arguments.release:
                layer.relock(release)
    except layer.DownloadFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
