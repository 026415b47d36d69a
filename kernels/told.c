// SPDX-License-Identifier: Apache-2.0
// The hash by which the kernels of a node's ranks see that they make the same call.
#include "kernels/told.h"

#include <assert.h>
#include <string.h>

uint32_t gemmar_told_hash(const struct gemmar_told *told)
{
    uint64_t words[sizeof(*told) / 8], hash = UINT64_C(0xCBF29CE484222325);

    static_assert(sizeof(*told) == 3 * 8 + 3 * 8 + 4 * 4, "no bytes between the members");
    static_assert(sizeof(*told) % 8 == 0, "no byte of a word is left out");
    memcpy(words, told, sizeof(*told));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    /* The upper bits of a product depend on all bits of its factors, the lower ones do not. */
    return (uint32_t)(hash * UINT64_C(0x9E3779B97F4A7C15) >> 48);
}
