// SPDX-License-Identifier: Apache-2.0
// Which network API a release of NCCL takes.
#include "tools/gemmar_info/nccl.h"

#include <stddef.h>

/* First release whose sources look up each version, read off NCCL's release tags. */
static const struct {
    int release; /* major * 100 + minor */
    int net;
} firsts[] = {{230, 12}, {228, 11}, {226, 10}, {224, 9}, {220, 8}, {219, 7}, {213, 6}};

/* ncclGetVersion: major * 10000 + minor * 100 + patch since 2.9, major * 1000 + ... before. */
static int release_of(int version)
{
    return version >= 10000 ? version / 100 : version / 1000 * 100 + version % 1000 / 100;
}

int gemmar_info_nccl_newest_net(int version)
{
    for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
        if (release_of(version) >= firsts[i].release) {
            return firsts[i].net;
        }
    }
    return 0;
}

bool gemmar_info_nccl_forgets(int version)
{
    return release_of(version) >= 227 && release_of(version) <= 229;
}

int gemmar_info_nccl_ref_count(int version)
{
    return release_of(version) <= 227 ? 1 : 0;
}
