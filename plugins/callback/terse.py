"""Ansible's default output, without the tables in task results: verdict_table prints them at the end."""

from __future__ import annotations

from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = """
name: terse
type: stdout
short_description: The default output without verdict tables in task results
description:
  - Prints what the default callback prints, but for the key C(verdict_table) of a result, which the callback
    P(verdict_table#callback) prints as a table at the end of the run.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as C(stdout_callback)
"""


class CallbackModule(Default):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "terse"

    def _dump_results(self, result, *args, **kwargs):
        return super()._dump_results({k: v for k, v in result.items() if k != "verdict_table"}, *args, **kwargs)
