#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packages of this build in a Debian root of their own (debian_root.py; on this machine where there is none); then, in that root,
sdk/README.md as it stands: its commands and files, one after the other, in an empty folder against what the packages installed; then
what a platform team and an attacker do with the bundle.

  evening_test.py --build DIR --work DIR --cmake FILE --cache DIR
"""
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

from debian_root import DebianRoot
from packages import Packages
from steps import Failure, finished, main, plain_environment, want


class Evening:
    def __init__(self, a, system):
        self.system = system
        self.here = os.path.join(system.evening, "empty")
        self.environment = dict(system.environment, PREFIX=system.usr)
        if system.usr != "/usr":
            self.environment["PATH"] = ":".join([os.path.join(system.usr, "bin"), os.path.dirname(a.cmake), self.environment["PATH"]])
        os.makedirs(self.here)
        self.readme = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "sdk", "README.md")

    def words(self, *words):
        return self.system.words("sh", "-c", 'cd "$0" && exec "$@"', self.system.inside(self.here), *words)

    def run(self, *words, code=0):
        done = finished(*self.words(*words), code=code, env=self.environment)
        return done.stdout + done.stderr

    def elsewhere(self, *words):
        """Somebody else's tool, on this machine."""
        done = finished(*words, cwd=self.here)
        return done.stdout + done.stderr

    def json(self, *words):
        """Standard output alone; what is logged goes elsewhere."""
        return json.loads(finished(*self.words(*words), env=self.environment).stdout)

    def path(self, *names):
        return os.path.join(self.here, *names)

    def every_line_of_the_page(self):
        with open(self.readme, encoding="utf-8") as f:
            page = f.read()
        for name, text in re.findall(r"with `(\w+\.yaml)`:\n\n```yaml\n(.*?)```", page, flags=re.S):
            with open(self.path(name), "w", encoding="utf-8") as f:
                f.write(text)
        commands = [line for block in re.findall(r"```sh\n(.*?)```", page, flags=re.S) for line in block.splitlines()]
        want(len(commands) >= 14, f"only {len(commands)} commands in the page")
        said = {}
        for command in commands:
            said[command] = self.run("sh", "-ec", command)
        listed = next(text for command, text in said.items() if command.startswith("anyattn list --config site.yaml"))
        want("ACME_ATTN" in listed and "open" in listed, f"the installed bundle is not open: {listed}")
        check = next(text for command, text in said.items() if command.startswith("anyattn check"))
        for wanted in ("trial in a child process: ok", "ACME_ATTN: ok", "truth of supports", "allocations after warm-up: counted",
                       "opened before it and behind it: right"):
            want(wanted in check, f"'{wanted}' is not in: {check}")
        with open(self.path("check.json"), encoding="utf-8") as f:
            json.load(f)
        why = next(text for command, text in said.items() if command.startswith("anyattn verdicts why"))
        want("com.acme.attn" in why and "ok" in why, f"no good verdict: {why}")

    def the_same_files_give_the_same_bytes(self):
        for name in ("one.tar.zst", "two.tar.zst"):
            self.run("anyattn", "bundle", "build", "build/plugins/acme", "-o", name)
        with open(self.path("one.tar.zst"), "rb") as one, open(self.path("two.tar.zst"), "rb") as two:
            want(one.read() == two.read(), "two builds of one bundle differ")

    def openssl_verifies_the_signature(self):
        if not shutil.which("openssl"):
            print("SKIPPED: openssl is missing")
            return
        folder = os.path.join("bundles", os.listdir(self.path("bundles"))[0])
        said = self.elsewhere("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "acme.pub", "-rawin", "-in",
                              f"{folder}/manifest.yaml", "-sigfile", f"{folder}/manifest.sig")
        want("Verified Successfully" in said, said)

    def every_changed_file_is_caught(self):
        folder = self.path("bundles", os.listdir(self.path("bundles"))[0])
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), "rb") as f:
                before = f.read()
            damaged = bytearray(before)
            damaged[len(damaged) // 2] ^= 1
            with open(os.path.join(folder, name), "wb") as f:
                f.write(damaged)
            self.run("anyattn", "bundle", "verify", self.system.inside(folder), "--config", "site.yaml", code=1)
            said = self.run("anyattn", "list", "--config", "site.yaml", code=(1, 2))  # required: the start fails with the text
            want("failed at" in said, f"{name} changed, and list says {said}")
            with open(os.path.join(folder, name), "wb") as f:
                f.write(before)
        self.run("anyattn", "bundle", "verify", self.system.inside(folder), "--config", "site.yaml")

    def archive(self, name, entries):
        """A .tar.zst of (TarInfo, bytes) by other means than ours."""
        with tarfile.open(self.path(name + ".tar"), "w") as tar:
            for info, data in entries:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        self.elsewhere("zstd", "-q", "-f", "--rm", name + ".tar", "-o", name)
        return name

    def hostile_archives_install_nothing(self):
        if not shutil.which("zstd"):
            print("SKIPPED: zstd is missing: apt-get install zstd")
            return
        link = tarfile.TarInfo("lib/libc.so")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        hard = tarfile.TarInfo("hard")
        hard.type, hard.linkname = tarfile.LNKTYPE, "/etc/passwd"
        pipe = tarfile.TarInfo("pipe")
        pipe.type = tarfile.FIFOTYPE
        file = tarfile.TarInfo
        cases = {
            "slip": ([(file("../../evil"), b"x")], "'../../evil'"),
            "absolute": ([(file("/tmp/evil"), b"x")], "'/tmp/evil'"),
            "deep": ([(file("a/" * 20 + "x"), b"x")], "allowed: relative names"),
            "symlink": ([(link, b"")], "is a link"),
            "hardlink": ([(hard, b"")], "is a link"),
            "pipe": ([(pipe, b"")], "no regular file"),
            "file_as_folder": ([(file("a"), b"x"), (file("a/b"), b"y")], "a/b: "),
            "many": ([(file(f"f{i}"), b"") for i in range(4097)], "more than 4096 files"),
            "twice": ([(file("a"), b"x"), (file("a"), b"y")], "holds a twice"),
            "no_manifest": ([(file("a"), b"x")], "holds no manifest.yaml"),
            "bad_manifest": ([(file("manifest.yaml"), b"manifest: 1\nid: [\n")], "manifest is wrong"),
            "empty": ([], "it holds no file"),
        }
        before = sorted(os.listdir(self.path("bundles")))
        for name, (entries, text) in cases.items():
            said = self.run("anyattn", "bundle", "install", self.archive(f"{name}.tar.zst", entries), "--config", "site.yaml", code=1)
            want(text in said, f"{name}: wanted '{text}' in: {said}")
            want(said.count("\n") == 1, f"{name}: more than one line: {said}")
            want(sorted(os.listdir(self.path("bundles"))) == before, f"{name} left something behind")
        # A size that is only said: refused before a byte is written.
        with tarfile.open(self.path("large.tar.zst"), "w") as tar:
            large = file("large")
            large.size = 17 << 30
            tar.addfile(large)
        said = self.run("anyattn", "bundle", "install", "large.tar.zst", "--config", "site.yaml", code=1)
        want("unpacks to more than" in said and sorted(os.listdir(self.path("bundles"))) == before, f"large: {said}")
        with open(self.path("acme.tar.zst"), "rb") as f:
            whole = f.read()
        for size in (0, 10, len(whole) // 2, len(whole) - 1):
            with open(self.path("cut.tar.zst"), "wb") as f:
                f.write(whole[:size])
            self.run("anyattn", "bundle", "install", "cut.tar.zst", "--config", "site.yaml", code=1)
            want(sorted(os.listdir(self.path("bundles"))) == before, f"cut to {size} bytes it left something behind")
        outside = [path for path in (self.path("evil"), "/tmp/evil", self.system.root + "/tmp/evil") if os.path.exists(path)]
        want(not outside, f"written outside: {outside}")

    def trust_and_versions_are_kept(self):
        said = self.run("anyattn", "bundle", "install", "one.tar.zst", "--config", "site.yaml", code=1)
        want("trust.level is signed, and it has no signature" in said, said)
        self.run("anyattn", "key", "new", "stranger")
        self.run("anyattn", "bundle", "sign", "one.tar.zst", "--key", "stranger.key")
        said = self.run("anyattn", "bundle", "install", "one.tar.zst", "--config", "site.yaml", code=1)
        want("none of the trusted keys" in said, said)
        self.run("anyattn", "key", "new", "stranger", code=1)  # never over another key
        # A newer version goes beside the old one and is used; going back has to be said.
        for name in ("CMakeLists.txt", "acme_attn.cc"):
            with open(self.path("acme_attn", name), encoding="utf-8") as f:
                text = f.read().replace("0.1.0", "0.2.0")
            with open(self.path("acme_attn", name), "w", encoding="utf-8") as f:
                f.write(text)
        self.run("cmake", "--build", "build")
        self.run("anyattn", "bundle", "build", "build/plugins/acme", "-o", "newer.tar.zst")
        self.run("anyattn", "bundle", "sign", "newer.tar.zst", "--key", "acme.key")
        self.run("anyattn", "bundle", "install", "newer.tar.zst", "--config", "site.yaml")
        plugins = self.json("anyattn", "list", "--config", "site.yaml", "--json")["plugins"]
        want([p["version"] for p in plugins] == ["0.2.0"], f"the newer one is not used: {plugins}")
        want(all(p["signed_by"] for p in plugins), f"nobody signed {plugins}")
        rows = self.json("anyattn", "bundle", "list", "--config", "site.yaml", "--json")["bundles"]
        want(sorted(row["version"] for row in rows) == ["0.1.0", "0.2.0"], f"bundle list: {rows}")
        self.run("anyattn", "bundle", "remove", "com.acme.attn", "--config", "site.yaml", code=2)  # two have this id
        older = os.path.basename(next(row["folder"] for row in rows if row["version"] == "0.1.0"))
        self.run("anyattn", "bundle", "remove", older, "--config", "site.yaml")
        said = self.run("anyattn", "bundle", "install", "acme.tar.zst", "--config", "site.yaml", code=1)
        want("the newer 0.2.0" in said and "--allow-downgrade" in said, said)
        self.run("anyattn", "bundle", "install", "acme.tar.zst", "--config", "site.yaml", "--allow-downgrade")


    def run_words(self, *more):
        return ("run", "--model", "Llama-3.2-1B", "--trace", "builtin:chat", "--dtype", "float32", "--layers", "1", *more)

    def a_lock_notices_another_plugin_file(self):
        self.run("anyattn", "lock", "--model", "Llama-3.2-1B", "--dtype", "float32", "--device", "cpu", "--config", "site.yaml",
                 "-o", "lock.json")
        with open(self.path("site.yaml"), encoding="utf-8") as f:
            text = f.read()
        with open(self.path("locked.yaml"), "w", encoding="utf-8") as f:
            f.write(text.replace("  backend: ACME_ATTN\n", "  backend: ACME_ATTN\n  lock: lock.json\n"))
        words = self.run_words("--requests", "1", "--max-prompt", "200", "--device", "cpu", "--config", "locked.yaml")
        self.run("anyattn", *words)
        rows = self.json("anyattn", "bundle", "list", "--config", "site.yaml", "--json")["bundles"]
        newer = os.path.basename(next(row["folder"] for row in rows if row["version"] == "0.2.0"))
        self.run("anyattn", "bundle", "remove", newer, "--config", "site.yaml")  # what is left is 0.1.0, another file
        said = self.run("anyattn", *words, code=(1, 2))
        want("selection.lock" in said and "ACME_ATTN came from com.acme.attn" in said, said)

    def a_hangup_reloads_a_run(self):
        words = self.run_words("--requests", "1000", "--device", "cpu", "--config", "site.yaml")
        with open(self.path("run.err"), "w+", encoding="utf-8") as err, subprocess.Popen(
                self.words("anyattn", *words), env=self.environment, stdout=subprocess.DEVNULL, stderr=err) as running:
            try:
                # Once it searches for plugins its signals are in place.
                self.wait(lambda: "libanyattn" in open(f"/proc/{running.pid}/maps", encoding="utf-8").read(), "the run does not start")
                self.wait(lambda: len(os.listdir(f"/proc/{running.pid}/task")) > 1, "the run starts no thread")
                running.send_signal(signal.SIGHUP)
                self.wait(lambda: "reloaded, generation" in open(err.name, encoding="utf-8").read(), "no word of a reload")
                for _ in range(1000):  # more than can be answered: those that come meanwhile are one
                    running.send_signal(signal.SIGHUP)
                shutil.copy(self.path("site.yaml"), self.path("kept.yaml"))
                with open(self.path("site.yaml"), "a", encoding="utf-8") as f:
                    f.write("nonsense: 1\n")
                running.send_signal(signal.SIGHUP)
                self.wait(lambda: "not reloaded, nothing changed" in open(err.name, encoding="utf-8").read(), "a bad file is taken")
                want("nonsense" in open(err.name, encoding="utf-8").read(), "it does not say why")
                want(running.poll() is None, "the run ended")
                os.replace(self.path("kept.yaml"), self.path("site.yaml"))
            finally:
                running.kill()

    @staticmethod
    def wait(condition, text):
        for _ in range(300):
            if condition():
                return
            time.sleep(0.1)
        raise Failure(text)


def steps(a):
    missing = [tool for tool in ("dpkg", "dpkg-deb", "dpkg-shlibdeps", "file") if not shutil.which(tool)]
    if missing and os.environ.get("ANYATTN_REQUIRE_ALL") != "1":
        print(f"SKIPPED: {missing[0]} is missing: apt-get install dpkg-dev file")
        return ()
    debian = DebianRoot(a.cache)
    if not debian.is_there():
        print("SKIPPED: the Debian root; the packages are used on this machine, and what they depend on is not looked at")
        debian = None
    packages = Packages(a, plain_environment(), debian)
    evening = Evening(a, packages.system)
    return (packages.pack, packages.each_holds_its_own_and_says_what_it_needs, *([packages.a_missing_library_is_said] if debian else []),
            packages.install, packages.doctor_is_green, evening.every_line_of_the_page, evening.the_same_files_give_the_same_bytes,
            evening.openssl_verifies_the_signature, evening.every_changed_file_is_caught, evening.hostile_archives_install_nothing,
            evening.trust_and_versions_are_kept, evening.a_lock_notices_another_plugin_file, evening.a_hangup_reloads_a_run,
            packages.purging_leaves_nothing)


if __name__ == "__main__":
    sys.exit(main(__doc__, steps, "cache"))
