"""Naive replays of the definitions, on random texts of few letters; then special tokens and faults."""

import itertools
import json
import unicodedata
from collections import Counter

import numpy as np
import pytest

from tinyllm.models.tokenizers import BPE, Special, WordPiece, split_words

BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES += [b for b in range(256) if b not in BYTES]


def naive(parts, merges):
    """The merge of lowest rank first, from the left, until none fits."""
    rank = {pair: i for i, pair in enumerate(merges)}
    while True:
        found = [rank[p] for p in itertools.pairwise(parts) if p in rank]
        if not found:
            return parts
        pair, new, i = merges[min(found)], [], 0
        while i < len(parts):
            two = tuple(parts[i : i + 2]) == pair
            new.append(parts[i] + parts[i + 1] if two else parts[i])
            i += 1 + two
        parts = new


def slow_encode(bpe, text):
    words = [[bytes([b]) for b in w.encode()] for w in split_words(text)]
    return [bpe.vocabulary[p] for w in words for p in naive(w, bpe.merges)]


def slow_train(text, n):
    number = {bytes([b]): i for i, b in enumerate(BYTES)}
    words, merges = [[bytes([b]) for b in w.encode()] for w in split_words(text)], []
    for _ in range(n):
        count = Counter(p for w in words for p in itertools.pairwise(w))
        if not count:
            break
        best = min(count, key=lambda p: (-count[p], number[p[0]], number[p[1]]))
        merges.append(best)
        number.setdefault(best[0] + best[1], len(number))
        words = [naive(w, [best]) for w in words]
    return merges, number


def texts(n, letters="aab ", longest=30):
    rng = np.random.default_rng(0)
    return ["".join(rng.choice(list(letters), rng.integers(1, longest))) for _ in range(n)]


def test_training():
    for text in [
        *texts(12, "abc ", 200),
        *texts(8, "aé ", 80),
        "th the then they h the oh he " * 3,
        "ab cd cd cd cd cd",
        "aaaa aaa aa",
    ]:
        bpe = BPE.train(text, 25)
        merges, number = slow_train(text, 25)
        assert bpe.merges == merges
        assert bpe.vocabulary == number
    assert BPE.train("", 5).merges == BPE.train("abc", 0).merges == []
    assert len(BPE.train("ab", 9).merges) == 1
    assert BPE.train("a", 3).vocabulary == {bytes([b]): i for i, b in enumerate(BYTES)}
    for wrong in (-1, 1.5, "3", None):
        with pytest.raises(ValueError):
            BPE.train("ab", wrong)


def test_encoding():
    for letters in ("aab ", "abc", "aé ", "the ", "a"):
        bpe = BPE.train(" ".join(texts(30, letters)), 40)
        for text in [*texts(60, letters), *texts(3, letters, 900)]:
            ids = bpe.encode(text)
            assert ids == slow_encode(bpe, text)
            assert bpe.decode(ids) == text


def test_merges_in_the_order_of_their_ranks():
    vocabulary = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"bc": 4, b"aa": 5, b"aaa": 6, b"aab": 7}
    for merges in (
        [(b"b", b"c"), (b"a", b"b")],
        [(b"a", b"b"), (b"b", b"c")],
        [(b"a", b"a"), (b"aa", b"b")],
        [(b"aa", b"a"), (b"a", b"a")],
    ):
        bpe = BPE(vocabulary, merges)
        for text in texts(80, "abc", 12):
            want = [vocabulary[p] for p in naive([bytes([b]) for b in text.encode()], merges)]
            assert bpe.encode(text) == want
    long = "a" * 20_000
    assert BPE(vocabulary, [(b"a", b"a")]).encode(long) == [5] * 10_000


def kind(c):
    if c.isspace():
        return " "
    return {"L": "L", "N": "N"}.get(unicodedata.category(c)[0], "P")


def test_splits():
    for text, want in (
        ("Hello world", ["Hello", " world"]), ("it's we're I'm I'll he'd you've don't", ["it", "'s", " we", "'re", " I", "'m", " I", "'ll", " he", "'d", " you", "'ve", " don", "'t"]),
        ("a  b", ["a", " ", " b"]), ("a\n\nb", ["a", "\n", "\n", "b"]), ("a   ", ["a", "   "]), ("x²½Ⅷ", ["x", "²½Ⅷ"]), ("x1y", ["x", "1", "y"]), (" !?a", [" !?", "a"]),
        ("", []), ("IT'S", ["IT", "'", "S"]), ("é日本 12", ["é日本", " 12"]), ("a\tb", ["a", "\t", "b"]), ("a \n b", ["a", " \n", " b"]), ("'sa", ["'s", "a"]), ("a_b", ["a", "_", "b"]), ("e\u0301x", ["e", "\u0301", "x"]), ("a\u00a0b", ["a", "\u00a0", "b"]), (" 's", [" '", "s"]),
    ):  # fmt: skip
        assert split_words(text) == want
    for text in texts(300, "a1!' \n²é'st\u0301🙂", 20):
        words = split_words(text)
        assert "".join(words) == text
        assert all(words)
        for word in words:
            inner = word.removeprefix(" ") or word
            assert len({kind(c) for c in inner}) == 1 or word[0] == "'"


