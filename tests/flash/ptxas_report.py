#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what ptxas said of every kernel: ptxas_report.py TABLE REPORT...

Kernels named in SPILLS spill at most so many bytes, what nvcc 13.0 made of them, the others none. Prints the table and writes it to TABLE.
"""
import re
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
# attend<query, cache (S3_: the same; h: 8-bit codes), head, prefill>. Spilled are loop invariants, and where codes are widened, between
# two barriers with nothing else alive but the sums, addresses.
ATTEND = r"sm806attendI(?:13__nv_bfloat16|6__half)%sLi%dELb%dEEE"
SPILLS = [  # a pattern of the mangled name, bytes stored by architecture
    (r"5mergeENS0_5MergeE$", {"sm_80": 16}),  # nvcc holds this short kernel at 32 registers
    (ATTEND % ("S3_", 128, 1), {"sm_80": 56, "sm_90": 56}),  # 255 registers, so that two blocks share a multiprocessor
    (ATTEND % ("S3_", 256, 1), {"sm_80": 60, "sm_90": 36}),
    (ATTEND % ("h", 128, 0), {"sm_90": 40}),
    (ATTEND % ("h", 128, 1), {"sm_90": 148}),
    (ATTEND % ("h", 256, 0), {"sm_90": 276}),
    (ATTEND % ("h", 256, 1), {"sm_90": 92}),
]


def allowed_spill(name, arch):
    return next((bytes_of.get(arch, 0) for pattern, bytes_of in SPILLS if re.search(pattern, name)), 0)


def kernels(path):
    name = arch = spill = None
    with open(path, encoding="utf-8") as f:
        for line in f:
            if m := ENTRY.search(line):
                name, arch = m.groups()
            elif m := SPILL.search(line):
                spill = int(m.group(1))
            elif (m := USED.search(line)) and name:
                yield name, arch, int(m.group(1)), spill
                name = None


def main():
    table, *reports = sys.argv[1:]
    lines, problems = [], []
    for path in reports:
        found = list(kernels(path))
        if not found:
            problems.append(f"{path}: no kernel in the report")
        for name, arch, registers, spill in found:
            lines.append(f"{arch:6} {registers:3} registers {spill:4} bytes spilled  {name}")
            if spill > allowed_spill(name, arch):
                problems.append(f"{name} ({arch}): {spill} bytes spilled; allowed: {allowed_spill(name, arch)}")
    lines.sort()
    with open(table, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    print("\n".join(lines + problems))
    print(f"{len(lines)} kernels in {table}, {len(problems)} problems")
    return 1 if problems or not lines else 0


if __name__ == "__main__":
    sys.exit(main())
