# SPDX-License-Identifier: Apache-2.0
"""The .deb packages of a build tree: packed without building, looked into, put into a root by dpkg, used, purged.

The root is a Debian of its own (debian_root.py) where one is; else an empty one in which programs run with the libraries of this
machine, and what a package depends on is not looked at.
"""
import glob
import hashlib
import json
import os
import shutil
import stat

from steps import finished, run, want

# A file of each.
PACKAGES = {"anyattn-core": "./usr/lib/libanyattn.so.0", "anyattn-sdk": "./usr/include/anyattn/plugin.h",
            "anyattn-tools": "./usr/bin/anyattn", "anyattn-plugins-cpu": "./usr/lib/anyattn/plugins/cpu/anyattn_cpu.so",
            "anyattn-plugins-cuda": "./usr/lib/anyattn/plugins/portable_cuda/anyattn_portable_cuda.so",
            "anyattn-plugins-hip": "./usr/lib/anyattn/plugins/portable_hip/anyattn_portable_hip.so"}


# Books and caches of the system itself, and what a user's runs keep.
UNWATCHED = ("proc", "dev", "evening", "root/.cache", "var/lib/dpkg", "var/log", "var/cache/ldconfig", "etc/ld.so.cache")


class Here:
    """An empty root on this machine."""
    def __init__(self, root, environment):
        self.root, self.environment, self.usr = root, environment, os.path.join(root, "usr")
        self.evening = os.path.join(root, "evening")
        for folder in ("updates", "info", "triggers"):
            os.makedirs(os.path.join(root, "var/lib/dpkg", folder))
        for name in ("status", "available"):
            with open(os.path.join(root, "var/lib/dpkg", name), "w", encoding="utf-8"):
                pass

    def words(self, *words):
        return list(words)

    def inside(self, path):
        return path

    def dpkg(self, *words, code=0):
        return finished("dpkg", f"--root={self.root}", "--force-depends", "--force-not-root", "--force-script-chrootless",
                        "--force-bad-path", f"--log={self.root}/dpkg.log", *words, code=code)


class Debian:
    """The root that debian_root.py made."""
    def __init__(self, debian):
        self.debian, self.root, self.usr = debian, debian.root, "/usr"
        self.evening = os.path.join(self.root, "evening")
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        shutil.rmtree(self.evening, ignore_errors=True)
        self.packages = debian.packages
        os.remove(debian.stamp)  # until it is as it was

    def words(self, *words):
                return self.debian.words("sh", "-c", 'cd /evening && exec "$@"', "sh", *words)

    def inside(self, path):
        return path.removeprefix(self.root)

    def dpkg(self, *words, code=0):
        done = self.debian.dpkg(*(self.inside(word) for word in words))
        want(done.returncode == code, f"dpkg {' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def tree(self):
        """path -> kind, rights, owner and content of everything but UNWATCHED."""
        found = {}
        for folder, names, files in os.walk(self.root):
            below = os.path.relpath(folder, self.root)
            names[:] = [name for name in names if os.path.normpath(os.path.join(below, name)) not in UNWATCHED]
            for name in names + files:
                path = os.path.join(folder, name)
                if os.path.normpath(os.path.join(below, name)) in UNWATCHED:
                    continue
                info = os.lstat(path)
                content = ""
                if stat.S_ISLNK(info.st_mode):
                    content = os.readlink(path)
                elif stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as f:
                        content = hashlib.blake2b(f.read()).hexdigest()
                found[path] = (info.st_mode, info.st_uid, info.st_gid, content)
        return found


class Packages:
    def __init__(self, a, environment, debian):
        self.a = a
        self.system = Debian(debian) if debian else Here(os.path.join(a.work, "root"), environment)
        os.makedirs(self.system.evening)
        self.debian = debian
        self.before = self.system.tree() if debian else {}
        self.files = {}  # package -> its .deb

    def pack(self):
        out = os.path.join(self.system.evening, "packages")
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

    def a_missing_library_is_said(self):
        """Without one library of its Depends a package is not set up. In the Debian root only."""
        library = "libyaml-cpp0.7"
        deb = glob.glob(os.path.join(self.debian.archives, library + "_*.deb"))[0]
        self.system.dpkg("--purge", library)
        done = self.system.dpkg("--install", self.files["anyattn-core"], self.files["anyattn-tools"], code=1)
        want(f"anyattn-core depends on {library}" in done.stderr, done.stderr)
        self.system.dpkg("--purge", "anyattn-tools", "anyattn-core")
        self.system.dpkg("--install", shutil.copy(deb, self.system.evening))
        self.nothing_is_left()

    def install(self):
        self.system.dpkg("--install", *self.files.values())
        if self.debian:
            done = self.system.dpkg("--audit")
            want(not done.stdout, done.stdout)

    def command(self, *words):
        return run(*self.system.words(f"{self.system.usr}/bin/anyattn", *words), env=self.system.environment, cwd=self.a.work)

    def doctor_is_green(self):
        said = json.loads(self.command("list", "--json"))
        places = {backend["name"]: backend["path"] for backend in said["backends"]}
        want({"CPU_ATTN", "CPU_MLA"} <= set(places), f"list: {places}")
        want(all(path.startswith(os.path.realpath(self.system.usr)) for path in places.values()), f"list: {places}")
        self.command("doctor")
        self.command("run", "--model", "Llama-3.2-1B", "--trace", "builtin:chat", "--dtype", "float32", "--layers", "1", "--requests", "1",
                     "--max-prompt", "200", "--device", "cpu")
        run(*self.system.words(f"{self.system.usr}/bin/anyattn-conformance", f"{self.system.usr}/lib/anyattn/plugins/cpu/anyattn_cpu.so",
                               "--backend", "CPU_ATTN", "--only", "feature/*"), env=self.system.environment, cwd=self.a.work)

    def purging_leaves_nothing(self):
        self.system.dpkg("--purge", "anyattn-plugins-cpu")
        said = json.loads(self.command("list", "--json"))
        want("CPU_ATTN" not in {backend["name"] for backend in said["backends"]}, f"a removed plugin is listed: {said}")
        self.system.dpkg("--purge", *(name for name in PACKAGES if name != "anyattn-plugins-cpu"))
        self.nothing_is_left()
        if self.debian:
            for folder in (self.system.evening, os.path.join(self.system.root, "root/.cache")):
                shutil.rmtree(folder)
            with open(self.debian.stamp, "w", encoding="utf-8") as f:
                f.write(self.system.packages)

    def nothing_is_left(self):
        if self.debian:
            after = self.system.tree()
            changed = [path for path in sorted(after.keys() | self.before.keys()) if after.get(path) != self.before.get(path)]
            want(not changed, f"left behind or changed: {changed}")
            return
        left = [os.path.join(folder, f) for folder, _, files in os.walk(os.path.join(self.system.root, "usr")) for f in files]
        want(not left, f"left behind: {left}")
