"""Command line: `python3 -m testhosts COMMAND`."""

import argparse
import json
import os
import sys

from . import __doc__ as ABOUT
from . import hosts, layers, tools
from .command import Problem
from .state import State


def say(line):
    print(f"testhosts: {line}", file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(
        prog="python3 -m testhosts",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="TESTHOSTS_DIR (default /var/lib/testhosts) holds layers, hosts and the key id_ed25519;\n"
        "TESTHOSTS_NETWORK (default 10.213.77.0/24) is the hosts' network, its first address the machine's.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="boot hosts and wait until all answer SSH")
    up.add_argument("hosts", nargs="+", metavar="NAME[=ADDRESS]")
    up.add_argument(
        "--layer",
        action="append",
        default=[],
        metavar="DIR",
        help="a directory whose content these hosts have; may be given again, the first hides later ones",
    )
    up.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for all hosts together (default 60)")

    down = commands.add_parser("down", help="remove hosts and all they left, also after a crash")
    which = down.add_mutually_exclusive_group(required=True)
    which.add_argument("hosts", nargs="*", default=[], metavar="NAME")
    which.add_argument("--all", action="store_true", help="all hosts of this TESTHOSTS_DIR")

    commands.add_parser("list", help="name, address and state of every host")

    execute = commands.add_parser("exec", help="run a command in a host, as root, without SSH")
    execute.add_argument("host", metavar="NAME")
    execute.add_argument("line", nargs=argparse.REMAINDER, metavar="CMD")

    inventory = commands.add_parser(
        "inventory", help="print an Ansible inventory (JSON, which is YAML) of the running hosts"
    )
    inventory.add_argument("hosts", nargs="*", metavar="NAME")

    commands.add_parser("doctor", help="install what the machine lacks, or say what to type")
    commands.add_parser("build", help="build the base layer ahead of the first host")
    return parser.parse_args()


def main(options, state):
    if options.command in ("up", "down", "exec", "build") and os.geteuid():
        tools.install(say)
        raise Problem(f"{options.command} needs root; type: sudo -E {sys.executable} -m testhosts {options.command} …")
    match options.command:
        case "up":
            for host, started in hosts.up(state, options.hosts, options.layer, options.timeout, say):
                print(f"{host.name}\t{host.address}\t{'started' if started else 'already running'}")
        case "down":
            for name in hosts.down(state, None if options.all else options.hosts):
                print(f"{name}\tremoved")
        case "list":
            here, alive = hosts.known(state), hosts.running(state)
            for name in hosts.names(state):
                address = here[name].address if name in here else "-"
                print(f"{name}\t{address}\t{'running' if name in alive else 'ended'}")
        case "exec":
            if not options.line:
                raise Problem(f"exec {options.host}: no command; an example: exec {options.host} systemctl --failed")
            hosts.execute(state, options.host, options.line)
        case "inventory":
            print(json.dumps(hosts.inventory(state, options.hosts), indent=2))
        case "doctor":
            tools.install(say)
            print("every program is here")
        case "build":
            tools.install(say)
            print(layers.lower(state, [], say))


if __name__ == "__main__":
    os.umask(0o022)  # what is made here becomes the hosts' own /, /etc, …
    try:
        main(arguments(), State.from_environment())
    except Problem as problem:
        sys.exit(f"testhosts: {problem}")
    except OSError as error:
        sys.exit(f"testhosts: {error.filename or 'system call'}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit("testhosts: interrupted; what was started is still there: python3 -m testhosts list")
