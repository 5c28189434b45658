# SPDX-License-Identifier: Apache-2.0
"""What tests of the installed tree share: commands with the exit code they must have, and steps that run in order until one fails."""
import argparse
import os
import shutil
import subprocess


class Failure(Exception):
    pass


def want(condition, text):
    if not condition:
        raise Failure(text)


def finished(*words, code=0, env=None, cwd=None):
    """The command, done; code: one exit code or several that are allowed."""
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env, cwd=cwd)
    allowed = code if isinstance(code, tuple) else (code,)
    want(done.returncode in allowed, f"{' '.join(words)}: exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}")
    return done


def run(*words, code=0, env=None, cwd=None):
    return finished(*words, code=code, env=env, cwd=cwd).stdout


def plain_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("ANYATTN_")}


def main(page, make_steps, *more):
    """make_steps(arguments): the steps, as methods; more: further arguments. --work is emptied first. The exit code."""
    p = argparse.ArgumentParser(description=page.split("\n")[0])
    for name in ("build", "work", "cmake", *more):
        p.add_argument("--" + name, required=True)
    a = p.parse_args()
    shutil.rmtree(a.work, ignore_errors=True)
    os.makedirs(a.work)
    for step in make_steps(a):
        try:
            step()
        except Failure as failure:
            print(f"{step.__name__}: {failure}")
            return 1
        print(f"{step.__name__}: ok", flush=True)
    return 0
