# Tangled from book/3-language-models/L6.0-tests.md
"""Tests of L6.0, tokens. The oracles are the definition, and the library tokenizers."""

import json
import sys
import unicodedata
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from tinyllm.models.tokenizers import BPE, BYTE, Special, WordPiece, split_words
from tinyllm.num.pcg32 import PCG32

ENGLISH = Path(__file__).read_text(encoding="utf-8")
SHOWN = [
    *range(33, 127),
    *range(161, 173),
    *range(174, 256),
]  # bytes that a file shows as themselves
STANDS_FOR = {chr(b): b for b in SHOWN} | {
    chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in SHOWN)
}
SCRIPTS = "Γνῶθι σεαυτόν. Познай себя, 己を知れ。 كان يا ما كان ½ cup of naïve café, x² + y² = Ⅷ — don't! 👩‍👩‍👧"
WORDS = (ENGLISH, SCRIPTS * 3, "low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3)


def naive(tokenizer, word):
    """Replay all merges on one word, from the first to the last."""
    piece = [bytes([byte]) for byte in word.encode()]
    for left, right in tokenizer.merges:
        i = 0
        while i + 1 < len(piece):
            if (piece[i], piece[i + 1]) == (left, right):
                piece[i : i + 2] = [left + right]
            i += 1
    return [tokenizer.vocabulary[token] for token in piece]


def library(tokenizer, folder):
    """The same vocabulary in the library."""
    tokenizer.save(folder)
    files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    other = tokenizers.Tokenizer(models.BPE.from_file(*files))
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    other.decoder = decoders.ByteLevel()
    return other


def drawn(characters, n, rng):
    return "".join(characters[i] for i in rng.integers(0, len(characters), n))


def test_training_by_hand():
    tokenizer = BPE.train("aaabdaaabac", 3)
    assert tokenizer.merges == [(b"a", b"a"), (b"a", b"b"), (b"aa", b"ab")]
    assert tokenizer.encode("aaabdaaabac") == [258, 67, 258, 64, 66]
    assert tokenizer.encode("aab") == [256, 65]
    often = BPE.train("ab" + " cd" * 5, 1)  # a word counts as often as it occurs
    assert often.merges == [(b"c", b"d")]
    assert BPE.train("banana", 10).merges[-1] == (b"ban", b"ana")
    assert len(BPE.train("", 5)) == 256
    assert BPE.train("ab ab", 0).merges == []
    for merges in (-1, 1.5, True, "3"):
        with pytest.raises(ValueError):
            BPE.train("ab", merges)


@pytest.mark.parametrize("text", WORDS, ids=["code", "scripts", "toy"])
def test_training_equals_the_library_s(text):
    other = tokenizers.Tokenizer(models.BPE())
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    other.train_from_iterator([text], trainer)
    wanted = json.loads(other.to_str())["model"]["merges"]
    tokenizer = BPE.train(text, len(wanted))
    assert len(wanted) > 10
    assert tokenizer.merges == [
        tuple(bytes(STANDS_FOR[letter] for letter in part) for part in pair) for pair in wanted
    ]
    assert tokenizer.encode(SCRIPTS) == other.encode(SCRIPTS).ids


def test_order_of_merges():
    bytes_ = {bytes([b]): b for b in b"abc"}
    for merges, wanted in (
        ([(b"b", b"c"), (b"a", b"b")], [b"a", b"bc"]),
        ([(b"a", b"b"), (b"b", b"c")], [b"ab", b"c"]),
        ([(b"b", b"c"), (b"a", b"b"), (b"a", b"bc")], [b"abc"]),
    ):
        tokens = bytes_ | {a + b: 200 + i for i, (a, b) in enumerate(merges)}
        tokenizer = BPE(tokens, merges)
        assert tokenizer.encode("abc") == [tokens[token] for token in wanted]


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.text("abc ", min_size=5, max_size=60),
    st.lists(st.text("abc", max_size=20), max_size=6),
    st.integers(0, 40),
)
def test_encoding_equals_the_definition(text, words, merges):
    tokenizer = BPE.train(text, merges)
    whole = " ".join(words)
    assert tokenizer.encode(whole) == [
        token for word in split_words(whole) for token in naive(tokenizer, word)
    ]
    assert tokenizer.encode(whole) == tokenizer.encode(whole)


