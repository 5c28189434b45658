#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the sources changed lately, newest first; says how many older ones it left out.

  tidy.py ROOT BUILD [--files N] [--jobs N] [--all]

Changed: by commits of the twelve hours before the newest one, and by the working tree; at most N files (a count, so that a slow
machine checks the same ones). Runs where ANYATTN_REQUIRE_ALL=1, or with --all over every source.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
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
    p.add_argument("--files", type=int, default=14)
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

    left = [] if a.all else wanted[a.files:]
    wanted = wanted[:len(wanted) - len(left)]
    failed = []

    def run(name):
        tidy = subprocess.run([TIDY, "--quiet", "-p", database.name, "--extra-arg=-Wno-unknown-warning-option", os.path.join(a.root, name)],
                              capture_output=True, text=True, check=False)
        if tidy.returncode != 0:
            failed.append(name)
            print(tidy.stdout)

    with ThreadPoolExecutor(a.jobs) as pool:
        list(pool.map(run, wanted))
    print(f"{len(wanted)} files, {len(failed)} with findings, {len(left)} older changes left out")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
