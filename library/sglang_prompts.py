#!/usr/bin/python
"""Asks a running engine fixed prompts, and scores its answers against recorded ones."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_prompts
short_description: Ask fixed prompts and score the answers
description:
  - Asks each prompt once, without sampling, and compares the words of the answers with those that were recorded. It fails
    where their mean is below O(floor). A wrong kernel, a broken exchange between GPUs or a wrong drafter show here, and in
    no log line.
  - A prompt without an answer is asked and not scored; RV(answers) is what to record.
options:
  plan:
    description: What C(sglang_plan) returned as RV(sglang_plan#module:plan).
    type: dict
    required: true
  prompts:
    description: The prompts.
    type: list
    elements: dict
    required: true
    suboptions:
      prompt:
        description: What is asked.
        type: str
        required: true
      answer:
        description: What a good engine answered.
        type: str
      tokens:
        description: Length of the answer.
        type: int
        default: 64
  floor:
    description: The mean score that must be reached, 0 to 1. Unrelated texts have about 0.1 in common.
    type: float
    default: 0.5
  key_file:
    description: File on the host with the API key, as O(sglang_plan#module:key_file).
    type: path
  timeout:
    description: Seconds for one answer.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    details: Nothing is asked.
  diff_mode:
    support: none
author: The contributors
"""

EXAMPLES = r"""
- name: Ask
  sglang_prompts:
    plan: "{{ planned.plan }}"
    prompts:
      - prompt: The capital of France is
        answer: " Paris. It is known for"
"""

RETURN = r"""
answers:
  description: The prompts with the answers that were given now, fit for O(prompts).
  type: list
  elements: dict
  returned: success, outside check mode
score:
  description: The mean score of those that have a recorded answer.
  type: float
  returned: where one has
proved:
  description: The failure is that of a start that was proved before.
  type: bool
  returned: failure
"""

from ansible.module_utils import sglang_answers
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.sglang_host import CannotRead, Host
from ansible.module_utils.sglang_proof import key_file
from ansible.module_utils.sglang_proof.plan import Plan

PROMPT = {
    "prompt": {"type": "str", "required": True},
    "answer": {"type": "str"},
    "tokens": {"type": "int", "default": 64},
}
ARGUMENTS = {
    "plan": {"type": "dict", "required": True},
    "prompts": {"type": "list", "elements": "dict", "required": True, "options": PROMPT},
    "floor": {"type": "float", "default": 0.5},
    "key_file": {"type": "path", "no_log": False},
    "timeout": {"type": "int", "default": 300},
}


def main():
    module = AnsibleModule(ARGUMENTS, supports_check_mode=True)
    if module.check_mode:
        module.exit_json(changed=False)
    params = module.params
    try:
        plan = Plan.from_dict(params["plan"])
        key = key_file.read(params["key_file"]) if params["key_file"] else None
        answers = [{**asked, "answer": answer(plan, key, asked, params["timeout"])} for asked in params["prompts"]]
    except (CannotRead, ValueError) as error:
        module.fail_json(msg=f"prompts: {error}", proved=True)
    scored = [
        (was["prompt"], was["answer"], now["answer"], sglang_answers.score(now["answer"], was["answer"]))
        for was, now in zip(params["prompts"], answers)
        if was["answer"] is not None
    ]
    result = {"score": sum(entry[3] for entry in scored) / len(scored)} if scored else {}
    broken = sglang_answers.judge(scored, params["floor"]) if scored else None
    if broken:
        module.fail_json(msg=broken, proved=True, **result)
    module.exit_json(changed=False, answers=answers, **result)


def answer(plan, key, asked, timeout):
    """The text that the engine generates. Raises CannotRead."""
    host = Host()
    url = f"http://{host.reachable(plan.host)}:{plan.port}/generate"
    request = {"text": asked["prompt"], "sampling_params": {"max_new_tokens": asked["tokens"], "temperature": 0}}
    said = host.get(url, key, request, timeout)
    if not isinstance(said, dict) or not isinstance(said.get("text"), str):
        raise CannotRead(f"{url} answered without a text")
    return said["text"]


if __name__ == "__main__":
    main()
