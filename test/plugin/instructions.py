#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions that a net plugin spends on a message, send and receive side, under callgrind.

What it calls outside of libibverbs counts, libibverbs (softhca) and the harness do not.
With --bar, the plugin's figures may be at most that share of NCCL's own; exit status 1 if not.
usage: instructions.py NET_COST PLUGIN [--api N] [--messages N] [--warm-up N] [--bytes N]
                       [--bar X] [--functions]
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

SKIP = 77


class Profile:
    """The parts of a callgrind file that matter: self cost, and cost of calls between objects."""

    def __init__(self, path):
        self.own = collections.Counter()    # (object, function): instructions
        self.calls = collections.Counter()  # (object, object): inclusive instructions
        names = {}
        here = callee = None

        def name(kind, text):
            ident, rest = re.match(r'(\(\d+\)) ?(.*)', text).groups()
            if rest:
                names[kind, ident] = rest
            return names[kind, ident]

        obj = fn = ''
        in_call = False
        with open(path, encoding='utf-8') as lines:
            for line in lines:
                key, _, value = line.rstrip('\n').partition('=')
                if key == 'ob':
                    obj = name('ob', value)
                elif key == 'fn':
                    fn = name('fn', value)
                    callee = None
                    here = (obj, fn)
                elif key == 'cob':
                    callee = name('ob', value)
                elif key == 'cfn':
                    name('fn', value)
                elif key == 'calls':
                    in_call = True
                elif line[0] in '+-*0123456789' and here:
                    cost = int(line.split()[-1])
                    if in_call:
                        self.calls[obj, callee or obj] += cost
                        callee, in_call = None, False
                    else:
                        self.own[here] += cost


def measure(args, plugin, side):
    """Instructions per message, and the share of each function."""
    with tempfile.TemporaryDirectory() as out:
        profile = os.path.join(out, 'profile')
        env = dict(os.environ, LD_BIND_NOW='1', SOFTHCA_FABRIC=os.path.join(out, 'fabric'),
                   SOFTHCA_LINK='ib', NCCL_IB_QPS_PER_CONNECTION='1')
        run = subprocess.run(
            ['valgrind', '--quiet', '--tool=callgrind', '--toggle-collect=counted_*',
             '--callgrind-out-file=' + profile, args.net_cost, plugin,
             str(11 if plugin == 'nccl' else args.api), side, str(args.messages),
             str(args.warm_up), str(args.bytes)],
            env=env, stdout=subprocess.PIPE, text=True, check=False, timeout=500)
        if run.returncode:
            sys.exit(run.returncode)
        early = int(re.search(r'early (\d+)', run.stdout).group(1))
        p = Profile(profile)
    harness = os.path.realpath(args.net_cost)
    inside = {'counted': 0, 'verbs': 0}
    for (caller, callee), cost in p.calls.items():
        if os.path.realpath(caller) == harness and not os.path.basename(callee).startswith(
                ('libc.', 'ld-', os.path.basename(harness))):
            inside['counted'] += cost
        elif 'libibverbs' in callee and 'libibverbs' not in caller:
            inside['verbs'] += cost
    figure = (inside['counted'] - inside['verbs']) / args.messages
    if args.functions:
        for (obj, fn), cost in p.own.most_common(25):
            print(f'# {cost / args.messages:9.1f}  {os.path.basename(obj)}: {fn}')
    if early > args.messages / 100:
        print(f'# {early} calls came too early and are in the figure')
    return figure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('net_cost')
    parser.add_argument('plugin')
    parser.add_argument('--api', type=int, default=11)
    parser.add_argument('--messages', type=int, default=10000)
    parser.add_argument('--warm-up', type=int, default=1000)
    parser.add_argument('--bytes', type=int, default=65536)
    parser.add_argument('--bar', type=float)
    parser.add_argument('--functions', action='store_true')
    args = parser.parse_args()
    if not shutil.which('valgrind'):
        print('valgrind is not installed, skipped')
        return SKIP
    figures = {}
    for plugin in [args.plugin] + (['nccl'] if args.bar and args.plugin != 'nccl' else []):
        for side in ('send', 'recv'):
            figures[plugin, side] = measure(args, plugin, side)
            print(f'{os.path.basename(plugin)} {side}: {figures[plugin, side]:.1f} '
                  f'instructions a message of {args.bytes} bytes', flush=True)
    if not args.bar or args.plugin == 'nccl':
        return 0
    missed = 0
    for side in ('send', 'recv'):
        ratio = figures[args.plugin, side] / figures['nccl', side]
        print(f'{side}: {ratio:.3f} of NCCL, at most {args.bar}')
        missed |= ratio > args.bar
    return 1 if missed else 0


sys.exit(main())
