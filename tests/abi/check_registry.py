#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ABI.md is true: its registry holds every number of the headers, and every test it names exists; so do the fakes and tests of
tests/fake_plugins/README.md.

  check_registry.py ROOT
"""
import os
import re
import sys


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as f:
        return f.read()


def test_names(root):
    names = set()
    for top in ("tests", "sdk", "plugins", "tools"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for file in files:
                if file.endswith((".cc", ".cpp", ".txt", ".cmake", ".c")):
                    text = read(folder, file)
                    names |= set(re.findall(r'TEST_CASE\w*\("(\w+)"', text))
                    names |= set(re.findall(r"NAME ([\w.]+)", text))
    return names


def fakes_of(cmake):
    for loop in re.finditer(r"foreach\((\w+) ([^)]*)\)(.*?)endforeach", cmake, re.S):
        for item in loop[2].split():
            cmake += loop[3].replace("${%s}" % loop[1], item)
    return set(re.findall(r"anyattn_add_fake\((\w+)|add_library\(fake_(\w+) MODULE", cmake))


def table_of_fakes(root, have):
    page = read(root, "tests/fake_plugins/README.md")
    fakes = {one or other for one, other in fakes_of(read(root, "tests/fake_plugins/CMakeLists.txt"))}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")][2:]
    problems = [f"no row for C{n} in the table of fakes" for n in range(1, 26) if f"C{n}" not in {row[0] for row in rows}]
    for case, _, played, tests, _ in rows:
        problems += [f"{case}: there is no fake {name}" for name in re.findall(r"`(\w+)`", played) if name not in fakes]
        problems += [f"{case}: there is no test {name}" for name in re.findall(r"`([\w.]+)`", tests) if name not in have]
    return problems


def main():
    root = sys.argv[1]
    page = read(root, "sdk/ABI.md")
    headers = {name: read(root, "sdk/include/anyattn", name) for name in os.listdir(os.path.join(root, "sdk/include/anyattn"))}
    problems = []

    rows = dict(re.findall(r"^\| (\d+) \| (\w+) \| 0\.\d+ \|", page, re.M))
    for name, number in re.findall(r"#define ANYATTN_FEATURE_(\w+) (\d+)u", headers["problem.h"]):
        if name not in ("COUNT", "WORDS") and rows.get(number) != name.lower():
            problems.append(f"feature bit {number} is {name.lower()} in problem.h and {rows.get(number)} in ABI.md")
    reasons = dict(re.findall(r"^\| (\d+) \| (\w+) \| [^|]+\|$", page.split("### Reasons")[1], re.M))
    for name, number in re.findall(r"#define ANYATTN_REASON_(\w+) (\d+)u", headers["backend.h"]):
        if reasons.get(number) != name.lower():
            problems.append(f"reason {number} is {name.lower()} in backend.h and {reasons.get(number)} in ABI.md")
    for name, number in re.findall(r"#define ANYATTN_PLANE_(\w+) (\d+)u", headers["kv_cache.h"]):
        if f"{name} {number}" not in page:
            problems.append(f"plane role {name} {number} is not in ABI.md")
    for name, number in re.findall(r"#define ANYATTN_DEVICE_(CPU|CUDA|HIP) (\d+)u", headers["types.h"]):
        if f"{name.lower()} {number}" not in page:
            problems.append(f"device kind {name.lower()} {number} is not in ABI.md")
    for name, code, bits in re.findall(r"#define ANYATTN_DTYPE_(\w+) ANYATTN_DTYPE\((\d+), (\d+)\)", headers["types.h"]):
        if f"{name.lower()} ({code}, {bits})" not in page:
            problems.append(f"dtype {name.lower()} ({code}, {bits}) is not in ABI.md")
    minor = re.search(r"#define ANYATTN_ABI_MINOR (\d+)u", headers["types.h"]).group(1)
    if f"\n- 0.{minor}:" not in page:
        problems.append(f"ABI.md has no line for minor 0.{minor}")

    have, shown = test_names(root), 0
    for rule, cells in re.findall(r"^\| (ABI-\d+) \|(.*)\|$", page, re.M):
        named = re.findall(r"`([\w.]+)`", cells.split("|")[-1])
        shown += bool(named)
        problems += [f"{rule} names the test {name}, which does not exist" for name in named if name not in have]

    problems += table_of_fakes(root, have)

    for problem in problems:
        print(problem)
    print(f"{len(rows)} features, {len(reasons)} reasons, {shown} rules with a test, {len(problems)} problems")
    return 1 if problems or shown < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
