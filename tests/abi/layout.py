#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The golden list of the binary interface: every constant, and every struct, field, offset and size.

  layout.py --headers DIR --cc CC --golden FILE           compares, prints each difference, exits 1 if there is one
  layout.py --headers DIR --cc CC --golden FILE --write   rewrites the list (an ABI change edits ABI.md with it)
  layout.py --headers DIR --cc CC --golden FILE --mutate  changes a copy of the headers in ways that break old binaries and
                                                          wants each one caught

Names come from reading the headers, numbers from the compiler. A field that the reader missed shows as a hole: fields must
follow each other with no more than alignment between them, and the last one must end at the struct's *_SIZE.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

FROZEN = {"anyattn_tensor", "anyattn_error"}


def read(headers):
    """Returns constants [name] and structs {name: [field]} in order of appearance."""
    constants, structs = [], {}
    for name in sorted(os.listdir(headers)):
        text = open(os.path.join(headers, name), encoding="utf-8").read()
        constants += re.findall(r"^#define (ANYATTN_[A-Z0-9_]+) (?!_)[^\\\n]+$", text, re.M)
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for struct, body in re.findall(r"typedef struct (\w+) \{(.*?)\n\} \1;", text, re.S):
            fields = []
            for declaration in body.split(";"):
                declaration = " ".join(declaration.split())
                if not declaration:
                    continue
                pointer = re.match(r".*?\(\*(\w+)\)\(", declaration)
                if pointer:
                    fields.append(pointer.group(1))
                    continue
                for part in declaration.split(","):
                    fields.append(re.search(r"(\w+)(\[[^\]]*\])?\s*$", part.strip()).group(1))
            structs[struct] = fields
    skip = re.compile(r"^ANYATTN_(API|EXPORT|\w+_H)$")
    return [c for c in constants if not skip.match(c)], structs


def measure(headers, cc):
    """The list as text, made by compiling and running a C program against the headers."""
    constants, structs = read(headers)
    lines = ["#include <stdio.h>", '#include "anyattn/plugin.h"', '#include "anyattn/util.h"', "int main(void) {"]
    for name in constants:
        if name == "ANYATTN_PLUGIN_ENTRY_NAME":
            lines.append(f'  printf("constant {name} %s\\n", {name});')
        elif not re.search(r"_SIZE$", name) or name in ("ANYATTN_REASON_HEAD_SIZE", "ANYATTN_REASON_BLOCK_SIZE",
                                                         "ANYATTN_REASON_MLA_SIZE"):
            lines.append(f'  printf("constant {name} %llu\\n", (unsigned long long)({name}));')
    for struct, fields in structs.items():
        lines.append(f'  printf("struct {struct} %zu align %zu\\n", sizeof({struct}), _Alignof({struct}));')
        for field in fields:
            lines.append(f'  printf("  {struct}.{field} %zu %zu\\n", offsetof({struct}, {field}), '
                         f"sizeof((({struct}*)0)->{field}));")
        if struct not in FROZEN:
            macro = struct.upper() + "_SIZE"
            lines.append(f'  printf("  {struct} known to %u\\n", (unsigned)({macro}));')
    lines += ["  return 0;", "}"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
        include = os.path.dirname(os.path.abspath(headers))
        subprocess.run([cc, "-std=c11", "-I", include, source, "-o", program], check=True, capture_output=True, text=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def holes(text):
    """Breaches of the layout rules themselves: holes, a missing struct_size, a stale *_SIZE."""
    found, end, struct, fields = [], 0, None, 0
    for line in text.splitlines():
        if line.startswith("struct "):
            struct, end, fields = line.split()[1], 0, 0
        elif m := re.match(r"  (\w+)\.(\w+) (\d+) (\d+)$", line):
            offset, size = int(m.group(3)), int(m.group(4))
            if fields == 0 and struct not in FROZEN and m.group(2) != "struct_size":
                found.append(f"{struct}: the first field is {m.group(2)}, not struct_size")
            if offset < end or offset - end >= 8:
                found.append(f"{struct}.{m.group(2)}: starts at {offset}, the field before ends at {end}")
            elif offset != end:
                found.append(f"{struct}.{m.group(2)}: {offset - end} bytes of unnamed padding before it")
            end, fields = offset + size, fields + 1
        elif m := re.match(r"  (\w+) known to (\d+)$", line):
            if int(m.group(2)) != end:
                found.append(f"{m.group(1)}: its *_SIZE is {m.group(2)}, its last field ends at {end}")
    return found


def difference(want, got):
    want, got = want.splitlines(), got.splitlines()
    return [f"- {line}" for line in want if line not in got] + [f"+ {line}" for line in got if line not in want]


def mutations(headers):
    """(what, file, old, new): each breaks plugins that exist."""
    backend = open(os.path.join(headers, "backend.h"), encoding="utf-8").read()
    slot = re.search(r"  int32_t \(\*memory\)\(.*?\);\n", backend, re.S).group(0)
    create = re.search(r"  int32_t \(\*metadata_update\)\(.*?\);\n", backend, re.S).group(0)
    destroy = re.search(r"  void \(\*metadata_destroy\)\(.*?\);[^\n]*\n", backend, re.S).group(0)
    return [
        ("a slot inserted in the middle", "backend.h", slot, "  int32_t (*inserted)(void);\n" + slot),
        ("two slots swapped", "backend.h", create + destroy, destroy + create),
        ("a field inserted in the middle", "problem.h", "  uint32_t num_kv_heads;", "  uint32_t inserted;\n  uint32_t num_kv_heads;"),
        ("a field widened", "attention.h", "  int64_t block_table_stride;", "  uint32_t block_table_stride;"),
        ("a constant renumbered", "problem.h", "#define ANYATTN_FEATURE_SINKS 7u", "#define ANYATTN_FEATURE_SINKS 8u"),
        ("a slot removed", "backend.h", destroy, ""),
    ]


def mutate(headers, cc, golden):
    missed = 0
    cases = mutations(headers)
    for what, name, old, new in cases:
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "anyattn")
            os.makedirs(copy)
            for file in os.listdir(headers):
                text = open(os.path.join(headers, file), encoding="utf-8").read()
                if file == name:
                    if old not in text:
                        print(f"{what}: the text to change is not in {name}")
                        missed += 1
                        continue
                    text = text.replace(old, new, 1)
                with open(os.path.join(copy, file), "w", encoding="utf-8") as f:
                    f.write(text)
            caught = bool(difference(golden, measure(copy, cc)))
            print(f"{what}: {'caught' if caught else 'MISSED'}")
            missed += not caught
    return missed


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--headers", required=True)
    p.add_argument("--golden", required=True)
    p.add_argument("--cc", default="cc")
    p.add_argument("--write", action="store_true")
    p.add_argument("--mutate", action="store_true")
    a = p.parse_args()
    got = measure(a.headers, a.cc)
    if a.write:
        with open(a.golden, "w", encoding="utf-8") as f:
            f.write(got)
        return 0
    golden = open(a.golden, encoding="utf-8").read()
    if a.mutate:
        return 1 if mutate(a.headers, a.cc, golden) else 0
    problems = difference(golden, got) + holes(got)
    for line in problems:
        print(line)
    structs = got.count("\nstruct ")
    print(f"{structs} structs, {got.count('constant ')} constants, {len(problems)} differences")
    return 1 if problems or structs < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
