"""Ask a person to approve something by its name, and fail where nobody can answer.

Arguments:
  subject   what is to be approved, as a sentence
  id        its name; the answer must be this word
  given     an answer that was given beforehand; empty for none
  next      what to do where it was not approved

It changes nothing and needs no connection. In check mode nobody is asked.
"""

from __future__ import annotations

from ansible.errors import AnsiblePromptInterrupt, AnsiblePromptNoninteractive
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(
            {name: {"type": "str", "required": True} for name in ("subject", "id", "given", "next")}
        )
        if self._task.check_mode or asked["given"] == asked["id"]:
            return {"changed": False}
        if asked["given"]:
            return refused(f"approved is {asked['given']}, but this is {asked['id']}: {asked['subject']}", asked)
        try:
            answer = display.prompt_until(f"{asked['subject']}\nType {asked['id']} to approve, anything else ends the run: ")
        except AnsiblePromptNoninteractive:
            return refused(f"nobody can be asked, because this run has no terminal: {asked['subject']}", asked)
        except AnsiblePromptInterrupt:
            answer = b""
        if answer.decode(errors="replace").strip() == asked["id"]:
            return {"changed": False}
        return refused(f"not approved: {asked['subject']}", asked)


def refused(why, asked):
    return {"changed": False, "failed": True, "msg": f"{why}\n  next     {asked['next']}"}
