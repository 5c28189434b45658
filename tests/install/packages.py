# SPDX-License-Identifier: Apache-2.0
"""The .deb packages of a build tree: packed without building, looked into, put into a root of their own by dpkg, used, removed.

The root has no system: dpkg unpacks and keeps its books there; programs run with the libraries of this machine.
"""
import glob
import json
import os

from steps import run, want

# A file of each.
PACKAGES = {"anyattn-core": "./usr/lib/libanyattn.so.0", "anyattn-sdk": "./usr/include/anyattn/plugin.h",
            "anyattn-tools": "./usr/bin/anyattn", "anyattn-plugins-cpu": "./usr/lib/anyattn/plugins/cpu/anyattn_cpu.so",
            "anyattn-plugins-cuda": "./usr/lib/anyattn/plugins/portable_cuda/anyattn_portable_cuda.so",
            "anyattn-plugins-hip": "./usr/lib/anyattn/plugins/portable_hip/anyattn_portable_hip.so"}


class Packages:
    def __init__(self, a, environment):
        self.a, self.environment = a, environment
        self.root = os.path.join(a.work, "root")
        self.files = {}  # package -> its .deb

    def pack(self):
        out = os.path.join(self.a.work, "packages")
        run(os.path.join(os.path.dirname(self.a.cmake), "cpack"), "--config", os.path.join(self.a.build, "CPackConfig.cmake"), "-B", out,
            cwd=self.a.work)
        self.files = {run("dpkg-deb", "-f", path, "Package").strip(): path for path in glob.glob(os.path.join(out, "*.deb"))}
        want(sorted(self.files) == sorted(PACKAGES), f"packages: {sorted(self.files)}, wanted {sorted(PACKAGES)}")

    def each_holds_its_own_and_says_what_it_needs(self):
        owner = {}
        for name, path in sorted(self.files.items()):
            held = [line.split()[5] for line in run("dpkg-deb", "-c", path).splitlines() if not line.startswith("d")]
            want(PACKAGES[name] in held, f"{name} lacks {PACKAGES[name]}: {held}")
            for file in held:
                below = "./usr/lib/anyattn/plugins/" if "plugins" in name else "./usr/"
                want(file.startswith(below), f"{name} holds {file}")
                want(file not in owner, f"{file} is in {name} and {owner.get(file)}")
                owner[file] = name
            needs = run("dpkg-deb", "-f", path, "Depends").strip()
            want("libc6" in needs, f"{name} needs '{needs}', not the C library")
            want(name in ("anyattn-core", "anyattn-sdk") or "anyattn-core (= " in needs, f"{name} needs '{needs}', not the library")
            print(f"  {name}: {len(held)} files, {os.path.getsize(path) >> 10} KiB; needs {needs}")
        core = run("dpkg-deb", "-f", self.files["anyattn-core"], "Depends")
        want("libyaml-cpp" in core and "libsodium" in core and "hip" not in core, f"the library needs {core}")

    def dpkg(self, *words):
        run("dpkg", f"--root={self.root}", "--force-depends", "--force-not-root", "--force-script-chrootless", "--force-bad-path",
            f"--log={self.a.work}/dpkg.log", *words)

    def install(self):
        for folder in ("updates", "info", "triggers"):
            os.makedirs(os.path.join(self.root, "var/lib/dpkg", folder))
        for name in ("status", "available"):
            with open(os.path.join(self.root, "var/lib/dpkg", name), "w", encoding="utf-8"):
                pass
        self.dpkg("-i", *self.files.values())

    def command(self, *words):
        return run(os.path.join(self.root, "usr/bin/anyattn"), *words, env=self.environment, cwd=self.a.work)

    def doctor_is_green(self):
        said = json.loads(self.command("list", "--json"))
        places = {backend["name"]: backend["path"] for backend in said["backends"]}
        want({"CPU_ATTN", "CPU_MLA"} <= set(places), f"list: {places}")
        want(all(path.startswith(os.path.realpath(self.root)) for path in places.values()), f"list: {places}")
        self.command("doctor")

    def removal_leaves_nothing(self):
        self.dpkg("-r", "anyattn-plugins-cpu")
        said = json.loads(self.command("list", "--json"))
        want("CPU_ATTN" not in {backend["name"] for backend in said["backends"]}, f"a removed plugin is listed: {said}")
        self.dpkg("-r", *(name for name in PACKAGES if name != "anyattn-plugins-cpu"))
        left = [os.path.join(folder, f) for folder, _, files in os.walk(os.path.join(self.root, "usr")) for f in files]
        want(not left, f"left behind: {left}")
