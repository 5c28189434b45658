#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Debian root of packages alone: what this release calls essential, a compiler, and the libraries that our packages may need.

  debian_root.py --cache DIR     makes it, or finds the one of an earlier run; 77 (skipped, with a line) where that cannot be

apt works out and fetches the closure, from its own lists and signatures; dpkg inside the root installs it, nothing forced beyond the
first unpacking. DIR/root is the root and DIR/stamp, written last, the packages in it. Whoever changes the root takes the stamp away and
puts it back once the root is as it was.
"""
import argparse
import os
import shutil
import subprocess
import sys

COMPILER = ["g++", "cmake", "make"]
LIBRARIES = ["libfmt9", "libspdlog1.10", "libsodium23", "libyaml-cpp0.7", "libarchive13", "libbenchmark1debian", "libamdhip64-5"]
SKIPPED = 77
# No manuals, which nothing here reads.
LEAN = [f"--path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale", "cmake-3.25/Help")]


class Unavailable(Exception):
    pass


class DebianRoot:
    def __init__(self, cache):
        self.cache = os.path.abspath(cache)
        self.root = os.path.join(self.cache, "root")
        self.archives = os.path.join(self.cache, "archives")
        self.stamp = os.path.join(self.cache, "stamp")

    def is_there(self):
        return os.path.exists(self.stamp)

    @property
    def packages(self):
        """What the stamp says."""
        with open(self.stamp, encoding="utf-8") as f:
            return f.read()

    def apt(self, archives, *words):
        os.makedirs(os.path.join(archives, "partial"), exist_ok=True)
        done = subprocess.run(["apt-get", "-y", "-q", "--no-install-recommends", "-o", "Dir::State::status=/dev/null", "-o",
                               f"Dir::Cache={self.cache}", "-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", "-o",
                               "APT::Sandbox::User=root", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15", *words],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"apt-get {words[0]} failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
        return done.stdout

    def closure(self, *packages):
        """File names of the packages and of all they need, in a folder where none is yet."""
        said = self.apt(os.path.join(self.cache, "none"), "--print-uris", "install", *packages)
        return sorted(line.split()[1] for line in said.splitlines() if line.startswith("'"))

    def words(self, *words):
        """The command in the root, with /proc and /dev for as long as it runs; the process stays the one that was started."""
        mounts = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, self.root, *words]

    def run(self, *words):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "HOME": "/root"}
        return subprocess.run(self.words(*words), capture_output=True, text=True, check=False, env=environment)

    def dpkg(self, *words):
        return self.run("dpkg", "--force-unsafe-io", *LEAN, *words)

    def make(self):
        if os.geteuid() != 0 or not shutil.which("apt-get") or not shutil.which("unshare"):
            raise Unavailable("it wants root, apt-get and unshare")
        os.makedirs(self.cache, exist_ok=True)
        files = self.closure("?essential", *COMPILER, *LIBRARIES)
        wanted = "\n".join(files)
        if self.is_there():
            if self.packages == wanted:
                return "the one of an earlier run"
            os.remove(self.stamp)
        shutil.rmtree(self.root, ignore_errors=True)
        self.apt(self.archives, "--download-only", "install", "?essential", *COMPILER, *LIBRARIES)
        for folder in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "dev", "archives", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
            os.makedirs(os.path.join(self.root, folder))
        for name in ("bin", "sbin", "lib", "lib64"):
            os.symlink(f"usr/{name}", os.path.join(self.root, name))
        with open(os.path.join(self.root, "var/lib/dpkg/status"), "w", encoding="utf-8"):
            pass
        # What dpkg itself runs on has to lie there before dpkg can put it there.
        for name in self.closure("?essential"):
            tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", os.path.join(self.archives, name)], capture_output=True, check=True).stdout
            subprocess.run(["tar", "-x", "-C", self.root, "--keep-directory-symlink"], input=tar, check=True)
        for name in files:
            os.rename(os.path.join(self.archives, name), os.path.join(self.root, "archives", name))
        try:
            done = self.dpkg("--force-depends", "--force-confnew", "--install", *(f"/archives/{name}" for name in files))
            if done.returncode:
                if "mount" in done.stderr or "unshare" in done.stderr:
                    raise Unavailable(f"no mounts here: {done.stderr.strip()}")
                raise RuntimeError(f"dpkg failed: {done.stdout}{done.stderr}")
        finally:
            for name in files:
                os.rename(os.path.join(self.root, "archives", name), os.path.join(self.archives, name))
        os.rmdir(os.path.join(self.root, "archives"))
        audit = self.run("dpkg", "--audit")
        if audit.returncode or audit.stdout:
            raise RuntimeError(f"dpkg --audit: {audit.stdout}{audit.stderr}")
        with open(self.stamp, "w", encoding="utf-8") as f:
            f.write(wanted)
        return f"{len(files)} packages"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--cache", required=True)
    root = DebianRoot(p.parse_args().cache)
    try:
        print(f"{root.root}: {root.make()}")
    except Unavailable as why:
        print(f"SKIPPED: no Debian root: {why}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
