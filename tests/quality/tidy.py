#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the sources changed lately, newest first, within a time budget; says which were left out.

  tidy.py ROOT BUILD [--seconds N] [--jobs N] [--all]

Changed: by commits of the twelve hours before the newest one, and by the working tree. Runs where ANYATTN_REQUIRE_ALL=1.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

TIDY = "clang-tidy-19"


def git(root, *words):
    return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout


def changed(root):
    newest = int(git(root, "log", "-1", "--format=%ct").strip())
    log = git(root, "log", f"--since={newest - 12 * 3600}", "--name-only", "--format=")
    names = git(root, "diff", "--name-only", "HEAD") + log
    return list(dict.fromkeys(name for name in names.splitlines() if name))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("root")
    p.add_argument("build")
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--all", action="store_true")
    a = p.parse_args()
    required = os.environ.get("ANYATTN_REQUIRE_ALL") == "1"
    if not required and not a.all:
        print("SKIPPED: clang-tidy runs where ANYATTN_REQUIRE_ALL=1, or with --all")
        return 0
    if not shutil.which(TIDY):
        print(f"{TIDY} is missing: apt-get install {TIDY}")
        return 1
    with open(os.path.join(a.build, "compile_commands.json"), encoding="utf-8") as f:
        commands = f.read()
    known = [os.path.relpath(os.path.realpath(entry["file"]), os.path.realpath(a.root)) for entry in json.loads(commands)]
    # clang refuses this option of g++, and every plugin is compiled with it.
    database = tempfile.TemporaryDirectory()
    with open(os.path.join(database.name, "compile_commands.json"), "w", encoding="utf-8") as f:
        f.write(commands.replace(" -fno-gnu-unique", ""))
    wanted = known if a.all else [name for name in changed(a.root) if name in set(known)]
    wanted = [name for name in dict.fromkeys(wanted) if name.startswith(("sdk/", "core/", "plugins/", "tools/"))]

    start, failed, left = time.monotonic(), [], []

    def run(name):
        if time.monotonic() - start > a.seconds:
            left.append(name)
            return
        tidy = subprocess.run([TIDY, "--quiet", "-p", database.name, "--extra-arg=-Wno-unknown-warning-option", os.path.join(a.root, name)],
                              capture_output=True, text=True, check=False)
        if tidy.returncode != 0:
            failed.append(name)
            print(tidy.stdout)

    with ThreadPoolExecutor(a.jobs) as pool:
        list(pool.map(run, wanted))
    if left:
        print(f"left out after {a.seconds:.0f} s: {', '.join(left)}")
    print(f"{len(wanted) - len(left)} files, {len(failed)} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
