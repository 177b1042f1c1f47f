# Tangled from book/3-language-models/L6.1-tests.md
"""Tests of the reader of models. The oracle of the long ones is the library transformers."""

import json

import numpy as np
import pytest
import safetensors.numpy

import tinyllm.models
from tinyllm.models.gpt import GPT, GPTConfig, gpt2_arrays
from tinyllm.models.tokenizers import BPE
from tinyllm.num.pcg32 import PCG32

SIZES = {"vocab_size": 40, "n_positions": 12, "n_embd": 8, "n_head": 2, "n_layer": 2}
CONFIG = {"model_type": "gpt2", "activation_function": "gelu_new", **SIZES}


def written(folder, config=CONFIG, shards=1):
    """A folder with a drawn model; the model."""
    model = GPT(GPTConfig(40, 12, 8, 2, 2), PCG32(2)).eval()
    rng = PCG32(3)
    for parameter in model.parameters():
        parameter.data[...] += rng.normal(0.0, 0.3, parameter.shape)
    arrays = gpt2_arrays(model)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if shards == 1:
        safetensors.numpy.save_file(arrays, folder / "model.safetensors")
        return model
    places = {}
    for i in range(shards):
        part = dict(list(arrays.items())[i::shards])
        safetensors.numpy.save_file(part, folder / f"part-{i}.safetensors")
        places |= dict.fromkeys(part, f"part-{i}.safetensors")
    index = json.dumps({"weight_map": places})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    return model


IDS = np.arange(24).reshape(2, 12)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_is_read(tmp_path, shards):
    model = written(tmp_path, shards=shards)
    for path in (tmp_path, str(tmp_path)):
        loaded = tinyllm.models.load(path)
        assert not loaded.training
        assert loaded.tokenizer is None
        np.testing.assert_array_equal(loaded(IDS).data, model(IDS).data)
    BPE.train("a mask, a head", 5).save(tmp_path)
    tokenizer = tinyllm.models.load(tmp_path).tokenizer
    assert tokenizer.decode(tokenizer.encode("a head")) == "a head"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "llama"),
        ("model_type", None),
        ("activation_function", "relu"),
        ("tie_word_embeddings", False),
        ("scale_attn_by_inverse_layer_idx", True),
        ("scale_attn_weights", False),
        ("add_cross_attention", True),
        ("n_inner", 16),
        ("n_layer", 3),
        ("n_layer", 1),
        ("vocab_size", 41),
        ("n_head", 3),
        ("n_embd", "8"),
    ],
)
def test_other_settings_are_refused(tmp_path, key, value):
    written(tmp_path, {**CONFIG, key: value})
    with pytest.raises(ValueError, match="load: "):
        tinyllm.models.load(tmp_path)


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize("value", ["8", None, True, 8.0, -1, 0, 10**12])
def test_wrong_sizes_are_refused(tmp_path, key, value):
    written(tmp_path, {**CONFIG, key: value})
    with pytest.raises(ValueError, match="load: "):
        tinyllm.models.load(tmp_path)


def test_half_a_tokenizer(tmp_path):
    written(tmp_path)
    (tmp_path / "vocab.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"merges\.txt"):
        tinyllm.models.load(tmp_path)


def test_what_is_missing_or_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        tinyllm.models.load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        tinyllm.models.load(tmp_path)
    written(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    for cut in (0, 7, 100, len(whole) - 1):
        weights.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="load: "):
            tinyllm.models.load(tmp_path)
    weights.write_bytes(whole)
    for text in ("", "[]", "{", "{}", json.dumps({"model_type": "gpt2"})):
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match="load: "):
            tinyllm.models.load(tmp_path)


def test_shards_that_do_not_match(tmp_path):
    written(tmp_path, shards=2)
    index = tmp_path / "model.safetensors.index.json"
    places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    name = next(iter(places))
    for wrong in (
        {},
        {"weight_map": 3},
        {"weight_map": {**places, name: "../part-0.safetensors"}},
        {"weight_map": {**places, name: "part-1.safetensors"}},
        {"weight_map": {n: f for n, f in places.items() if n != name}},
    ):
        index.write_text(json.dumps(wrong), encoding="utf-8")
        with pytest.raises(ValueError, match="load: "):
            tinyllm.models.load(tmp_path)
    index.write_text(json.dumps({"weight_map": {**places, name: "none.safetensors"}}), "utf-8")
    with pytest.raises(FileNotFoundError):
        tinyllm.models.load(tmp_path)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_transformers_agree(tmp_path, dtype):
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 211, "n_positions": 33, "n_embd": 60, "n_head": 5, "n_layer": 3}
    config = transformers.GPT2Config(**sizes, initializer_range=0.2)
    theirs = transformers.GPT2LMHeadModel(config).eval().to(getattr(torch, dtype))
    theirs.save_pretrained(tmp_path)
    theirs = theirs.to(torch.float32)
    ours = tinyllm.models.load(tmp_path)
    rng = PCG32(1)
    for B, T in ((1, 1), (3, 7), (2, 33)):
        ids = rng.integers(0, 211, B * T).reshape(B, T)
        mask = np.arange(T) < np.array([T, *[max(1, T // 2)] * (B - 1)])[:, None]
        for model, to, tolerance in (
            (ours.astype(np.float32), theirs.float(), 1e-5),
            (ours.astype(np.float64), theirs.double(), 1e-10),
        ):
            for given in (None, mask):
                wanted = to(
                    torch.tensor(ids),
                    attention_mask=None if given is None else torch.tensor(given.astype(int)),
                ).logits.detach()
                there = slice(None) if given is None else given
                scale = float(abs(wanted).max())
                found = model(ids, given).data[there] / scale
                np.testing.assert_allclose(found, wanted.numpy()[there] / scale, atol=tolerance)
        ours = tinyllm.models.load(tmp_path)
    model, to = ours.astype(np.float64), theirs.double()
    ids = rng.integers(0, 211, 66).reshape(2, 33)
    model.loss(ids).backward()
    logits = to(torch.tensor(ids)).logits  # their own loss is computed in float32
    targets = torch.tensor(ids[:, 1:]).flatten()
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets).backward()
    gradients = GPT(model.config, PCG32(0)).astype(np.float64)
    for mine, source in zip(gradients.parameters(), model.parameters(), strict=True):
        mine.data[...] = source.grad
    wanted = {n.removeprefix("transformer."): p.grad.numpy() for n, p in to.named_parameters()}
    found = gpt2_arrays(gradients)
    assert set(found) == set(wanted)
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, wanted[name], atol=1e-9, err_msg=name)
