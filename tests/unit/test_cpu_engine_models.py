"""The tiny models are files as SGLang's loaders read them, the same on every machine."""

import json
import struct

import pytest

from testhosts.cpu_engine import models


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    models.write_models(directory)
    return directory


def config(model):
    return json.loads((model / "config.json").read_text())


def tensors(model):
    content = (model / "model.safetensors").read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    del header["__metadata__"]
    return header, content[8 + length :]


@pytest.mark.parametrize("model", ["tiny-qwen3", "tiny-dflash"])
def test_the_tensors_fill_the_file_without_gap_or_overlap(written, model):
    header, data = tensors(written / model)
    end = 0
    for tensor in header.values():
        rows, columns = (tensor["shape"] + [1])[:2]
        assert tensor["data_offsets"] == [end, end + 2 * rows * columns]  # bfloat16: two bytes each
        end = tensor["data_offsets"][1]
    assert end == len(data)


def test_a_norm_is_ones_in_bfloat16(written):
    header, data = tensors(written / "tiny-qwen3")
    begin, end = header["model.norm.weight"]["data_offsets"]
    assert data[begin:end] == b"\x80\x3f" * models.HIDDEN


def test_writing_twice_gives_the_same_bytes(written, tmp_path):
    models.write_models(tmp_path)
    for path in written.rglob("*.*"):
        assert (tmp_path / path.relative_to(written)).read_bytes() == path.read_bytes()


def test_every_byte_of_a_text_has_its_own_token(written):
    vocabulary = json.loads((written / "tiny-qwen3/tokenizer.json").read_text())["model"]["vocab"]
    assert len(vocabulary) == config(written / "tiny-qwen3")["vocab_size"] == 4 + 256
    assert vocabulary["Ġ"] == 4 + ord(" ")  # a space, as byte-level BPE writes it
    assert vocabulary["A"] == 4 + ord("A")


def test_the_declared_window_of_2048_fits_into_the_context(written):
    assert config(written / "tiny-qwen3")["max_position_embeddings"] > 2048


def test_the_drafter_fits_its_target(written):
    target, drafter = config(written / "tiny-qwen3"), config(written / "tiny-dflash")
    captured = drafter["dflash_config"]["target_layer_ids"]
    assert drafter["num_target_layers"] == target["num_hidden_layers"]
    # A layer is captured as the input of the next one, so the last can't be (found by running sglang 0.5.23).
    assert max(captured) < target["num_hidden_layers"] - 1
    assert tensors(written / "tiny-dflash")[0]["fc.weight"]["shape"] == [
        target["hidden_size"],
        len(captured) * target["hidden_size"],
    ]