def test_encoding_equals_the_library_s(tmp_path):
    tokenizer = BPE.train(ENGLISH + SCRIPTS, 900)
    other = library(tokenizer, tmp_path)
    rng = PCG32(3)
    for n in (0, 1, 2, 7, 30, 300, 3000):
        for characters in (ENGLISH, SCRIPTS, "aab", "the quick's \n\t "):
            text = drawn(characters, n, rng)
            assert tokenizer.encode(text) == other.encode(text).ids
            assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.binary(max_size=40))
def test_round_trip(text, data):
    for merges in (0, 50):
        tokenizer = BPE.train(SCRIPTS * 2, merges)
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert "".join(split_words(text)) == text
        shown = data.decode("latin-1")
        assert tokenizer.decode_bytes(tokenizer.encode(shown)) == shown.encode()


def test_split_of_every_kind_of_character():
    other = pre_tokenizers.ByteLevel(add_prefix_space=False)
    old = unicodedata.ucd_3_2_0  # characters that every program's tables have
    assigned = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if not 0xD800 <= code < 0xE000 and old.category(chr(code)) not in ("Cn", "Co")
        if old.category(chr(code))[0] == unicodedata.category(chr(code))[0]
    ]
    rng = PCG32(5)
    shuffled = [assigned[i] for i in rng.permutation(len(assigned))]
    for i in range(0, len(shuffled), 997):
        text = " ".join(f"a{c}1{c}{c} '{c}" for c in shuffled[i : i + 40])
        cuts = [span for _, span in other.pre_tokenize_str(text)]
        assert split_words(text) == [text[first:last] for first, last in cuts]
    for text in ("we'll've 'S 's  x", " \n\n a", "a\x1cb", "½²Ⅷ一7", "a_b", "x²", "a\u3000\u3000b"):
        cuts = [span for _, span in other.pre_tokenize_str(text)]
        assert split_words(text) == [text[first:last] for first, last in cuts]


@pytest.mark.parametrize("alphabet", ["a", "ab", "abcdefghij"])
def test_a_long_word(alphabet):
    tokenizer = BPE.train(drawn(alphabet, 5_000, PCG32(1)) + " aaa baaa aaaa", 60)
    word = drawn(alphabet, 200_000, PCG32(2))  # with quadratic time it would not end today
    assert tokenizer.decode(tokenizer.encode(word)) == word
    for word in ("aaa baaa", "aaaaaaa", drawn(alphabet, 400, PCG32(4))):
        assert tokenizer.encode(word) == [
            token for part in split_words(word) for token in naive(tokenizer, part)
        ]


def test_specials():
    tokenizer = BPE.train("ab ab", 1, ["<s>", "<s><s>2", "<end>"])
    assert len(tokenizer) == 256 + 1 + 3
    assert tokenizer.encode("ab<s>ab") == [256, 257, 256]
    assert tokenizer.encode("<s><s>2<s>") == [258, 257]
    assert tokenizer.decode([256, 259, 256]) == "ab<end>ab"
    assert tokenizer.encode("<s>", special=False) == BPE.train("ab ab", 1).encode("<s>")
    strip = BPE(
        tokenizer.vocabulary,
        tokenizer.merges,
        {"<m>": Special(300, strip_left=True), "<r>": Special(301, strip_right=True)},
    )
    assert strip.encode("ab  <m> ab<r> \n ab") == [256, 300, *strip.encode(" ab"), 301, 256]
    strip.before, strip.after = (301,), (300, 300)
    assert strip.encode("ab") == [301, 256, 300, 300]
    assert strip.encode("ab", special=False) == [256]
    assert strip.encode("") == [301, 300, 300]
    spaced = BPE(tokenizer.vocabulary, [], {" m": Special(300, strip_left=True), "(": 301})
    assert spaced.encode("   m(") == [300, 301]
    strip.prefix_space = True
    assert strip.encode("ab", special=False) == strip.encode(" ab", special=False)


def test_surrogates_and_missing_bytes():
    tokenizer = BPE.train("ab", 1)
    for text in ("\ud800", "ab\udcff", "\udc00a"):
        with pytest.raises(ValueError):
            tokenizer.encode(text)
        with pytest.raises(ValueError):
            WordPiece(["[UNK]"]).encode(text)
    with pytest.raises(ValueError):
        BPE({b"a": 0, b"b": 1, b"ab": 2}, [(b"a", b"b")]).encode("abc")
    for wrong in (257, -1, 10**9):
        with pytest.raises(ValueError):
            tokenizer.decode([64, wrong])
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"


