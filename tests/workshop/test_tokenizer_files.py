# Tangled from book/3-language-models/L6.0-tests.md
"""Tests of the readers of tokenizers. The oracle is the library that writes such files."""

import json
import re

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from tinyllm.models.tokenizer_files import load
from tinyllm.models.tokenizers import BPE, WordPiece

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "read|of|the|cafe|Café|café|'|s|menu|:|dog|##s|,|and|a"
TEXT = (
    "Don't read ½ of the café's 一 menu:\n\n  2024 dogs [MASK] <s> here, \u0301 and\u3000there 👍"
)


def byte_level(folder, **options):
    """A tokenizer.json of the library's, byte-level BPE."""
    learned = BPE.train("read the menu, the café's menu and the dogs' menu " * 3, 60)
    learned.save(folder)
    names = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    made = tokenizers.Tokenizer(models.BPE.from_file(*names))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(**{"add_prefix_space": False} | options)
    made.decoder = decoders.ByteLevel()
    return made


def bert(**options):
    pieces = [*MARKS, *WORDS.split("|")]
    made = tokenizers.Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(**options)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.add_special_tokens(MARKS)
    return made


def saved(made, folder):
    made.save(str(folder / "tokenizer.json"))
    return json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("prefix", [False, True])
def test_tokenizer_json_of_bytes(tmp_path, prefix):
    made = byte_level(tmp_path, add_prefix_space=prefix)
    made.add_special_tokens([tokenizers.AddedToken("<s>", lstrip=True), "<pad>"])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A <pad>", special_tokens=[("<s>", 316), ("<pad>", 317)]
    )
    saved(made, tmp_path)
    for path in (tmp_path, str(tmp_path), tmp_path / "tokenizer.json"):
        tokenizer = load(path)
        for text in (TEXT, "", " a", "<s>", "menu<pad>menu <s>menu"):
            assert tokenizer.encode(text) == made.encode(text).ids
            bare = made.encode(text, add_special_tokens=False).ids
            assert tokenizer.decode(bare) == made.decode(bare, skip_special_tokens=False)


@pytest.mark.parametrize("lower", [False, True])
def test_tokenizer_json_of_pieces(tmp_path, lower):
    made = bert(lowercase=lower)
    saved(made, tmp_path)
    tokenizer = load(tmp_path)
    assert isinstance(tokenizer, WordPiece)
    for text in (TEXT, "", "Café café", "dogs and dogs"):
        assert tokenizer.encode(text) == made.encode(text).ids


def test_vocab_json_and_merges(tmp_path):
    made = byte_level(tmp_path)
    for path in (tmp_path, tmp_path / "vocab.json"):
        assert load(path).encode(TEXT) == made.encode(TEXT).ids
    learned = BPE.train(TEXT, 20, ["<|endoftext|>", "[end]"])
    learned.save(tmp_path)
    again = load(tmp_path)
    assert again.encode("a<|endoftext|>b") == learned.encode("a<|endoftext|>b")
    assert again.merges == learned.merges
    assert again.vocabulary | {"": 0} == learned.vocabulary | {"": 0} | again.vocabulary


def test_vocab_txt(tmp_path):
    pieces = [*MARKS[:4], "read", "the", "menu", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    assert load(tmp_path).encode("Read menus") == [2, 4, 6, 7, 3]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    assert load(tmp_path / "vocab.txt").encode("Read menus") == [2, 4, 6, 7, 3]


BYTE_LEVEL = [
    ("model", "type", "Unigram"),
    ("model", "byte_fallback", True),
    ("model", "ignore_merges", True),
    ("model", "dropout", 0.1),
    ("model", "end_of_word_suffix", "</w>"),
    ("model", "merges", ["a b c"]),
    ("pre_tokenizer", "use_regex", False),
    ("pre_tokenizer", "type", "Whitespace"),
    ("decoder", "type", "Metaspace"),
    (None, "normalizer", {"type": "NFC"}),
    (None, "pre_tokenizer", None),
    (None, "post_processor", {"type": "Other"}),
]
PIECES = [
    ("model", "continuing_subword_prefix", "@@"),
    ("model", "max_input_chars_per_word", 50),
    ("model", "unk_token", "<unk>"),
    ("normalizer", "clean_text", False),
    ("normalizer", "handle_chinese_chars", False),
    ("normalizer", "strip_accents", True),
    ("pre_tokenizer", "type", "Whitespace"),
]


@pytest.mark.parametrize(
    ("kind", "part", "key", "value"),
    [("bytes", *one) for one in BYTE_LEVEL] + [("pieces", *one) for one in PIECES],
)
def test_refusals(tmp_path, kind, part, key, value):
    content = saved(byte_level(tmp_path) if kind == "bytes" else bert(lowercase=False), tmp_path)
    (content[part] if part else content)[key] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        load(tmp_path)


def test_single_words_are_refused(tmp_path):
    made = bert()
    made.add_special_tokens([tokenizers.AddedToken("<w>", single_word=True)])
    saved(made, tmp_path)
    with pytest.raises(ValueError, match="single_word"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
@pytest.mark.parametrize("other", [None, 7, "x", [[]], {"x": 1}])
def test_other_types_are_refused_or_make_no_difference(tmp_path, kind, other):
    content = saved(byte_level(tmp_path) if kind == "bytes" else bert(), tmp_path)
    file = tmp_path / "tokenizer.json"

    def change(part):
        for key in list(part) if isinstance(part, dict) else range(min(len(part), 2)):
            kept, part[key] = part[key], other
            file.write_text(json.dumps(content), encoding="utf-8")
            message = ""
            try:
                load(tmp_path).encode("ab [MASK]")
            except ValueError as wrong:
                message = str(wrong)
            assert not message or re.search(r"tokenizer\.json|no token for", message)
            part[key] = kept
            if isinstance(kept, dict | list) and key != "vocab":
                change(kept)

    change(content)


def test_a_mark_of_the_byte_order_is_dropped(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\na\n", encoding="utf-8-sig", newline="\r\n")
    assert load(tmp_path).encode("a b") == [1, 0]


def test_capitals_beside_a_list_of_pieces(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\na\nA\n", encoding="utf-8")
    assert load(tmp_path).encode("A") == [1]
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text('{"do_lower_case": false}', encoding="utf-8")
    assert load(tmp_path).encode("A") == [2]
    settings.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        load(tmp_path)


def test_what_is_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        load(tmp_path)
    for text in (b"", b"{", b"[1]", b'{"a": "b"}', b"\xff\xfe", b'{"model": {"type": "BPE"}}'):
        (tmp_path / "tokenizer.json").write_bytes(text)
        with pytest.raises((ValueError, FileNotFoundError)):
            load(tmp_path)
