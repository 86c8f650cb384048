"""Part of a stand-in for SGLang: how the values of options are taken."""

import argparse
import ast
import sys

from sglang.recording import since


def literal(text):
    """Numbers as numbers, anything else as it is."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if type(value) in (int, float) else text


class DeprecatedAliasStoreAction(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        if option_string != "--speculative-draft-window-size" and since(0, 5, 14):
            print(
                f"\033[1;33m'{option_string}' is deprecated and will be removed in a future release. "
                "Use '--speculative-draft-window-size' instead.\033[0m",
                file=sys.stderr,
                flush=True,
            )
        setattr(namespace, self.dest, values)
