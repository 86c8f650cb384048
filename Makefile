# What a person types here. Every target makes what it needs, so each works in a fresh clone.

PYTHON ?= python3
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export MOLECULE_COMMAND_BORDERS := false

.PHONY: help setup demo test lint unit molecule integration faults fleet bench scale mutation lock clean

help:  ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: .venv/ready  ## the locked Python environment, in .venv

demo: .venv/ready  ## one real systemd host on this machine, the real SGLang on its CPU, deployed and proved
	layer="$$(python3 -m testhosts.cpu_engine build)" && python3 -m testhosts up --layer "$$layer" demo1=10.213.77.11
	ansible-playbook deploy.yml -e window=2048

test: lint unit molecule integration  ## lint, unit, molecule and integration

lint: .venv/ready  ## style, and that the hosts' Python can run what is sent to it
	ruff check .
	ansible-lint
	python3 tests/lint_target_code.py library module_utils

unit: .venv/ready  ## the pure code and the plugins, seconds
	pytest tests/unit

molecule: .venv/ready  ## the roles on real systemd hosts, minutes
	molecule test --all

integration: .venv/ready  ## deployments and faults on real systemd hosts, minutes
	pytest tests/integration

faults: .venv/ready  ## every known fault on real hosts, and what is said of each; writes docs/faults.md
	python3 tests/faults/run.py --page docs/faults.md
	python3 tests/faults/interrupted.py
	python3 tests/faults/bad_input.py

fleet: .venv/ready  ## rollouts over eight hosts under load, and what can go wrong in them; 40 minutes
	pytest tests/fleet

bench: .venv/ready  ## what reading a journal and a GPU host costs, how soon a wait ends; prints ratios and seconds
	python3 bench/journal.py
	python3 bench/waiting.py
	python3 bench/gpu_facts.py
	python3 bench/plays.py

scale: .venv/ready  ## what 25 to 200 hosts cost the controller, played back from one real host (HOSTS="25 50")
	python3 bench/scale.py $(HOSTS)

mutation: .venv/ready .venv-mutation/ready  ## do the unit tests notice a changed line? (MODULES="plan verdict": of these)
	python3 tests/mutation/run.py $(MODULES)

lock:  ## write the locks of requirements/ anew
	for name in controller mutation; do \
	  uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links requirements/$$name.in -o requirements/$$name.txt || exit; \
	done

clean:  ## stop the hosts, remove what make made; their layers in /var/lib/testhosts stay
	-$(PYTHON) -m testhosts down --all
	rm -rf .venv .venv-mutation .cache reports .pytest_cache .ruff_cache .hypothesis .ansible
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/ready: requirements/controller.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(PYTHON) is Python %d.%d; 3.11 or later \
	is needed. Next: make PYTHON=/path/to/python3.12" % sys.version_info[:2])'
	rm -rf .venv
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --require-hashes --requirement $<
	@touch $@

.venv-mutation/ready: requirements/mutation.txt
	rm -rf .venv-mutation
	$(PYTHON) -m venv .venv-mutation
	.venv-mutation/bin/pip install --quiet --require-hashes --requirement $<
	@touch $@
