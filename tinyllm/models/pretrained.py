# Tangled from book/3-language-models/L6.1-gpt.md
"""Models from the folders in which Hugging Face's library keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from tinyllm.checkpoint import read_safetensors
from tinyllm.models import tokenizer_files
from tinyllm.models.gpt import GPT, GPTConfig, load_gpt2_arrays

__all__ = ["load"]

Array: TypeAlias = NDArray[Any]


def load(path: str | Path) -> GPT:
    """The model in a folder, in evaluation mode, float32: token ids [B, T] -> logits [B, T, V].

    Read are config.json and model.safetensors or its shards. `.tokenizer` is the folder's, or None.
    FileNotFoundError for a missing file; ValueError for an architecture or setting that is not known,
    and for missing, unknown or misshapen tensors; CheckpointError, a ValueError, for a damaged file.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"load: {folder} is no folder with config.json and weights")
    config = _json(folder / "config.json")
    kind = config.get("model_type")
    if kind != "gpt2":
        raise ValueError(f"load: {folder}: knows the model_type gpt2, got {kind}")
    try:
        arrays = _weights(folder)
        model = GPT(_gpt2(config, arrays))
        load_gpt2_arrays(model, arrays)
    except (TypeError, ValueError) as wrong:
        raise ValueError(f"load: {folder}: {wrong}") from None
    try:
        model.tokenizer = tokenizer_files.load(folder)
    except FileNotFoundError:
        model.tokenizer = None
    return model.eval()


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as wrong:
        raise ValueError(f"load: {path} is no JSON: {wrong}") from None
    if not isinstance(content, dict):
        raise ValueError(f"load: {path}: wants an object, got {type(content).__name__}")
    return content


_GPT2 = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "tie_word_embeddings": (True,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}  # setting -> what may be said of it; the first is what is meant when nothing is


def _gpt2(config: Mapping[str, Any], arrays: Mapping[str, Array]) -> GPTConfig:
    """The sizes, compared with the arrays': a wrong number must not become a huge model."""
    for key, known in _GPT2.items():
        if config.get(key, known[0]) not in known:
            raise ValueError(f"config.json has {key} {config[key]!r}; known is {known[0]!r}")
    keys = ("vocab_size", "n_positions", "n_embd", "n_head", "n_layer")
    for key in keys:
        if type(config.get(key)) is not int:
            raise ValueError(f"config.json: wants an int {key}, got {config.get(key)!r}")
    tokens, positions, d, heads, layers = (config[key] for key in keys)
    shapes = {name.removeprefix("transformer."): array.shape for name, array in arrays.items()}
    for name, shape in (("wte.weight", (tokens, d)), ("wpe.weight", (positions, d))):
        if shapes.get(name, shape) != shape:
            raise ValueError(f"{name}: wants {list(shape)}, got {list(shapes[name])}")
    if layers > len(arrays):
        raise ValueError(f"config.json has n_layer {layers}, the files {len(arrays)} tensors")
    if config.get("n_inner") not in (None, 4 * d):
        raise ValueError(f"config.json has n_inner {config['n_inner']}; known is 4 n_embd, {4 * d}")
    eps = config.get("layer_norm_epsilon", 1e-5)
    return GPTConfig(tokens, positions, d, heads, layers, eps=eps)


def _weights(folder: Path) -> dict[str, Array]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file() or not index.is_file():
        return read_safetensors(folder / "model.safetensors")[0]
    places = _json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(f, str) for f in places.values()):
        raise ValueError(f"{index.name} has no weight_map of names to files")
    arrays: dict[str, Array] = {}
    for file in sorted(set(places.values())):
        if Path(file).name != file:
            raise ValueError(f"{index.name} names a file outside the folder: {file}")
        for name, array in read_safetensors(folder / file)[0].items():
            if places.get(name) != file:
                raise ValueError(f"{index.name} does not expect {name} in {file}")
            arrays[name] = array
    return arrays
