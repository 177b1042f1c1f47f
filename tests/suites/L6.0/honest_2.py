"""Small tables worked by hand, and a recursive definition of the merges; then what comes back, and faults."""

import json
from collections import Counter

import numpy as np
import pytest

from tinyllm.models.tokenizers import BPE, Special, WordPiece, split_words

ORDER = sorted(range(256), key=lambda b: (not (33 <= b <= 126 or 161 <= b <= 172 or b >= 174), b))
BASE = {bytes([b]): i for i, b in enumerate(ORDER)}


def merged(parts, left, right):
    for i in range(len(parts) - 1):
        if parts[i] == left and parts[i + 1] == right:
            return [*parts[:i], left + right, *merged(parts[i + 2 :], left, right)]
    return parts


def replay(word, merges):
    parts = [bytes([b]) for b in word.encode()]
    tried = 0
    while tried < len(merges):
        new = merged(parts, *merges[tried])
        parts, tried = new, tried + 1 if new == parts else 0
    return parts


def learned(text, n):
    vocabulary, merges = dict(BASE), []
    words = Counter(split_words(text))
    while len(merges) < n:
        pairs = Counter()
        for word, times in words.items():
            parts = replay(word, merges)
            for i in range(len(parts) - 1):
                pairs[parts[i], parts[i + 1]] += times
        if not pairs:
            break
        top = max(pairs.values())
        tied = [p for p, times in pairs.items() if times == top]
        best = min(tied, key=lambda p: [vocabulary[t] for t in p])
        merges.append(best)
        vocabulary.setdefault(b"".join(best), len(vocabulary))
    return vocabulary, merges


def random_text(letters, n, seed):
    return "".join(np.random.default_rng(seed).choice(list(letters), n))


@pytest.mark.parametrize("letters", ["ab ", "aab", "the ", "xyz  ", "é日 ", "aaaa b1"])
def test_training_and_encoding(letters):
    for seed in range(4):
        text = random_text(letters, 150, seed)
        bpe = BPE.train(text, 12)
        vocabulary, merges = learned(text, 12)
        assert (bpe.vocabulary, bpe.merges) == (vocabulary, merges)
        for k in range(15):
            other = random_text(letters, 3 + 2 * k, 100 + k)
            want = [vocabulary[p] for w in split_words(other) for p in replay(w, merges)]
            assert bpe.encode(other) == want
            assert bpe.decode(want) == other


def test_training_by_hand():
    assert BPE.train("ab cd cd cd", 2).merges == [(b"c", b"d"), (b" ", b"cd")]
    assert BPE.train("aaa", 1).merges == [(b"a", b"a")]
    assert BPE.train("ba ba", 0).merges == []
    assert len(BPE.train("ab", 50).merges) == 1
    for wrong in (-1, 2.0, "1"):
        with pytest.raises(ValueError):
            BPE.train("a", wrong)


def test_by_hand():
    v = {b"a": 10, b"b": 11, b"c": 12, b"ab": 13, b"bc": 14, b"aa": 15, b"abc": 16}
    late = BPE(v, [(b"b", b"c"), (b"a", b"b")])
    early = BPE(v, [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c")])
    assert len(late) == 17
    assert late.encode("abc") == [10, 14]
    assert late.encode("abab") == [13, 13]
    assert early.encode("abcbc") == [16, 14]
    twice = BPE(v, [(b"a", b"a")])
    for n in range(1, 40):
        assert twice.encode("a" * n) == [15] * (n // 2) + [10] * (n % 2)
        assert twice.encode("aaab" + "a" * n) == [15, 10, 11, *twice.encode("a" * n)]
        assert twice.encode("baaab" + "a" * n) == [11, 15, 10, 11, *twice.encode("a" * n)]
    for bad, merges in (({b"a": 1, b"b": 1}, []), (v, [(b"c", b"c")]), (v, [(b"a", b"x")])):
        with pytest.raises(ValueError):
            BPE(bad, merges)
    for fault in (
        lambda: late.encode("z"),
        lambda: late.encode("\udc00"),
        lambda: late.decode([0]),
        lambda: late.decode_bytes([99]),
    ):
        with pytest.raises(ValueError):
            fault()


def test_cuts():
    for cut in (
        "Hi|!!| you",
        "we|'ll| go",
        "a| | b",
        "x|²",
        "Ⅷ|b",
        "½",
        "1|a|2",
        "a|\n|\n|b",
        "é| 日本|。",
        "don|'t",
        "DON|'|T",
        "a|  ",
    ):
        parts = cut.split("|")

        assert split_words("".join(parts)) == parts
    assert split_words("   ") == ["   "]
    assert split_words("") == []


def test_decoding():
    plain = BPE.train("", 0)
    for text in ("naïve 🙂", "日本語", "\n\t\x01"):
        ids = plain.encode(text)
        assert ids == [BASE[bytes([b])] for b in text.encode()]
        assert plain.decode(ids) == text
    assert plain.decode(plain.encode("é")[:1]) == "\ufffd"


def test_specials(tmp_path):
    bpe = BPE(BASE, [], {"ab": 400, "abc": 401, "|": Special(402, True, True)})
    a, b, c, space = (BASE[x] for x in (b"a", b"b", b"c", b" "))
    assert bpe.encode("abcab c") == [401, 400, space, c]
    assert bpe.encode("a  |  b") == [a, 402, b]
    assert bpe.encode("abc", special=False) == [a, b, c]
    assert bpe.decode([401, a, 402]) == "abca|"
    bpe.before, bpe.after, bpe.prefix_space = (1,), (2,), True
    assert bpe.encode("b") == [1, space, b, 2]
    some = BPE.train("ab ab é", 2, special=["<x>"])
    some.save(tmp_path)
    kept = json.loads((tmp_path / "vocab.json").read_text(encoding="utf-8"))
    assert len(kept) == len(some) == 259
    assert kept["<x>"] == 258
    with pytest.raises(ValueError):
        BPE(BASE, [], {"<x>": 3})


def test_word_piece():
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "play",
        "##ing",
        "##in",
        "##g",
        "resume",
        "naive",
        "ing",
        ".",
        "中",
        "Play",
    ]
    number = {w: i for i, w in enumerate(words)}
    lower, cased = WordPiece(words), WordPiece(words, lower=False)
    for text, want in (
        ("Playing", "play ##ing"),
        ("playin", "play ##in"),
        ("playx", "[UNK]"),
        ("résumé NAÏVE", "resume naive"),
        ("ing.", "ing ."),
        ("中中", "中 中"),
        ("[MASK]play", "[MASK] play"),
        ("q play", "[UNK] play"),
        ("pl\x00ay", "play"),
    ):
        assert lower.encode(text) == [2, *(number[w] for w in want.split()), 3]
    assert cased.encode("Play résumé", special=False) == [number["Play"], 1]
    assert lower.decode(lower.encode("playing ing")) == "playing ing"
    assert lower.encode("play" + "g" * 96, special=False) == [5] + [8] * 96
    assert lower.encode("play" + "g" * 97, special=False) == [1]
    for fault in (
        lambda: WordPiece(["x"]),
        lambda: lower.decode([15]),
        lambda: lower.encode("\ud800"),
        lambda: WordPiece({"[UNK]": 0, "x": 0}),
    ):
        with pytest.raises(ValueError):
            fault()
