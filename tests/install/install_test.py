#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs, moves the tree, and uses it as strangers do: a plugin's author with the sdk component only, an engine with both.

  install_test.py --build DIR --work DIR --cmake FILE

Wants: the template plugin builds from the installed sdk alone and passes the kit; no file names where it was installed; the
default configuration finds the installed plugins, a stranger's among them; engines in C and C++ build and compute.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

TEMPLATE = "TEMPLATE_ATTN"


class Failure(Exception):
    pass


def run(*command, code=0, env=None):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=env)
    if done.returncode != code:
        raise Failure(f"{' '.join(map(str, command))}: exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def want(condition, text):
    if not condition:
        raise Failure(text)


class Test:
    def __init__(self, a):
        self.a = a
        self.moved = os.path.join(a.work, "moved")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ANYATTN_")}

    def path(self, *names):
        return os.path.join(self.a.work, *names)

    def build(self, source, build, prefix, code=0):
        """Configures and builds an outside project against an installed prefix."""
        configure = [self.a.cmake, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_INSTALL_PREFIX={prefix}",
                     "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF"]
        run(*configure, code=code)
        if code == 0:
            run(self.a.cmake, "--build", build)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)
        return self.path(name)

    def command(self, *words):
        return run(os.path.join(self.moved, "bin", "anyattn"), *words, env=self.environment)

    def sdk_alone(self):
        prefix = self.path("sdk_only")
        run(self.a.cmake, "--install", self.a.build, "--prefix", prefix, "--component", "sdk")
        want(not os.path.exists(os.path.join(prefix, "include/anyattn/runtime.h")), "the sdk component holds the engine's header")
        shutil.copytree(os.path.join(prefix, "share/anyattn/template"), self.path("template"))
        with open(self.path("template", "template_attn.c"), encoding="utf-8") as f:
            want(len(f.readlines()) <= 200, "the template has more than 200 lines")
        self.build(self.path("template"), self.path("template_build"), prefix)
        consumer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "consumer")
        self.build(consumer, self.path("refused"), prefix, code=1)
        checker = os.path.join(prefix, "bin", "anyattn-conformance")
        run(checker, self.path("template_build/plugins/template/anyattn_template.so"), env=self.environment)

    def install_and_move(self):
        run(self.a.cmake, "--install", self.a.build, "--prefix", self.path("prefix"))
        os.rename(self.path("prefix"), self.moved)
        for folder, _, names in os.walk(os.path.join(self.moved, "lib", "cmake")):
            for name in names:
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    text = f.read()
                for place in (self.path("prefix"), self.a.build):
                    want(place not in text, f"{name} names {place}")

    def default_configuration_finds_plugins(self):
        said = json.loads(self.command("list", "--json"))
        plugins = {backend["name"]: backend["path"] for backend in said["backends"]}
        want("CPU_ATTN" in plugins, f"the installed default.yaml finds no CPU_ATTN: {said}")
        want(os.path.realpath(plugins["CPU_ATTN"]).startswith(os.path.realpath(self.moved)), f"found elsewhere: {plugins}")
        want(TEMPLATE not in plugins, "the template is there before it was installed")
        self.build(self.path("template"), self.path("template_installed"), self.moved)
        run(self.a.cmake, "--install", self.path("template_installed"))
        said = json.loads(self.command("list", "--json"))
        want(TEMPLATE in {backend["name"] for backend in said["backends"]}, f"the installed template is not listed: {said}")

    def engines(self):
        consumer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "consumer")
        self.build(consumer, self.path("consumer"), self.moved)
        folder = os.path.join(self.moved, "lib/anyattn/plugins")
        for backend in ("CPU_ATTN", TEMPLATE):
            config = self.write(f"{backend}.yaml",
                                f"version: 1\nplugins: {{search: [{folder}]}}\nselection: {{backend: {backend}}}\n")
            print(run(self.path("consumer", "consumer"), config, backend, env=self.environment), end="")
        said = json.loads(run(self.path("consumer", "consumer_cpp"), config, env=self.environment))
        want(len(said["backends"]) >= 2, f"the C++ engine sees {said}")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--build", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--cmake", required=True)
    a = p.parse_args()
    shutil.rmtree(a.work, ignore_errors=True)
    os.makedirs(a.work)
    test = Test(a)
    for step in (test.sdk_alone, test.install_and_move, test.default_configuration_finds_plugins, test.engines):
        try:
            step()
        except Failure as failure:
            print(f"{step.__name__}: {failure}")
            return 1
        print(f"{step.__name__}: ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
