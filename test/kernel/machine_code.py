#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""machine_code.py CUOBJDUMP OBJECT...: what must and must not be in the machine code of the GPU kernels.

The rules are those of docs/design.md, "Hand-overs", as far as the order of instructions in the code shows
them. A compiler that moves a block out of line can fail a rule about order without breaking it: look then.
Ends with 77 when there is no disassembler.
"""
import re
import shutil
import subprocess
import sys

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\*")
STAMP = re.compile(r"\bSTG\.E\.64\.STRONG\.SYS\b")
ACQUIRE = re.compile(r"\bLDG\.E\.64\.STRONG\.SYS\b")
BULK_STORE = re.compile(r"\b(UTMASTG|UBLKCP\.G\.S)\b")
BULK_LOAD = re.compile(r"\bUBLKCP\.S\.G\b")
FENCE_SYS = re.compile(r"\bMEMBAR\.\w+\.SYS\b")
BULK_WAIT = re.compile(r"\bDEPBAR\.LE SB0\b")

failures = 0


def functions(cuobjdump, path):
    """Yield (name, [(address, text)]) for each kernel."""
    run = subprocess.run([cuobjdump, "-sass", path], stdout=subprocess.PIPE, check=True, text=True)
    name, code = None, []
    for line in run.stdout.splitlines():
        if "Function :" in line:
            if name:
                yield name, code
            name, code = line.split(":")[1].strip(), []
        elif match := INSTRUCTION.match(line):
            code.append((int(match[1], 16), match[2]))
    if name:
        yield name, code


def rule(name, holds, sentence):
    global failures
    if not holds:
        failures += 1
        print(f"{name}: {sentence}")


def count(code, pattern):
    return sum(1 for _, text in code if re.search(pattern, text))


def common(name, code):
    """Every kernel that reads words which others write."""
    rule(name, not count(code, r"\bLDG?\.\S*CONSTANT"), "a non-coherent load of global memory")
    for i, (at, text) in enumerate(code):
        if ACQUIRE.search(text):
            after = " ".join(t for _, t in code[i + 1 : i + 4])
            rule(name, "CCTL.IVALL" in after, f"a load at {at:#x} does not acquire")


def main_loop(code):
    """The instructions from the target of the loop's branch to the branch."""
    products = [at for at, text in code if "HGMMA" in text]
    for at, text in code:
        branch = re.search(r"\bBRA\S* (0x[0-9a-f]+)", text)
        if branch and products and at > products[-1] and int(branch[1], 16) < products[0]:
            return [c for c in code if int(branch[1], 16) <= c[0] <= at]
    return []


def tensor(name, code):
    """The tensor-core kernel."""
    loop = main_loop(code)
    rule(name, not count(code, r"\b(LDL|STL)\b"), "registers are spilled")
    rule(name, count(loop, "HGMMA") == 4, "not four products in the loop")
    rule(name, count(loop, "HGMMA.*gsb0") == 1, "products are serialised")
    rule(name, count(loop, r"WARPGROUP\.DEPBAR") == 1, "more than one wait for products in the loop")
    rule(name, not count(loop, r"MEMBAR|ERRBAR|CCTL|FENCE|LDG|STG|ATOM"), "fences or global memory in the loop")
    for what in (r"UTMALDG\.2D\.MULTICAST", "UTMASTG", r"UBLKCP\.S\.G", r"UBLKCP\.G\.S", "USETMAXREG"):
        rule(name, count(code, what), f"no {what}")
    waits, fenced, stored, viewed, stamps = 0, False, False, False, 0
    for at, text in code:
        if BULK_STORE.search(text):
            waits, fenced, stored = 0, False, True
        elif BULK_WAIT.search(text):
            waits += 1
        elif FENCE_SYS.search(text):
            fenced = waits >= 2
        elif ACQUIRE.search(text):
            viewed = False
        elif "FENCE.VIEW.ASYNC" in text:
            viewed = True
        elif BULK_LOAD.search(text):
            rule(name, viewed, f"no proxy fence before the load at {at:#x}")
        elif STAMP.search(text) and stored:
            stamps += 1
            rule(name, fenced, f"the stamp at {at:#x} is not behind the end of the stores and a fence")
            stored = False
    rule(name, stamps, "no stamp behind the stores")


def main():
    cuobjdump = shutil.which(sys.argv[1])
    if cuobjdump is None:
        print("skipped: no cuobjdump")
        return 77
    kernels = tensors = 0
    for path in sys.argv[2:]:
        for name, code in functions(cuobjdump, path):
            kernels += 1
            if "peer_pointers" not in name:  # that one reads NCCL's description of a window only
                common(name, code)
            if "gemmar_fused_sm90" in name:
                tensors += 1
                tensor(name, code)
    rule("all", tensors == 16, f"{tensors} variants of the tensor-core kernel")
    print(f"{kernels} kernels, {tensors} of them with tensor cores, {failures} failures")
    return failures != 0


sys.exit(main())
