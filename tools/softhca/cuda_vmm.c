// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemCreate, which CUDA IPC does not know: shown by a descriptor of its allocation.
#include <errno.h>
#include <unistd.h>

#include "tools/softhca/cuda_gpu.h"
#include "tools/softhca/fabric.h"

int softhca_cuda_describe(const struct softhca_gpu *gpu, const void *addr)
{
    const struct softhca_cuda_driver *cu = gpu->cu;
    uint64_t allocation = 0;
    int fd = -1;
    if (!cu->vmm.retain || cu->vmm.retain(&allocation, addr)) {
        return -1;
    }
    if (cu->vmm.describe(&fd, allocation, SOFTHCA_CUDA_HANDLE_DESCRIPTOR, 0)) {
        fd = -1; // was not made to be shared so
    }
    (void)cu->vmm.release(allocation); // the reference that retain took
    return fd;
}

static int map(const struct softhca_gpu *gpu, uint64_t allocation, uint64_t bytes, uint64_t *out)
{
    const struct softhca_cuda_driver *cu = gpu->cu;
    struct softhca_cuda_access access = {.kind = SOFTHCA_CUDA_LOCATION_DEVICE,
                                         .flags = SOFTHCA_CUDA_READ_WRITE};
    int error = cu->device(&access.device);
    error = error ? error : cu->vmm.reserve(out, bytes, 0, 0, 0);
    if (error) {
        return error;
    }
    error = cu->vmm.map(*out, bytes, 0, allocation, 0);
    if (!error && (error = cu->vmm.set_access(*out, bytes, &access, 1))) {
        (void)cu->vmm.unmap(*out, bytes); // was mapped just now
    }
    if (error) {
        (void)cu->vmm.unreserve(*out, bytes); // was reserved just now
    }
    return error;
}

uint64_t softhca_cuda_map(const struct softhca_gpu *gpu, int fd, uint64_t bytes)
{
    const struct softhca_cuda_driver *cu = gpu->cu;
    uint64_t allocation = 0, addr = 0;
    if (!cu->vmm.retain ||
        cu->vmm.import(&allocation, (void *)(intptr_t)fd, SOFTHCA_CUDA_HANDLE_DESCRIPTOR)) {
        return 0;
    }
    int error = map(gpu, allocation, bytes, &addr);
    (void)cu->vmm.release(allocation); // the mapping keeps it
    return error ? 0 : addr;
}

void softhca_cuda_unmap(const struct softhca_gpu *gpu, uint64_t addr, uint64_t bytes)
{
    (void)gpu->cu->vmm.unmap(addr, bytes); // both: we mapped it
    (void)gpu->cu->vmm.unreserve(addr, bytes);
}
