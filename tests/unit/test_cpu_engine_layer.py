"""A layer is complete or not there; it is built once for what goes into it."""

import pytest

from testhosts.cpu_engine import layer


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TESTHOSTS_DIR", str(tmp_path))


@pytest.fixture
def downloads(monkeypatch):
    """The downloads that were asked for; each delivers one wheel."""
    asked = []

    def download(requirements, directory):
        asked.append(requirements)
        (directory / "sglang.whl").touch()

    monkeypatch.setattr(layer, "download", download)
    return asked


def test_a_layer_has_the_wheelhouse_with_its_locks_and_the_models(downloads):
    built = layer.build(["0.5.13"])
    assert (built / "srv/wheelhouse/sglang.whl").exists()
    assert (built / "srv/wheelhouse/0.5.13.txt").read_text() == layer.lock_of("0.5.13").read_text()
    assert (built / "srv/models/tiny-dflash/config.json").exists()


def test_the_second_build_takes_the_layer_of_the_first(downloads):
    assert layer.build(["0.5.13"]) == layer.build(["0.5.13"])
    assert len(downloads) == 1


def test_a_download_that_breaks_off_leaves_no_layer(monkeypatch):
    def break_off(requirements, directory):
        (directory / "half.whl").touch()
        raise layer.DownloadFailed("no route to host")

    monkeypatch.setattr(layer, "download", break_off)
    with pytest.raises(layer.DownloadFailed):
        layer.build(["0.5.13"])
    assert not layer.layer_directory(["0.5.13"]).exists()


def test_what_a_broken_download_left_is_not_in_the_next_layer(downloads, monkeypatch):
    leftover = layer.layer_directory(["0.5.13"]).with_suffix(".unfinished") / "srv/wheelhouse/half.whl"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    assert not (layer.build(["0.5.13"]) / "srv/wheelhouse/half.whl").exists()


def test_other_releases_are_another_layer():
    assert layer.layer_directory(["0.5.13"]) != layer.layer_directory(["0.5.13", "0.5.23"])
    assert layer.layer_directory(["0.5.23", "0.5.13"]) == layer.layer_directory(["0.5.13", "0.5.23"])


def test_an_unreachable_package_names_the_next_step(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(layer.DownloadFailed, match="PIP_EXTRA_INDEX_URL"):
        layer.download(["torch==2.13.0+cpu"], tmp_path)
