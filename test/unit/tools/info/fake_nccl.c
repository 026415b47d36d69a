// SPDX-License-Identifier: Apache-2.0
// An NCCL of any version, for gemmar_info: FAKE_NCCL_VERSION is what it tells.
#include <stdlib.h>

int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKE_NCCL_VERSION");

    *version = text != NULL ? atoi(text) : 22809;
    return 0;
}
