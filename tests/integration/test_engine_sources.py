"""Where an engine can be installed from: a git commit, a package index, an environment that is there.

The engine here is a stand-in for SGLang: a package of its name with one option, so that an installation takes a second.
The wheelhouse is what every deployment of these tests installs the real SGLang from.
"""

from __future__ import annotations

import json

import pytest
from deployment import ROOT, Deployment, hosts

PLAYBOOK = """
- name: Install
  hosts: sglang
  gather_facts: false
  roles:
    - role: sglang_engine
"""

REPOSITORY = r"""
mkdir -p /srv/engine/python/sglang/srt && cd /srv/engine/python
cat > pyproject.toml <<'END'
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
END
cat > backend.py <<'END'
import os, zipfile
NAME = "sglang-0.5.99"
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = NAME + "-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.write("sglang/__init__.py")
        wheel.write("sglang/srt/server_args.py")
        info = NAME + ".dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.99\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    return name
END
echo '# stands in for SGLang' > sglang/__init__.py
echo 'parser.add_argument("--model-path")' > sglang/srt/server_args.py
cd .. && git init --quiet && git add . && git -c user.name=t -c user.email=t@t commit --quiet --message one
git rev-parse HEAD
mkdir -p /srv/index/sglang && python3 -m venv /tmp/pip
/tmp/pip/bin/pip wheel --quiet --no-index --wheel-dir /srv/index/sglang ./python >&2
echo '<a href="sglang-0.5.99-py3-none-any.whl">sglang-0.5.99-py3-none-any.whl</a>' > /srv/index/sglang/index.html
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    hosts("up", "sources=10.213.77.32")
    directory = tmp_path_factory.mktemp("sources")
    (directory / "install.yml").write_text(PLAYBOOK)
    (directory / "inventory.yml").write_text("sglang: {hosts: {sources: {ansible_host: 10.213.77.32}}}\n")
    (directory / "group_vars").mkdir()
    demo = ROOT / "inventories/demo/group_vars/all/ssh.yml"
    (directory / "group_vars" / "all.yml").write_text(demo.read_text())
    host = Deployment("sources")
    host.commit = host.shell(REPOSITORY).strip()
    host.install = lambda **variables: host.playbook(
        directory / "install.yml",
        "-e",
        json.dumps({f"sglang_engine_{name}": value for name, value in variables.items()}),
        inventory=directory / "inventory.yml",
    )
    yield host
    hosts("down", "sources")


def test_a_commit_is_built_and_a_second_run_changes_nothing(host):
    commit = {"version": "0.5.99", "source": "git", "git_url": "file:///srv/engine", "git_ref": host.commit}
    assert host.proves(host.install(**commit)).changed > 0
    assert host.shell("/opt/sglang/0.5.99/bin/python -c 'import sglang; print(sglang.__file__)'").startswith(
        "/opt/sglang/0.5.99"
    )
    assert host.proves(host.install(**commit)).changed == 0


def test_a_branch_is_refused(host):
    run = host.install(version="0.5.99", source="git", git_url="file:///srv/engine", git_ref="main")
    assert run.status == 2
    assert "sglang_engine_git_ref: declared 'main'" in run.said and "the full hash of a commit" in run.said

    run = host.install(version="0.5.99", source="git", git_url="file:///srv/engine", git_ref="0" * 40)
    assert run.status == 2
    assert "the placeholder of the example inventory" in run.said


def test_an_index_of_ones_own(host):
    index = ["--index-url", "file:///srv/index"]
    host.proves(host.install(version="0.5.99", source="index", root="/opt/other", pip_args=index))
    assert host.shell("ls -d /opt/other/0.5.99").strip() == "/opt/other/0.5.99"


def test_an_environment_that_is_there_is_used_and_not_touched(host):
    run = host.proves(host.install(version="0.5.99", source="venv"))
    assert run.changed == 0


def test_another_release_than_the_declared_one_is_refused(host):
    run = host.install(version="0.5.98", source="venv", venv="/opt/sglang/0.5.99")
    assert run.status == 2
    assert "declared 0.5.98, but /opt/sglang/0.5.99 holds SGLang 0.5.99" in run.said


def test_an_installation_that_did_not_end_is_done_again(host):
    host.shell("cd /opt/sglang/0.5.99; rm .installed.json; cd lib/python3*/site-packages; rm -r sglang/srt pip*")
    run = host.install(version="0.5.99", source="git", git_url="file:///srv/engine", git_ref=host.commit)
    assert run.status == 0, run.output
    assert host.shell("ls /opt/sglang/0.5.99/lib/python3*/site-packages/sglang/srt/server_args.py")
