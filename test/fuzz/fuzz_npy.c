// SPDX-License-Identifier: Apache-2.0
// The .npy reader on any bytes: no access beyond them, a sentence with every refusal, and what is
// taken is consistent with the length of the file.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/gemmar_perf/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gemmar_npy npy;
    char why[128];
    uint64_t extra;

    /* the first bytes say how much longer the file is than what was read of it */
    if (size < 2) {
        return 0;
    }
    extra = data[0] % 4 == 0 ? (uint64_t)data[1] * 16 : 0;
    data += 2;
    size -= 2;
    memset(why, 0, sizeof(why));
    if (gemmar_npy_parse(data, size, size + extra, &npy, why, sizeof(why)) != 0) {
        if (why[0] == '\0' || memchr(why, '\0', sizeof(why)) == NULL) {
            abort();
        }
        return 0;
    }
    if (npy.rows < 0 || npy.columns < 0 || npy.data_offset > size ||
        npy.data_offset + npy.data_bytes != size + extra ||
        (uint64_t)npy.rows * (uint64_t)npy.columns * (npy.type == GEMMAR_NPY_F4 ? 4 : 2) !=
            npy.data_bytes) {
        abort();
    }
    return 0;
}
