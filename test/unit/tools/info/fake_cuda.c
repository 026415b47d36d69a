// SPDX-License-Identifier: Apache-2.0
// A CUDA driver with one GPU, for gemmar_info: FAKE_CUDA_DMABUF says whether it has dma-buf.
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetPCIBusId(char *text, int bytes, int device);

int cuInit(unsigned flags)
{
    return flags == 0 ? 0 : 1;
}

int cuDriverGetVersion(int *version)
{
    *version = 13020;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? 0 : 101;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const char *dmabuf = getenv("FAKE_CUDA_DMABUF");

    *value = attribute == 124 ? dmabuf != NULL && atoi(dmabuf) != 0 : attribute == 118 ? 100 : 1;
    return device == 0 ? 0 : 101;
}

int cuDeviceGetPCIBusId(char *text, int bytes, int device)
{
    (void)snprintf(text, (size_t)bytes, "0000:1B:00.0");
    return device == 0 ? 0 : 101;
}
