"""Text as numbers and back: single bytes, or pairs that a text repeats joined into longer pieces (byte-level BPE)."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from ...common.errors import refuse

__all__ = ["Bytes", "Decoder", "Pairs", "Vocabulary", "from_dict"]


class Vocabulary(Protocol):
    """What training and writing ask of a vocabulary: token `end` stands behind every document and spells nothing."""

    size: int
    end: int

    def encode(self, text: str) -> np.ndarray: ...
    def spell(self, tokens: Iterable[int]) -> bytes: ...
    def to_dict(self) -> dict: ...


class Bytes:
    """The 256 bytes of UTF-8, and the end of a document.

    >>> Bytes().encode("né").tolist()
    [110, 195, 169]
    """

    size, end = 257, 256

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8).astype(np.int64)

    def spell(self, tokens: Iterable[int]) -> bytes:
        return bytes(token for token in tokens if token != self.end)

    def to_dict(self) -> dict:
        return {"kind": "bytes"}


class Pairs:
    """Byte pair encoding (Sennrich et al., 2016) over bytes, trained and run by the `tokenizers` library.

    Nothing is normalised and nothing unknown: every text comes back byte for byte. The end of a document is a number
    beyond the library's own, so that no text can spell it.

    >>> pairs = Pairs.train(["the theme of the thesis"], size=260)
    >>> pairs.spell(pairs.encode("the thesis")), pairs.size
    (b'the thesis', 260)
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.end = tokenizer.get_vocab_size()
        self.size = self.end + 1
        letters = {letter: byte for byte, letter in enumerate(_letters())}
        words = (tokenizer.id_to_token(number) for number in range(self.end))
        self.pieces = [bytes(letters[letter] for letter in word) for word in words] + [b""]

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Pairs:
        """A vocabulary of `size` tokens, the end included; smaller where the texts repeat too little."""
        if size < Bytes.size:
            raise refuse(
                "train",
                "a vocabulary that is too small",
                given=f"{size} tokens",
                expected=f"at least {Bytes.size}: every byte, and the end of a document",
                fix="raise --vocabulary, or use --tokenizer bytes",
            )
        tokenizers = _library()
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
        made.train_from_iterator(
            texts, tokenizers.trainers.BpeTrainer(vocab_size=size - 1, initial_alphabet=alphabet, show_progress=False)
        )
        return cls(made)

    def encode(self, text: str) -> np.ndarray:
        return np.array(self.tokenizer.encode(text).ids, np.int64)

    def spell(self, tokens: Iterable[int]) -> bytes:
        return b"".join(self.pieces[token] for token in tokens)

    def to_dict(self) -> dict:
        return {"kind": "bpe", "tokenizer": json.loads(self.tokenizer.to_str())}


class Decoder:
    """Tokens to text as they come: a letter whose bytes are not all there yet waits for the rest.

    >>> decoder = Decoder(Bytes())
    >>> [decoder.more([token]) for token in "né".encode()]
    ['n', '', 'é']
    """

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.waiting = codecs.getincrementaldecoder("utf-8")("replace")

    def more(self, tokens: Sequence[int]) -> str:
        return self.waiting.decode(self.vocabulary.spell(tokens))

    def rest(self) -> str:
        """What is left when nothing follows: bytes that never became a letter are shown as �."""
        return self.waiting.decode(b"", final=True)


def from_dict(found: dict) -> Vocabulary:
    """The vocabulary that `to_dict` described."""
    if found["kind"] == "bytes":
        return Bytes()
    tokenizers = _library()
    return Pairs(tokenizers.Tokenizer.from_str(json.dumps(found["tokenizer"])))


def _library():
    try:
        import tokenizers
    except ImportError as error:
        raise refuse(
            "vocabulary",
            "byte pairs without their library",
            given=str(error),
            expected="the package tokenizers",
            fix="pip install 'regard[train]'",
        ) from error
    return tokenizers


def _letters() -> list[str]:
    """The letter that stands for each byte in a byte-level tokenizer: itself where it is visible, else one from 256
    on.
    """
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in shown else next(spare)) for byte in range(256)]
