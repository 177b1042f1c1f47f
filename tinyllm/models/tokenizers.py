# Tangled from book/3-language-models/L6.0-tokens.md
"""Text to tokens and back: byte-pair encoding as GPT-2 has it, WordPiece as BERT has it."""

from __future__ import annotations

import heapq
import itertools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinyllm.arguments import non_negative_int
from tinyllm.checkpoint import write_atomically

__all__ = ["BPE", "Special", "WordPiece", "split_words"]

Array: TypeAlias = NDArray[Any]

PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
ORDER = PRINTABLE + [
    byte for byte in range(256) if byte not in PRINTABLE
]  # GPT-2's tokens 0 to 255
LETTER = {
    byte: chr(byte) if byte in PRINTABLE else chr(256 + place - len(PRINTABLE))
    for place, byte in enumerate(ORDER)
}  # what stands for a byte in GPT-2's files
BYTE = {letter: byte for byte, letter in LETTER.items()}

WORDS = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII
)


def _stand_in(c: str) -> str:
    """An ASCII character of the same kind: letter, number, space or another."""
    if c.isascii():
        return c
    return "\t" if c.isspace() else {"L": "a", "N": "0"}.get(unicodedata.category(c)[0], "!")


class _Each(dict[int, str]):
    """For str.translate: what a rule makes of each character, asked once."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        self.rule = rule

    def __missing__(self, code: int) -> str:
        self[code] = self.rule(chr(code))
        return self[code]


STAND_INS = _Each(_stand_in)


def split_words(text: str) -> list[str]:
    """GPT-2's cut of a text into words, which joined give the text again; no merge crosses a cut.

    Letters and numbers are Unicode's categories L and N, as Python's unicodedata has them.
    """
    shape = text if text.isascii() else text.translate(STAND_INS)
    return [text[match.start() : match.end()] for match in WORDS.finditer(shape)]


@dataclass(frozen=True)
class Special:
    """A token that text is searched for before it is cut; it may swallow the spaces beside it."""

    id: int
    strip_left: bool = False
    strip_right: bool = False


class _Tokenizer:
    """Special tokens, and what goes before and after every text; subclasses do the rest."""

    def __init__(self, special: Mapping[str, int | Special]) -> None:
        self.special = {
            word: one if isinstance(one, Special) else Special(one) for word, one in special.items()
        }
        self.before: tuple[int, ...] = ()
        self.after: tuple[int, ...] = ()
        if "" in self.special:
            raise ValueError("special: wants tokens of at least one character")
        found = [
            f"({re.escape(word)})" + (r"\s*" if one.strip_right else "")
            for word, one in sorted(self.special.items(), key=lambda item: -len(item[0]))
        ]
        self._special = re.compile("|".join(found) or "(?!)")  # (?!) is found nowhere

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The tokens of a text, int. With `special`, special tokens in it are found, and what the
        model wants before and after a text is added. ValueError for a lone surrogate, which is no text.
        """
        try:
            text.encode()
        except UnicodeEncodeError as wrong:
            raise ValueError(
                f"encode: wants text, got the lone surrogate U+{ord(text[wrong.start]):04X} at "
                f"{wrong.start}; decode bytes with errors='replace'"
            ) from None
        if not special:
            return self._encode(text)
        ids, end = list(self.before), 0
        for found in self._special.finditer(text):
            one = self.special[found[found.lastindex or 0]]
            part = text[end : found.start()]
            ids += [*self._encode(part.rstrip() if one.strip_left else part), one.id]
            end = found.end()
        return [*ids, *self._encode(text[end:]), *self.after]

    def _encode(self, text: str) -> list[int]:
        raise NotImplementedError


def _check_numbers(numbers: Iterable[object]) -> None:
    for i in numbers:
        if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < 2**31:
            raise ValueError(f"vocabulary: wants ints from 0 to 2**31 - 1 as numbers, got {i!r}")


