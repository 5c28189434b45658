#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Enforces who may include whom (the table in README.md, "The tree").

  check_includes.py ROOT          checks the tree, prints each breach, exits 1 if there is one
  check_includes.py --self-test   plants one breach of each rule in a temporary tree and wants it found
"""
import os
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
C_STANDARD = {"stddef.h", "stdint.h", "stdarg.h", "stdio.h", "string.h", "stdbool.h", "float.h", "limits.h", "math.h"}
SDK_C = {"types.h", "problem.h", "kv_cache.h", "attention.h", "host.h", "device.h", "backend.h", "plugin.h", "util.h"}
# Order of the interface headers: each may include those to its left only.
SDK_ORDER = ["types.h", "problem.h", "kv_cache.h", "attention.h", "host.h", "device.h", "backend.h", "plugin.h", "util.h"]
PLUGIN_TABLES = {"anyattn/backend.h", "anyattn/plugin.h", "anyattn/host.h", "anyattn/device.h", "anyattn/util.h"}
# Core parts, top down: a part may include itself, parts below it, and the leaves.
CORE_LEVEL = {"helper": 9, "api": 8, "step": 7, "cache": 6, "memory": 6, "selector": 5, "registry": 4, "loader": 3,
              "discovery": 2, "probe": 1, "inspect": 1, "trust": 1}
CORE_LEAVES = {"config", "device", "log"}
SOURCES = (".h", ".hpp", ".cc", ".c", ".cu", ".cuh", ".inc")


def includes(path):
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            m = INCLUDE.match(line)
            if m:
                yield number, m.group(1), m.group(2)


def core_part(include):
    head = include.split("/")[0]
    return head if head in CORE_LEVEL or head in CORE_LEAVES else None


def check_file(root, rel):
    """Yields (line, text) for each breach of one file."""
    parts = rel.split("/")
    core_public = set(os.listdir(os.path.join(root, "core/include/anyattn"))) if os.path.isdir(
        os.path.join(root, "core/include/anyattn")) else set()
    for line, kind, inc in includes(os.path.join(root, rel)):
        base = inc[len("anyattn/"):] if inc.startswith("anyattn/") else None
        part = core_part(inc) if kind == '"' else None
        public = base in core_public if base else False
        if rel.startswith("sdk/include/"):
            if base in SDK_C:
                me = parts[-1]
                # Headers above attention.h see what stands left of them; host.h needs types only.
                if SDK_ORDER.index(base) >= SDK_ORDER.index(me):
                    yield line, f"{me} includes {base}, which stands above it"
            elif inc not in C_STANDARD:
                yield line, f"an interface header includes {inc}: C standard headers and each other only"
        elif rel.startswith("sdk/"):
            if part or public:
                yield line, f"the SDK includes {inc} of the core"
            if inc.startswith("plugins/"):
                yield line, f"the SDK includes {inc} of a plugin"
        elif rel.startswith("core/include/"):
            if inc in PLUGIN_TABLES:
                yield line, f"a public header of the core includes the plugin table {inc}"
            if part:
                yield line, f"a public header of the core includes its private {inc}"
        elif rel.startswith("core/"):
            me = parts[1]
            if inc.startswith(("plugins/", "tools/")):
                yield line, f"the core includes {inc}"
            if inc.startswith("yaml-cpp/") and me != "config":
                yield line, f"{inc} outside core/config"
            if (inc.startswith("boost/dll") or inc == "dlfcn.h") and me not in ("loader",) and rel != "core/api/library_path.cc":
                yield line, f"{inc} outside core/loader"
            if part and part != me and part not in CORE_LEAVES:
                if me in CORE_LEAVES:
                    yield line, f"the leaf {me} includes {inc}"
                elif CORE_LEVEL[part] >= CORE_LEVEL[me]:
                    yield line, f"{me} includes {inc}, which is not below it"
        elif rel.startswith("plugins/"):
            if part or public:
                yield line, f"a plugin includes {inc} of the core"
            m = re.match(r"(?:plugins/|\.\./)([a-z0-9_]+)/", inc)
            if m and m.group(1) != parts[1] and not m.group(1).endswith("_common"):
                yield line, f"plugin {parts[1]} includes {inc} of another"
        elif rel.startswith("tools/"):
            if part:
                yield line, f"a tool includes the core's private {inc}"
            if inc.startswith("plugins/"):
                yield line, f"a tool includes {inc} of a plugin"


def dlopen_files(root):
    """dlopen in one file of the core only."""
    found = []
    for rel in sources(root, ["core"]):
        with open(os.path.join(root, rel), encoding="utf-8") as f:
            if re.search(r"\bdlopen\s*\(|boost/dll/shared_library", f.read()):
                found.append(rel)
    return found


def sources(root, tops):
    for top in tops:
        for folder, dirs, files in os.walk(os.path.join(root, top)):
            dirs.sort()
            for name in sorted(files):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def check(root):
    breaches = []
    count = 0
    for rel in sources(root, ["sdk", "core", "plugins", "tools"]):
        count += 1
        breaches += [f"{rel}:{line}: {text}" for line, text in check_file(root, rel)]
    opening = dlopen_files(root)
    if len(opening) > 1:
        breaches.append(f"dynamic libraries are opened in {len(opening)} files of the core: {', '.join(opening)}")
    return count, breaches


def self_test():
    planted = [
        ("sdk/include/anyattn/types.h", '#include "anyattn/problem.h"'),
        ("sdk/include/anyattn/problem.h", "#include <vector>"),
        ("sdk/cpp/include/anyattn/a.hpp", '#include "registry/registry.h"'),
        ("core/include/anyattn/runtime.h", '#include "anyattn/backend.h"'),
        ("core/registry/registry.cc", '#include "selector/selector.h"'),
        ("core/config/read.cc", '#include "loader/plugin.h"'),
        ("core/step/step.cc", "#include <yaml-cpp/yaml.h>"),
        ("core/api/api.cc", "#include <dlfcn.h>"),
        ("core/cache/cache.cc", '#include "memory/memory.h"'),
        ("plugins/cpu/a.cc", '#include "selector/selector.h"'),
        ("plugins/cpu/b.cc", '#include "plugins/other/b.h"'),
        ("tools/list.cc", '#include "registry/registry.h"'),
    ]
    failed = 0
    for rel, text in planted:
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(rel)))
            with open(os.path.join(root, rel), "w", encoding="utf-8") as f:
                f.write(text + "\n")
            if len(check(root)[1]) != 1:
                print(f"not found: {rel}: {text}")
                failed += 1
    print(f"{len(planted) - failed} of {len(planted)} planted breaches found")
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    count, breaches = check(sys.argv[1])
    for breach in breaches:
        print(breach)
    print(f"{count} files, {len(breaches)} breaches")
    if count == 0:
        print("no file found: wrong root?")
    return 1 if breaches or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
