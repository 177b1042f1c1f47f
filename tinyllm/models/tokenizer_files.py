# Tangled from book/3-language-models/L6.0-tokens.md
"""Tokenizers from the files that trained models bring along."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tinyllm.models.tokenizers import BPE, BYTE, Special, WordPiece

__all__ = ["load"]


def load(path: str | Path) -> BPE | WordPiece:
    """The tokenizer in a folder, or in one of its files: tokenizer.json, vocab.json, vocab.txt.

    FileNotFoundError where there is none, ValueError for what is no such file and for what this
    reader does not know: nothing is guessed.
    """
    path = Path(path)
    names = ("tokenizer.json", "vocab.json", "vocab.txt")
    file = path
    if path.is_dir():
        there = [path / name for name in names if (path / name).is_file()]
        if not there:
            raise FileNotFoundError(f"load: no {' or '.join(names)} in {path}")
        file = there[0]
    try:
        text = file.read_text(encoding="utf-8-sig")
        content: Any = None if file.suffix == ".txt" else json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise ValueError(f"load: {file} cannot be read: {wrong}") from None
    try:
        if file.suffix == ".txt":
            lower = _lower(file.with_name("tokenizer_config.json"))
            return WordPiece(text.removesuffix("\n").split("\n"), lower)
        if isinstance(content, dict) and isinstance(content.get("model"), dict):
            return _from_tokenizer_json(content)
        return _from_vocab_json(content, file.with_name("merges.txt"))
    except ValueError as wrong:
        raise ValueError(f"load: {file}: {wrong}") from None
    except (AttributeError, IndexError, KeyError, TypeError) as wrong:
        raise ValueError(f"load: {file}: a part is missing or malformed: {wrong!r}") from None


def _lower(settings: Path) -> bool:
    """What the file beside a vocab.txt says of capitals; BERT's first models had none."""
    if not settings.is_file():
        return True
    return bool(json.loads(settings.read_text(encoding="utf-8")).get("do_lower_case", True))


def _from_vocab_json(numbers: Mapping[str, int], merges: Path) -> BPE:
    if not isinstance(numbers, dict):
        raise ValueError("wants an object of token: number")
    if not merges.is_file():
        raise ValueError("wants merges.txt beside it")
    lines = merges.read_text(encoding="utf-8-sig").split("\n")
    rules = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    return _bpe(numbers, rules, {})


def _bpe(numbers: Mapping[str, int], rules: Sequence[Any], special: Mapping[str, Special]) -> BPE:
    """From what the files hold; what is written in other letters than theirs is a special token."""
    special = dict(special)
    vocabulary = {}
    for word, i in numbers.items():
        if set(word) <= BYTE.keys() and word not in special:
            if re.fullmatch(r"<\|\w+\|>", word):
                special[word] = Special(i)
            else:
                vocabulary[_bytes(word)] = i
        else:
            special.setdefault(word, Special(i))
    if any(len(rule) != 2 or not set("".join(rule)) <= BYTE.keys() for rule in rules):
        raise ValueError("wants merges of two tokens in GPT-2's letters for bytes")
    return BPE(vocabulary, [(_bytes(a), _bytes(b)) for a, b in rules], special)


def _bytes(word: str) -> bytes:
    return bytes(BYTE[letter] for letter in word)


def _from_tokenizer_json(content: Mapping[str, Any]) -> BPE | WordPiece:
    model = content["model"]
    kind = model.get("type") or ("BPE" if "merges" in model else None)
    added = content.get("added_tokens") or []
    if any(token.get("single_word") for token in added):
        raise ValueError("does not know added_tokens that are single_word")
    special = {
        token["content"]: Special(token["id"], bool(token["lstrip"]), bool(token["rstrip"]))
        for token in added
    }
    tokenizer: BPE | WordPiece
    if kind == "BPE":
        tokenizer = _json_bpe(content, special)
    elif kind == "WordPiece":
        tokenizer = _json_word_piece(content, special)
    else:
        raise ValueError(f"wants a model of type BPE or WordPiece, got {kind}")
    tokenizer.before, tokenizer.after = _around(content.get("post_processor"))
    if any(type(i) is not int for i in (*tokenizer.before, *tokenizer.after)):
        raise ValueError("wants whole numbers in its post_processor")
    return tokenizer


def _json_bpe(content: Mapping[str, Any], special: Mapping[str, Special]) -> BPE:
    model = content["model"]
    unknown = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
    _only(model, dict.fromkeys((*unknown, "ignore_merges"), (None, "", False, 0.0)), "model")
    _only(content, {"normalizer": (None,)}, "the file")
    cut = content.get("pre_tokenizer") or {}
    if cut.get("type") == "Sequence" and len(cut["pretokenizers"]) == 1:
        cut = cut["pretokenizers"][0]
    _only(cut, {"type": ("ByteLevel",), "use_regex": (None, True)}, "pre_tokenizer")
    _only(content.get("decoder") or {}, {"type": (None, "ByteLevel")}, "decoder")
    rules = [rule.split(" ") if isinstance(rule, str) else rule for rule in model["merges"]]
    tokenizer = _bpe(model["vocab"], rules, special)
    tokenizer.prefix_space = bool(cut["add_prefix_space"])
    return tokenizer


def _json_word_piece(content: Mapping[str, Any], special: Mapping[str, Special]) -> WordPiece:
    known = {"unk_token": ("[UNK]",), "continuing_subword_prefix": ("##",)}
    _only(content["model"], known | {"max_input_chars_per_word": (100,)}, "model")
    clean = content.get("normalizer") or {}
    lower = bool(clean.get("lowercase"))
    always = {"type": ("BertNormalizer",), "clean_text": (True,), "handle_chinese_chars": (True,)}
    _only(clean, always | {"strip_accents": (None, lower)}, "normalizer")
    _only(content.get("pre_tokenizer") or {}, {"type": ("BertPreTokenizer",)}, "pre_tokenizer")
    if any(token.get("normalized") for token in content.get("added_tokens") or []):
        raise ValueError("does not know added_tokens that are normalized")
    return WordPiece(content["model"]["vocab"], lower, special)


def _only(part: Mapping[str, Any], known: Mapping[str, tuple[Any, ...]], where: str) -> None:
    for key, values in known.items():
        if part.get(key) not in values:
            wanted = " or ".join(map(repr, values))
            raise ValueError(f"{where} has {key} {part.get(key)!r}; this reader knows {wanted}")


def _around(after: Mapping[str, Any] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a post_processor puts before a text and behind it."""
    kind = (after or {}).get("type")
    if after is None or kind == "ByteLevel":
        return (), ()
    if kind in ("BertProcessing", "RobertaProcessing"):
        return (after["cls"][1],), (after["sep"][1],)
    if kind == "Sequence":
        both = [_around(one) for one in after["processors"]]
        before = tuple(i for first, _ in both for i in first)
        return before, tuple(i for _, last in both for i in last)
    if kind != "TemplateProcessing":
        raise ValueError(f"does not know the post_processor {kind}")
    sides: tuple[list[int], list[int]] = ([], [])
    side = 0
    for part in after["single"]:
        if "Sequence" in part:
            side = 1
        else:
            sides[side].extend(after["special_tokens"][part["SpecialToken"]["id"]]["ids"])
    return tuple(sides[0]), tuple(sides[1])