class BPE(_Tokenizer):
    """Byte-pair encoding on bytes, as GPT-2 has it.

    `vocabulary` has a number for each token, `merges` the pairs in order of rank, `special` the
    numbers of special tokens. `len()` is one more than the largest number. ValueError for a merge
    whose parts or result have no number, for a number that two tokens have or that is no int from 0
    to 2**31 - 1, and for an empty special token.
    Source: Sennrich et al. (2016); Radford et al. (2019).
    """

    def __init__(
        self,
        vocabulary: Mapping[bytes, int],
        merges: Sequence[tuple[bytes, bytes]],
        special: Mapping[str, int | Special] = MappingProxyType({}),
    ) -> None:
        super().__init__(special)
        self.vocabulary, self.merges = dict(vocabulary), list(merges)
        self.prefix_space = (
            False  # whether a text gets a space in front, so that its first word is like others
        )
        named = [(i, token) for token, i in self.vocabulary.items()]
        named += [(one.id, word.encode()) for word, one in self.special.items()]
        _check_numbers(i for i, _ in named)
        self._bytes = dict(named)
        if len({*named}) != len(self._bytes):
            raise ValueError("BPE: wants a number of its own for each token, got one twice")
        self._single = np.array(
            [self.vocabulary.get(bytes([byte]), -1) for byte in range(256)], np.int32
        )
        self._base = len(self)
        try:
            self._rules = [
                (self.vocabulary[a], self.vocabulary[b], self.vocabulary[a + b])
                for a, b in self.merges
            ]
        except KeyError as missing:
            raise ValueError(f"BPE: merges make or need {missing}, which has no number") from None
        rules = np.array(self._rules or [(-1, -1, -1)], np.int64)
        keys = rules[:, 0] * self._base + rules[:, 1]
        self._rank = np.argsort(keys, kind="stable")
        self._keys = keys[self._rank]

    def __len__(self) -> int:
        return 1 + max(self._bytes, default=-1)

    @classmethod
    def train(cls, text: str, merges: int, special: Sequence[str] = ()) -> BPE:
        """A vocabulary learned from a text: up to `merges` merges, fewer where no pair is left.

        Tokens 0 to 255 are the bytes in GPT-2's order, then the merges, then the special tokens. Of
        pairs that occur equally often the one with the smaller tokens is merged, left before right.
        ValueError unless merges is an int of at least 0. Source: Sennrich et al. (2016), on bytes.
        """
        merges = non_negative_int("BPE.train", "merges", merges)
        counts = Counter(split_words(text))
        times = list(counts.values())
        number = {byte: i for i, byte in enumerate(ORDER)}
        words = [[number[byte] for byte in word.encode()] for word in counts]
        tokens = [bytes([byte]) for byte in ORDER]
        pairs: Counter[tuple[int, int]] = Counter()
        found_in: dict[tuple[int, int], set[int]] = {}
        for i, word in enumerate(words):
            for pair in itertools.pairwise(word):
                pairs[pair] += times[i]
                found_in.setdefault(pair, set()).add(i)
        heap = [(-count, pair) for pair, count in pairs.items()]
        heapq.heapify(heap)
        learned: list[tuple[bytes, bytes]] = []
        while heap and len(learned) < merges:
            count, best = heapq.heappop(heap)
            if pairs[best] != -count:
                continue
            left, right = (tokens[i] for i in best)
            learned.append((left, right))
            changed = set()
            for i in found_in.pop(best):
                glued = _glue(words[i], best, len(tokens))
                for sign, word in ((-1, words[i]), (1, glued)):
                    for pair in itertools.pairwise(word):
                        pairs[pair] += sign * times[i]
                        changed.add(pair)
                for pair in itertools.pairwise(glued):
                    found_in.setdefault(pair, set()).add(i)
                words[i] = glued
            tokens.append(left + right)
            for pair in changed:
                if pairs[pair] > 0:
                    heapq.heappush(heap, (-pairs[pair], pair))
        vocabulary = {token: i for i, token in enumerate(tokens)}
        first = len(tokens)
        return cls(vocabulary, learned, {word: first + i for i, word in enumerate(special)})

    def _encode(self, text: str) -> list[int]:
        if self.prefix_space and text and not text[0].isspace():
            text = " " + text
        words = split_words(text)
        different = list(dict.fromkeys(words))
        if not different:
            return []
        tokens = dict(
            zip(different, self._tokens([word.encode() for word in different]), strict=True)
        )
        return list(itertools.chain.from_iterable(tokens[word] for word in words))

    def _ranks(self, left: Array, right: Array) -> Array:
        """The rank of each pair of tokens; the number of merges where there is none."""
        keys = left.astype(np.int64) * self._base + right
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._rank[at], len(self.merges))

    def _tokens(self, words: list[bytes]) -> list[list[int]]:
        """The tokens of each word; no word is empty."""
        data = np.frombuffer(b"".join(words), np.uint8)
        ends = np.cumsum([len(word) for word in words])
        ids = self._single[data]
        if (ids < 0).any():
            raise ValueError(
                f"BPE.encode: the vocabulary has no token for the byte {data[ids < 0][0]}"
            )
        chain = _Chain(ids, ends)
        new = np.arange(len(data))
        while True:
            new = new[chain.after[new] < len(data)]
            new = new[new < len(data)]
            ranks = self._ranks(chain.ids[new], chain.ids[chain.after[new]])
            known = ranks < len(self.merges)
            chain.note(new[known], ranks[known])
            if not chain.ranks:
                break
            rank = heapq.heappop(chain.ranks)
            new = chain.merge(rank, *self._rules[rank])
        places = np.flatnonzero(chain.ids >= 0)
        tokens, cuts = chain.ids[places].tolist(), np.searchsorted(places, ends).tolist()
        return [tokens[first:last] for first, last in itertools.pairwise([0, *cuts])]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of tokens, joined; special tokens as they are written. ValueError for a number that is no token."""
        try:
            return b"".join([self._bytes[i] for i in ids])
        except KeyError as missing:
            raise ValueError(f"decode: wants tokens below {len(self)}, got {missing}") from None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; what is no UTF-8, such as half a character, becomes U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def save(self, folder: str | Path) -> None:
        """Write vocab.json and merges.txt, as GPT-2 has them, into a folder; special tokens with the rest."""
        folder = Path(folder)
        letters = {token: "".join(LETTER[byte] for byte in token) for token in self.vocabulary}
        numbers = {letters[token]: i for token, i in self.vocabulary.items()}
        numbers |= {word: one.id for word, one in self.special.items()}
        rules = [f"{letters[a]} {letters[b]}" for a, b in self.merges]
        vocabulary = json.dumps(numbers, ensure_ascii=False)
        write_atomically(folder / "vocab.json", [vocabulary.encode()])
        write_atomically(folder / "merges.txt", ["\n".join(["#version: 0.2", *rules, ""]).encode()])


def _glue(word: list[int], pair: tuple[int, int], made: int) -> list[int]:
    """`word` with each occurrence of the pair, taken from the left, as one token."""
    out: list[int] = []
    i = 0
    while i < len(word):
        if word[i] == pair[0] and i + 1 < len(word) and word[i + 1] == pair[1]:
            out.append(made)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


class _Chain:
    """The tokens of many words, linked to their neighbours; merged rank by rank, everywhere at once.

    `ids` [n + 1] holds a token at the place where it begins, -1 elsewhere; `after` and `before` are
    the places of its neighbours in the word, n where there is none.
    """

    def __init__(self, ids: Array, ends: Array) -> None:
        n = len(ids)
        self.ids = np.append(ids, -1)
        self.after = np.arange(1, n + 2, dtype=np.int32)
        self.before = np.arange(-1, n, dtype=np.int32)
        self.after[ends - 1] = self.before[ends] = n
        self.before[0] = self.after[n] = n
        self.places: dict[int, list[Array]] = {}  # rank -> where its pair may be
        self.ranks: list[int] = []  # a heap of the keys of `places`

    def note(self, at: Array, ranks: Array) -> None:
        """The pairs that begin `at` these places have these ranks, for later."""
        order = np.argsort(ranks, kind="stable")
        at, ranks = at[order], ranks[order]
        cuts = [0, *(np.flatnonzero(np.diff(ranks)) + 1).tolist(), len(at)]
        for first, last in itertools.pairwise(cuts):
            if first < last:
                rank = int(ranks[first])
                if rank not in self.places:
                    self.places[rank] = []
                    heapq.heappush(self.ranks, rank)
                self.places[rank].append(at[first:last])

    def merge(self, rank: int, left: int, right: int, made: int) -> Array:
        """Make one token of every `left` followed by `right`; the places whose pairs are now new."""
        at = np.sort(np.concatenate(self.places.pop(rank)))
        at = at[(self.ids[at] == left) & (self.ids[self.after[at]] == right)]
        if left == right:  # in aaaa the second a is taken: keep every other place of a run
            starts = np.append(True, self.after[at[:-1]] != at[1:])
            index = np.arange(len(at))
            at = at[(index - np.maximum.accumulate(np.where(starts, index, 0))) % 2 == 0]
        gone = self.after[at]
        following = self.after[gone]
        self.ids[at], self.ids[gone] = made, -1
        self.after[at], self.before[following] = following, at
        return np.unique(np.concatenate([self.before[at], at]))


class WordPiece(_Tokenizer):
    """BERT's pieces of words: the longest that fits, from the left; `##` begins those inside a word.

    `pieces` in the order of their numbers, or with them; of these `special` are found in text before
    it is cut, by default the five that begin with a bracket. With `lower`, text loses capitals and
    accents. A word of more than 100 characters, or with a rest that no piece fits, is `[UNK]`. Texts are put between `[CLS]` and `[SEP]` where the vocabulary has both. ValueError without `[UNK]`.
    Source: Devlin et al. (2019); Google's released tokenization.py.
    """

    def __init__(
        self,
        pieces: Sequence[str] | Mapping[str, int],
        lower: bool = True,
        special: Mapping[str, int | Special] | None = None,
    ) -> None:
        if not isinstance(pieces, Mapping):
            pieces = list(pieces)
            if len(set(pieces)) < len(pieces):
                raise ValueError("WordPiece: wants each piece once, got one twice")
            pieces = {piece: i for i, piece in enumerate(pieces)}
        if "[UNK]" not in pieces:
            raise ValueError("WordPiece: wants a piece [UNK], for what no other fits")
        if special is None:
            marks = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
            special = {mark: pieces[mark] for mark in marks if mark in pieces}
        super().__init__(special)
        _check_numbers([*pieces.values(), *(one.id for one in self.special.values())])
        self.vocabulary, self.lower = dict(pieces), lower
        self._pieces = {i: piece for piece, i in self.vocabulary.items()}
        if len(self._pieces) < len(self.vocabulary):
            raise ValueError("WordPiece: wants a number of its own for each piece, got one twice")
        self._longest = max(map(len, self.vocabulary))
        if "[CLS]" in pieces and "[SEP]" in pieces:
            self.before, self.after = (pieces["[CLS]"],), (pieces["[SEP]"],)

    def __len__(self) -> int:
        return 1 + max(self._pieces)

    def _encode(self, text: str) -> list[int]:
        words = _cleaned(text, self.lower)
        tokens = {word: self._word(word) for word in set(words)}
        return list(itertools.chain.from_iterable(tokens[word] for word in words))

    def _word(self, word: str) -> list[int]:
        ids: list[int] = []
        first = 0
        while first < len(word) <= 100:
            mark = "##" if first else ""
            for last in range(min(len(word), first + self._longest), first, -1):
                piece = self.vocabulary.get(mark + word[first:last])
                if piece is not None:
                    ids.append(piece)
                    first = last
                    break
            else:
                break
        return ids if first == len(word) else [self.vocabulary["[UNK]"]]

    def decode(self, ids: Iterable[int]) -> str:
        """The words of tokens with a space between them; not the text that was encoded, only close.

        `[CLS]`, `[SEP]` and `[PAD]` are left out. ValueError for a number that is no token.
        """
        words: list[str] = []
        for i in ids:
            piece = self._pieces.get(i)
            if piece is None:
                raise ValueError(f"decode: wants tokens below {len(self)}, got {i}")
            if piece.startswith("##") and words:
                words[-1] += piece[2:]
            elif piece not in ("[CLS]", "[SEP]", "[PAD]"):
                words.append(piece)
        return " ".join(words)


def _cleaned(text: str, lower: bool) -> list[str]:
    """BERT's words of a text: control characters dropped, ideographs and punctuation each alone."""
    text = text.translate(CLEAN)
    if lower:
        text = unicodedata.normalize("NFD", text).translate(PLAIN)
    return text.translate(APART).split()


def _clean(c: str) -> str:
    if c in "\t\n\r":
        return " "
    if c == "\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co"):
        return ""
    ideograph = any(first <= ord(c) <= last for first, last in IDEOGRAPHS)
    return f" {c} " if ideograph else c


def _apart(c: str) -> str:
    mark = c.isascii() and c.isprintable() and not c.isalnum() and c != " "
    return f" {c} " if mark or unicodedata.category(c)[0] == "P" else c


IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)  # as in Google's code
CLEAN, APART = _Each(_clean), _Each(_apart)
PLAIN = _Each(lambda c: "" if unicodedata.category(c) == "Mn" else c.lower())
