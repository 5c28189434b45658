#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""frozen_runs.py ANYATTN PLUGIN: a configuration that names only PLUGIN; `anyattn run` on it must choose FROZEN_ATTN and agree
with the reference."""
import json
import os
import shutil
import subprocess
import sys
import tempfile


def main():
    anyattn, plugin = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        plugins = os.path.join(folder, "plugins")
        os.mkdir(plugins, 0o755)
        shutil.copy(plugin, plugins)
        config = os.path.join(folder, "frozen.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write("version: 1\nplugins:\n  search: [plugins]\nselection:\n  backend: FROZEN_ATTN\n")
        run = subprocess.run([anyattn, "run", "--config", config, "--model", "Llama-3.2-1B", "--trace", "builtin:chat",
                              "--requests", "2", "--max-prompt", "64", "--layers", "1", "--dtype", "float32", "--json"],
                             capture_output=True, text=True, check=False)
        if run.returncode != 0:
            print(run.stderr)
            return 1
        report = json.loads(run.stdout)
        chosen = [entry["backend"] for entry in report["backends"]]
        print(f"{chosen}, {report['checked_rows']} rows checked, worst error {report['worst_error_over_bound']:.3g} of its bound")
        good = chosen == ["FROZEN_ATTN"] and report["checked_rows"] > 0 and report["worst_error_over_bound"] <= 1
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
