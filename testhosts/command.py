"""Running other programs; what goes wrong comes out as a `Problem`, a sentence to read and act on."""

import shlex
import subprocess


class Problem(Exception):
    """What went wrong, where, and what to type next."""


def run(*command, env=None):
    """Run a program and return its standard output.

    Raises Problem with the command and the end of its standard error if it is missing or fails.
    """
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    except OSError as error:
        raise Problem(f"cannot run `{shlex.join(command)}`: {error.strerror}") from error
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-10:]) or "nothing on standard error"
        raise Problem(f"`{shlex.join(command)}` ended with {done.returncode}: {said}")
    return done.stdout
