"""The file with the API key: one entry, for the engine and for us the same."""

import pytest
from ansible.module_utils.sglang_proof import key_file, plan
from stage import PYTHON, engine


def written(directory, text, mode=0o640, name="key.yaml"):
    path = directory / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("text", ['api-key: "sk-1.a_b~c+/="\n', "# rotated in May\n\napi-key: 'sk-1.a_b~c+/='"])
def test_the_key_is_read(tmp_path, text):
    assert key_file.read(written(tmp_path, text)) == "sk-1.a_b~c+/="


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sk-1\n",
        "api-key: 12e5\n",  # YAML makes a number of it
        'api-key: ""\n',
        'api-key: "-x"\n',  # argparse would take it for an option
        'api-key: "a b"\n',
        'api-key: "sk-1"\ncontext-length: 100\n',
        'admin-api-key: "sk-1"\n',
        'api-key: "sk-\\u0031"\n',
    ],
)
def test_what_the_engine_could_read_otherwise_is_refused_without_telling_it(tmp_path, text):
    with pytest.raises(ValueError, match='must hold one line, api-key: "…", and nothing else') as refused:
        key_file.read(written(tmp_path, text))
    assert "sk-1" not in str(refused.value)


def test_a_key_that_all_users_can_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match="chmod o= "):
        key_file.read(written(tmp_path, 'api-key: "sk-1"', mode=0o644))


def test_a_file_that_is_not_there_or_that_the_engine_does_not_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        key_file.read(str(tmp_path / "none.yaml"))
    with pytest.raises(ValueError, match=r"must end in \.yaml"):
        key_file.read(written(tmp_path, 'api-key: "sk-1"', name="key"))


def test_the_engine_gets_the_file_and_never_the_key():
    declaration = plan.declared({"model": "/srv/models/x"}, "upstream", {}, "0.5.13")
    made = plan.make("k26", PYTHON, declaration, engine(), key_file="/etc/sglang/k26.yaml")
    assert made.argv[-2:] == ("--config", "/etc/sglang/k26.yaml")
    for extra in (["--api-key", "sk-1"], ["--admin-api-key=sk-1"]):
        with pytest.raises(plan.Refused, match="every user of the host can read a command line") as refused:
            plan.make("k26", PYTHON, declaration, engine(), extra_args=extra)
        assert "sk-1" not in str(refused.value)
