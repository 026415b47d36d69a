#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run one model with spin: run_model.py MODEL right|assert:WORD|stuck [-DNAME=VALUE ...]."""
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

SECONDS = 60
MEGABYTES = 4096


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEGABYTES << 20, MEGABYTES << 20))


def main():
    model, want, defines = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    for tool in ('spin', 'gcc'):
        if not shutil.which(tool):
            print(f'{tool} is not installed')
            return 77
    with tempfile.TemporaryDirectory() as work:
        subprocess.run(['spin', '-a', *defines, model], cwd=work, check=True)
        # what ends at its first error takes less time to run than to compile
        subprocess.run(['gcc', '-O1' if want == 'right' else '-O0', '-w', '-DSAFETY', '-DCOLLAPSE', '-DVECTORSZ=4096',
                        f'-DMEMLIM={MEGABYTES - 256}', '-o', 'pan', 'pan.c'], cwd=work, check=True)
        try:
            done = subprocess.run(['./pan', '-m1000000'], cwd=work, timeout=SECONDS, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  preexec_fn=limit, check=False)
        except subprocess.TimeoutExpired:
            print(f'not exhausted within {SECONDS} s: no result')
            return 1
    log = done.stdout
    states = re.search(r'(\S+) states, stored', log)
    errors = re.search(r'errors: (\d+)', log)
    partly = re.search(r'max search depth too small|memory limit|out of memory|truncated|not completed', log)
    found = 'right'
    hit = re.search(r'assertion violated (.*)', log)
    if hit:
        found = 'assert:' + hit.group(1)
    elif 'invalid end state (at depth' in log:
        found = 'stuck'
    if not states or not errors or (errors.group(1) == '0') != (found == 'right'):
        print(log, 'no result', sep='\n')
        return 1
    if found == 'right' and partly:
        print(log, 'not exhausted', sep='\n')
        return 1
    kind = 'exhaustive' if found == 'right' else 'stopped at the first error'
    print(f'{kind}, {states.group(1)} states, {found}')
    ok = found == want or (want.startswith('assert:') and found.startswith('assert:')
                           and want[7:] in found)
    return 0 if ok else 1


sys.exit(main())