def test_wrong_vocabularies():
    bytes_ = {bytes([b]): b for b in range(256)}
    for vocabulary, merges, special in (
        (bytes_, [(b"a", b"b")], {}),
        (bytes_ | {b"ab": 300}, [(b"ab", b"c")], {}),
        (bytes_ | {b"ab": 0}, [], {}),
        (bytes_, [], {"<s>": 5}),
        (bytes_, [], {"": 300}),
        *((bytes_, [], {"<s>": number}) for number in (-1, 2**31, 300.0, True, None)),
    ):
        with pytest.raises(ValueError):
            BPE(vocabulary, merges, special)
    for pieces in (["a"], {"[UNK]": 0, "a": 0}, ["[UNK]", "a", "a"]):
        with pytest.raises(ValueError):
            WordPiece(pieces)
    with pytest.raises(ValueError):
        WordPiece(["[UNK]"]).decode([7])
    with pytest.raises(ValueError):
        WordPiece({"[UNK]": 0, "a": -1})
    kept = dict(bytes_)
    BPE(kept, []).encode("abc")
    pair = BPE(kept | {b"ab": 256}, iter([(b"a", b"b")]))
    assert (pair.merges, pair.encode("ab")) == ([(b"a", b"b")], [256])
    assert WordPiece(iter(["[UNK]", "a"])).encode("a") == [1]
    assert kept == bytes_


MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PARTS = "un|##happi|##est|token|##izer|##s|.|,|!|a|##a|cafe|一|the|##the|b|##b|ab|##ab|##ba|'|x|##1"
PIECES = [*MARKS, *PARTS.split("|"), "é", "##é", "ß", "##2"]


def bert(lower):
    other = tokenizers.Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]")
    )
    other.normalizer = normalizers.BertNormalizer(lowercase=lower)
    other.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    other.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    other.add_special_tokens(MARKS)
    return other


def test_word_piece_by_hand():
    tokenizer = WordPiece(PIECES)
    assert tokenizer.encode("Unhappiest tokenizers.") == [2, 5, 6, 7, 8, 9, 10, 11, 3]
    assert tokenizer.encode("unhappy Café") == [2, 1, 16, 3]
    assert tokenizer.encode("a[MASK]!", special=False)[:1] == [14]
    assert tokenizer.encode("a [MASK]!") == [2, 14, 4, 13, 3]
    assert tokenizer.encode("a" * 100) == [2, 14, *[15] * 99, 3]
    assert tokenizer.encode("a" * 101) == [2, 1, 3]
    assert tokenizer.encode("一一") == [2, 17, 17, 3]
    assert tokenizer.encode("") == [2, 3]
    assert tokenizer.decode([2, 5, 6, 7, 8, 9, 11, 3, 0]) == "unhappiest tokenizer ."
    assert WordPiece(PIECES, lower=False).encode("A a") == [2, 1, 14, 3]
    assert WordPiece(["a", "[UNK]"]).encode("a b") == [0, 1]


@pytest.mark.parametrize("lower", [True, False])
def test_word_piece_equals_the_library_s(lower):
    tokenizer, other, rng = WordPiece(PIECES, lower), bert(lower), PCG32(9)
    old = unicodedata.ucd_3_2_0
    codes = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    odd = [c for c in codes if old.category(c) not in ("Cn", "Co")]
    alphabets = (" ".join(PIECES), "aAbBéÉ一.'!  \n\t\x0b\x1c\x85\xa0\u200d\u0301ß²", odd)
    for n in (0, 1, 3, 12, 60, 400):
        for alphabet in alphabets:
            for _ in range(12):
                text = drawn(alphabet, n, rng)
                assert tokenizer.encode(text) == other.encode(text).ids, ascii(text)
                assert tokenizer.encode(text) == tokenizer.encode(text)


def test_saved_and_loaded(tmp_path):
    tokenizer = BPE.train(ENGLISH + SCRIPTS, 300, ["<|endoftext|>"])
    other = library(tokenizer, tmp_path)
    other.add_special_tokens(["<|endoftext|>"])
    text = SCRIPTS + "<|endoftext|>" + ENGLISH[:2000]
    assert tokenizer.encode(text) == other.encode(text).ids
    numbers = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert numbers["<|endoftext|>"] == len(tokenizer) - 1
    assert len(numbers) == len(tokenizer)
    assert BYTE == STANDS_FOR
