#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""anyattn-conformance as a program: program_test.py PROGRAM NAIVE_DIR [PRETENDED_DEVICE_PLUGIN]"""
import json
import os
import subprocess
import sys
import tempfile

PROGRAM, NAIVE, *PRETENDED = sys.argv[1:]
failures = []


def run(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


def want(claim, holds, seen=""):
    if not holds:
        failures.append(claim)
        print(f"FAILED: {claim}\n{seen}")


def plugin(name):
    return os.path.join(NAIVE, name, f"anyattn_{name}.so")


code, out, _ = run("--help")
want("help ends with 0 and names the words of a case", code == 0 and "window" in out and "--case" in out, out)
code, out, _ = run("--list")
want("list prints names and texts", code == 0 and "bug/1_nan_behind_the_last_key/float32\tpaged float32" in out, out[:300])
for words, text in [((), "FILE is missing"), (("--grid", "huge", "x"), "allowed: small, full"), (("--wrong",), "unknown argument"),
                    (("x", "--jobs", "0"), "--jobs 0: allowed: 1 to 1024"), (("x", "--within", "soon"), "--within soon: write a number"),
                    (("x", "--in-process", "--jobs", "2"), "leave out --jobs and --within"),
                    ((plugin("naive"), "--case", "pagd float32 lens=1/1"), "kind 'pagd' is unknown"),
                    ((plugin("naive"), "--only", "teleport*"), "no case is named like"), (("/nonexistent.so",), "no such file")]:
    code, out, err = run(*words)
    want(f"wrong use {words} ends with 2 and says '{text}'", code == 2 and text in err, err)

with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "report.json")
    code, out, err = run(plugin("window_off_by_one"), "--backend", "NAIVE_ATTN", "--only", "feature/*", "--json", file)
    want("a wrong backend ends with 1", code == 1, out + err)
    want("a failure prints its case to paste back", '--case "paged float32' in out, out)
    want("the wrong feature is named", "announced but wrong: window" in out, out)
    with open(file, encoding="utf-8") as f:
        report = json.load(f)
    backend = report["backends"][0]
    want("JSON names the backend and the verdicts", backend["backend"] == "NAIVE_ATTN" and backend["failed"] > 0, str(backend)[:400])
    want("JSON names the wrong features", backend["wrong_features"] == ["window"], str(backend["wrong_features"]))
    refused = [c for c in backend["cases"] if c["verdict"] == "refused"]
    want("JSON gives reasons of refusals", refused and refused[0]["reasons"][0]["field"] == "mla", str(refused)[:400])

# A process of its own: nothing but the two files is loaded.
company = ("--backend", "NAIVE_ATTN", "--only", "feature/plain*", "--beside", plugin("naive"))
code, out, err = run(plugin("mutant"), *company, "--option", "mutation=wrong_in_company", "--verbose")
want("a plugin that another one disturbs is found by load order", code == 1 and "NOT RIGHT" in out, out + err)
want("alone and opened first it is right", "passed feature/plain/float32" in out and "passed beside/first/NAIVE_ATTN/float32" in out, out)
want("the order that fails is named", "FAILED beside/second/NAIVE_ATTN/float32: beside " + plugin("naive") in out, out)
code, out, err = run(plugin("mutant"), *company)
want("a sound one is right in both orders", code == 0 and "opened before it and behind it: right" in out, out + err)
code, out, err = run(plugin("mutant"), "--backend", "NAIVE_ATTN", "--only", "feature/plain*", "--beside", "/nonexistent.so")
want("company that does not open is not the plugin's fault", code == 0 and "not tried" in out and "no such file" in out, out + err)
code, out, err = run(plugin("mutant"), "--backend", "NAIVE_ATTN", "--only", "truth/*", "--seed", "7")
want("the seed of the random problems is shown", code == 0 and "128 random problems (seed 7)" in out and " 0 untrue" in out, out + err)

code, out, err = run(plugin("naive"), "--backend", "NAIVE_ATTN", "--case", "paged bfloat16 q=4 kv=2 d=64 lens=3/40 window=7 lse=base2")
want("a pasted case passes with a right backend", code == 0 and "1 passed" in out, out + err)

# Graphs, on a device without hardware: a backend that keeps the lengths a capture saw must be found.
for file in PRETENDED:
    for backend, passed in (("QUEUED_ATTN", 20), ("QUEUED_MLA", 3)):
        code, out, err = run(file, "--device", "cuda:0", "--backend", backend, "--only", "graph/*", "--jobs", "2")
        want(f"replays of {backend} are compared", code == 0 and f" {passed} passed" in out, out + err)
    frozen = (file, "--device", "cuda:0", "--backend", "QUEUED_ATTN", "--only", "graph/*bfloat16", "--option", "frozen=yes", "--jobs", "2")
    code, out, err = run(*frozen)
    want("a batch frozen into a graph is found", code == 1 and " 0 passed" in out and "replay 1 of" in out, out + err)

# Without graphs a must-pass list may have such cases.
with tempfile.TemporaryDirectory() as folder:
    must_pass = os.path.join(folder, "list.txt")
    with open(must_pass, "w", encoding="utf-8") as f:
        f.write("graph/replay/*\n")
    code, out, err = run(plugin("naive"), "--backend", "NAIVE_ATTN", "--only", "graph/replay/*", "--must-pass", must_pass)
    want("the CPU captures no graphs, and may", code == 0 and "3 not offered" in out, out + err)
sys.exit(1 if failures else 0)
