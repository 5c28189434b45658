#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the text of every tracked file.

  check_text.py ROOT format   sources are as clang-format-19 writes them
  check_text.py ROOT spdx     sources and scripts carry one SPDX line in their first two lines
  check_text.py ROOT paths    no file names a place on somebody's machine
"""
import os
import re
import shutil
import subprocess
import sys

SOURCES = (".h", ".hpp", ".cc", ".c", ".cu", ".cuh", ".inc")
SCRIPTS = (".py", ".sh", ".cmake", "CMakeLists.txt")
MACHINE = re.compile(r"/(?:work|home/\w+|tmp/bash_jobs)/")


def tracked(root):
    """Tracked files; outside a repository (an exported tree), every file outside build folders."""
    git = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False)
    if git.returncode == 0 and git.stdout:
        return [name for name in git.stdout.splitlines() if os.path.isfile(os.path.join(root, name))]
    found = []
    for folder, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if d not in ("build", ".git")]
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return found


def check_format(root, files):
    if not shutil.which("clang-format-19"):
        if os.environ.get("ANYATTN_REQUIRE_ALL") == "1":
            return ["clang-format-19 is missing: apt-get install clang-format-19"]
        print("SKIPPED: clang-format-19 is missing: apt-get install clang-format-19")
        return []
    paths = [os.path.join(root, f) for f in files if f.endswith(SOURCES) and "/frozen/" not in f]
    run = subprocess.run(["clang-format-19", "--dry-run", "--Werror", "-style=file", *paths], capture_output=True, text=True,
                         check=False)
    return sorted({line.split(":")[0] + ": run clang-format-19 -i" for line in run.stderr.splitlines()
                   if "clang-format-violations" in line})


def check_spdx(root, files):
    problems = []
    for name in files:
        path = os.path.join(root, name)
        script = name.endswith(SCRIPTS)
        if not script and not name.endswith(SOURCES):
            with open(path, "rb") as f:
                script = f.read(2) == b"#!"
        if not (script or name.endswith(SOURCES)):
            continue
        with open(path, encoding="utf-8") as f:
            head = f.readlines()[:2]
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in head):
            problems.append(f"{name}: no SPDX line in the first two lines")
    return problems


def check_paths(root, files):
    problems = []
    for name in files:
        if name == "tests/quality/check_text.py":
            continue
        try:
            with open(os.path.join(root, name), encoding="utf-8") as f:
                for number, line in enumerate(f, 1):
                    if MACHINE.search(line):
                        problems.append(f"{name}:{number}: {line.strip()[:100]}")
        except UnicodeDecodeError:
            continue
    return problems


def main():
    root, check = sys.argv[1:]
    files = tracked(root)
    problems = {"format": check_format, "spdx": check_spdx, "paths": check_paths}[check](root, files)
    for problem in problems:
        print(problem)
    print(f"{check}: {len(files)} files, {len(problems)} problems")
    return 1 if problems or len(files) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