def test_text_and_bytes():
    plain = BPE.train("", 0)
    for text in ("a🙂é", "\x00\x7f\n", "日本", *texts(30, "aé🙂 ñ")):
        ids = plain.encode(text)
        assert plain.decode_bytes(ids) == text.encode()
        assert plain.decode(ids) == text
        assert plain.decode(iter(ids)) == text
    assert plain.decode(plain.encode("é")[:1]) == "\ufffd"
    assert plain.decode(plain.encode("🙂")[:2] + plain.encode("a")) == "\ufffda"
    assert plain.encode("") == []
    assert plain.decode([]) == ""
    for wrong in (256, -1, 10**9):
        with pytest.raises(ValueError):
            plain.decode([0, wrong])
        with pytest.raises(ValueError):
            plain.decode_bytes([wrong])
    with pytest.raises(ValueError):
        plain.encode("a\ud800")
    with pytest.raises(ValueError):
        BPE({b"a": 0}, []).encode("ab")
    for vocabulary, merges in (
        ({b"a": 0, b"b": 0}, []),
        ({b"a": 0, b"b": 1}, [(b"a", b"b")]),
        ({b"a": 0, b"ab": 1}, [(b"a", b"b")]),
    ):
        with pytest.raises(ValueError):
            BPE(vocabulary, merges)
    with pytest.raises(ValueError):
        BPE({b"a": 0}, [], {"<s>": 0})


def test_special():
    base = {bytes([b]): i for i, b in enumerate(BYTES)}
    a, b = base[b"a"], base[b"b"]
    for special in ({"<s>": 300, "<s>2": 301}, {"<s>2": 301, "<s>": 300}):
        bpe = BPE(base, [], special)
        assert len(bpe) == 302
        assert bpe.encode("a<s>2b<s>") == [a, 301, b, 300]
        assert bpe.encode("<s><s>2") == [300, 301]
        assert bpe.encode("a<s>", special=False) == [base[bytes([c])] for c in b"a<s>"]
        assert bpe.decode([a, 301, 300]) == "a<s>2<s>"
        assert bpe.decode_bytes([300]) == b"<s>"
    for left, right, want in (
        (False, False, "a |b"),
        (True, False, "a|b"),
        (False, True, "a |b"),
        (True, True, "a|b"),
    ):
        bpe = BPE(base, [], {"|": Special(300, left, right)})
        ids = bpe.encode("a | b")
        assert len(ids) == 5 - left - right
        assert bpe.decode(ids).startswith(want[: 2 - left])
    bpe = BPE.train("ab ab", 2, special=["<a>", "<b>"])
    assert [bpe.special[s].id for s in ("<a>", "<b>")] == [len(bpe) - 2, len(bpe) - 1]
    bpe.before, bpe.after = (7,), (8, 9)
    ids = bpe.encode("ab", special=False)
    assert bpe.encode("ab") == [7, *ids, 8, 9]
    bpe.before = bpe.after = ()
    bpe.prefix_space = True
    assert bpe.encode("ab") == bpe.encode(" ab")


def test_saved(tmp_path):
    bpe = BPE.train("low lower lowest é é", 12, special=["<end>"])
    bpe.save(tmp_path)
    vocabulary = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert sorted(vocabulary.values()) == list(range(len(bpe)))
    assert vocabulary["<end>"] == bpe.special["<end>"].id
    assert vocabulary["Ġ"] == bpe.vocabulary[b" "]
    lines = (tmp_path / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if not line.startswith("#version")]) == len(bpe.merges)


PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "un",
    "##able",
    "##a",
    "able",
    "cafe",
    "a",
    "##b",
    "!",
    "日",
    "the",
    "Cafe",
    "##n",
    "café",
]


def test_word_piece():
    wp, n = WordPiece(PIECES), {p: i for i, p in enumerate(PIECES)}

    def encode(text, tokenizer=wp):
        return tokenizer.encode(text)[1:-1]

    assert len(wp) == len(PIECES)
    assert wp.encode("") == [n["[CLS]"], n["[SEP]"]]
    for text, want in (
        ("unable", ["un", "##able"]), ("una", ["un", "##a"]), ("unx", ["[UNK]"]), ("unab", ["un", "##a", "##b"]), ("un able", ["un", "able"]), ("x", ["[UNK]"]),
        ("Café", ["cafe"]), ("cafe\u0301", ["cafe"]), ("CAFE!", ["cafe", "!"]), ("日日a", ["日", "日", "a"]), ("un!a", ["un", "!", "a"]), ("a\x00b", ["a", "##b"]), ("a\tthe\n", ["a", "the"]),
        ("a [MASK] the", ["a", "[MASK]", "the"]), ("a" + "b" * 99, ["a", *["##b"] * 99]), ("a" + "b" * 100, ["[UNK]"]), ("unablex the", ["[UNK]", "the"]),
    ):  # fmt: skip
        assert encode(text) == [n[w] for w in want]
    cased = WordPiece(PIECES, lower=False)
    assert encode("Cafe café Café", cased) == [n["Cafe"], n["café"], n["[UNK]"]]
    assert wp.encode("a", special=False) == [n["a"]]
    assert wp.decode(wp.encode("unable the")) == "unable the"
    assert wp.decode([n["[CLS]"], n["a"], n["[PAD]"], n["##b"], n["the"], n["[SEP]"]]) == "ab the"
    assert WordPiece({"[UNK]": 5, "a": 9}).encode("a b") == [9, 5]
    for fault in (
        lambda: WordPiece(["a"]),
        lambda: WordPiece({"[UNK]": 1, "a": 1}),
        lambda: wp.encode("\ud800"),
        lambda: wp.decode([99]),
        lambda: wp.decode([-1]),
    ):
        with pytest.raises(ValueError):
            fault()
