#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs, moves the tree, and uses it as strangers do: a plugin's author with the sdk component only, an engine with both.

  install_test.py --build DIR --work DIR --cmake FILE

Wants: the template plugin builds from the installed sdk alone and passes the kit, with CMake and with a compiler and pkg-config;
a host in Python runs it; what new-plugin writes builds from the sdk alone, passes its own test and runs under the runtime; no file
names where it was installed; the default configuration finds the installed plugins, a stranger's among them; engines in C and C++
build and compute.
"""
import json
import os
import shlex
import shutil
import subprocess
import sys

from steps import main, plain_environment, run, want

TEMPLATE = "TEMPLATE_ATTN"


class Test:
    def __init__(self, a):
        self.a = a
        self.moved = os.path.join(a.work, "moved")
        self.environment = plain_environment()

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

    @staticmethod
    def linked_as_promised(plugin):
        """RPATH, immediate binding, never unloaded, no symbol that the linker makes unique, one exported name."""
        dynamic = run("readelf", "-d", plugin)
        for wanted in ("RPATH", "[$ORIGIN/lib]", "NODELETE", "BIND_NOW"):
            want(wanted in dynamic.replace("FLAGS_1            Flags: NOW", "BIND_NOW"), f"{wanted} is not in\n{dynamic}")
        exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", plugin).splitlines() if " A " not in line]
        want(exported == ["anyattn_plugin_entry_v0"], f"{plugin} exports {exported}")

    def plain_compiler_and_python(self):
        """No CMake: the C template by its compiler line in anyattn-sdk.pc; then a host that is no C at all."""
        if not shutil.which("pkg-config"):
            print("SKIPPED: pkg-config is missing: apt-get install pkgconf")
            return
        environment = dict(self.environment, PKG_CONFIG_PATH=self.path("sdk_only", "lib", "pkgconfig"))

        def flags(name):
            return shlex.split(run("pkg-config", f"--variable={name}", "anyattn-sdk", env=environment))
        plugin = self.path("anyattn_plain.so")
        run("cc", "-std=c11", "-O1", *flags("plugin_cflags"), "-o", plugin, self.path("template", "template_attn.c"),
            *flags("plugin_ldflags"), "-lm")
        self.linked_as_promised(plugin)
        host = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ctypes_host.py")
        print(run(sys.executable, host, plugin, TEMPLATE), end="")

    def new_plugin(self):
        """What new-plugin writes: built from the sdk alone, its own test passes, and the runtime takes it by YAML."""
        folder, build = self.path("acme"), self.path("acme_build")
        self.command("new-plugin", "acme", folder, "--id", "com.acme.attn", "--vendor", "Acme")
        self.build(folder, build, self.path("sdk_only"))
        run(os.path.join(os.path.dirname(self.a.cmake), "ctest"), "--test-dir", build, "--output-on-failure")
        plugin = os.path.join(build, "plugins/acme/anyattn_acme.so")
        self.linked_as_promised(plugin)
        host = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ctypes_host.py")
        print(run(sys.executable, host, plugin, "ACME_ATTN"), end="")
        config = self.write("acme.yaml", f"version: 1\nplugins: {{search: [{build}/plugins]}}\nselection: {{backend: ACME_ATTN}}\n")
        said = json.loads(self.command("explain", "--config", config, "--head-size", "64", "--num-q-heads", "4", "--num-kv-heads",
                                       "2", "--dtype", "float32", "--device", "cpu", "--json"))
        want("ACME_ATTN" in json.dumps(said), f"explain does not know ACME_ATTN: {said}")
        # A refusal names each field once.
        refused = subprocess.run([os.path.join(self.moved, "bin", "anyattn"), "explain", "--config", config, "--head-size", "64", "--dtype",
                                  "bfloat16", "--device", "cpu", "--json"], capture_output=True, text=True, check=False, env=self.environment)
        candidates = json.loads(refused.stdout)["layers"][0]["candidates"]
        fields = [reason["field"] for one in candidates if one["backend"] == "ACME_ATTN" for reason in one["reasons"]]
        want(fields == ["q_dtype", "out_dtype", "kv_cache_dtype"], f"the new plugin refuses bfloat16 for {fields}")
        consumer = os.path.join(os.path.dirname(os.path.abspath(__file__)), "consumer")
        self.build(consumer, self.path("consumer"), self.moved)
        print(run(self.path("consumer", "consumer"), config, "ACME_ATTN", env=self.environment), end="")
        # Nothing is written over, and a bad name is said.
        for words, text in ((("acme", folder), "holds something"), (("Acme", self.path("other")), "allowed: [a-z]")):
            done = subprocess.run([os.path.join(self.moved, "bin", "anyattn"), "new-plugin", *words], capture_output=True, text=True,
                                  check=False, env=self.environment)
            want(done.returncode == 2 and text in done.stderr, f"new-plugin {words}: {done}")

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


def steps(a):
    test = Test(a)
    return (test.sdk_alone, test.plain_compiler_and_python, test.install_and_move, test.default_configuration_finds_plugins, test.engines,
            test.new_plugin)


if __name__ == "__main__":
    sys.exit(main(__doc__, steps))
