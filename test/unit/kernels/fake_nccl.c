// SPDX-License-Identifier: Apache-2.0
// A libnccl.so.2 with a version of choice and almost nothing in it.
#include <stdlib.h>

int ncclGetVersion(int *version);
const char *ncclGetErrorString(int result);

int ncclGetVersion(int *version)
{
    const char *text = getenv("FAKE_NCCL_VERSION");

    *version = text != NULL ? atoi(text) : 0;
    return 0;
}

const char *ncclGetErrorString(int result)
{
    return result == 0 ? "no error" : "an error";
}
