// SPDX-License-Identifier: Apache-2.0
// Two ends with device memory.
#include "test/softhca/device_ends.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct cuda_calls cu;
int is_far, use_vmm;
struct both a, b;

void find(void *lib, const char *name, void *out, int needed)
{
    void *at = dlsym(lib, name);
    ck_assert_msg(at || !needed, "no %s", name);
    memcpy(out, &at, sizeof at);
}

void cuda_start(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    ck_assert_msg(lib != NULL, "%s", dlerror());
    find(lib, "cuInit", &cu.init, 1);
    find(lib, "cuDevicePrimaryCtxRetain", &cu.retain, 1);
    find(lib, "cuCtxSetCurrent", &cu.set, 1);
    find(lib, "cuMemAlloc_v2", &cu.alloc, 1);
    find(lib, "cuMemFree_v2", &cu.free, 1);
    find(lib, "cuMemcpy", &cu.copy, 1);
    find(lib, "cuMemCreate", &cu.create, 1);
    find(lib, "cuMemRelease", &cu.release, 1);
    find(lib, "cuMemAddressReserve", &cu.reserve, 1);
    find(lib, "cuMemMap", &cu.map, 1);
    find(lib, "cuMemSetAccess", &cu.access, 1);
    find(lib, "cuMemUnmap", &cu.unmap, 1);
    find(lib, "fake_cuda_delay", &cu.delay, 0);
    find(lib, "fake_cuda_fail", &cu.break_copy, 0);
    find(lib, "fake_cuda_copies", &cu.copies, 0);
    find(lib, "fake_cuda_descriptor", &cu.descriptor, 0);
    find(lib, "fake_cuda_far", &cu.far, 0);
    if (cu.far) {
        cu.far(is_far);
    }
    ck_assert_int_eq(cu.init(0), 0);
    ck_assert_int_eq(cu.retain(&context, 0), 0);
    ck_assert_int_eq(cu.set(context), 0);
}

// As NCCL makes it: shown by a descriptor; a granule of 2 MiB is right for every GPU.
#define VMM_BYTES (2u << 20)
static uint64_t vmm_alloc(void)
{
    struct {
        int kind, handles, location, device;
        void *security;
        uint8_t flags[8];
    } properties = {.kind = 1, .handles = 1, .location = 1};
    struct {
        int location, device, flags;
    } access = {1, 0, 3};
    uint64_t allocation = 0, addr = 0;
    ck_assert_int_eq(cu.create(&allocation, VMM_BYTES, &properties, 0), 0);
    ck_assert_int_eq(cu.reserve(&addr, VMM_BYTES, 0, 0, 0), 0);
    ck_assert_int_eq(cu.map(addr, VMM_BYTES, 0, allocation, 0), 0);
    ck_assert_int_eq(cu.access(addr, VMM_BYTES, &access, 1), 0);
    ck_assert_int_eq(cu.release(allocation), 0);
    return addr;
}

uint8_t *device_alloc(size_t bytes)
{
    uint64_t addr = 0;
    if (use_vmm) {
        return (uint8_t *)(uintptr_t)vmm_alloc();
    }
    ck_assert_int_eq(cu.alloc(&addr, bytes), 0);
    return (uint8_t *)(uintptr_t)addr;
}

void device_free(void *p)
{
    if (use_vmm) {
        ck_assert_int_eq(cu.unmap((uintptr_t)p, VMM_BYTES), 0);
        return;
    }
    ck_assert_int_eq(cu.free((uintptr_t)p), 0);
}

void device_copy(void *to, const void *from, size_t bytes)
{
    ck_assert_int_eq(cu.copy((uintptr_t)to, (uintptr_t)from, bytes), 0);
}

void fill(uint8_t *p, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        p[i] = (uint8_t)(seed * 131u + i * 7u + (i >> 8));
    }
}

void both_open(struct both *end, struct ibv_context *ctx)
{
    struct side_options o = {.bytes = BYTES};
    harness_side_open(&end->side, ctx, &o);
    end->host = end->side.buf;
    end->host_mr = end->side.mr;
    end->device = device_alloc(BYTES);
    end->device_mr = ibv_reg_mr(end->side.pd, end->device, BYTES, ALL_ACCESS);
    ck_assert_ptr_nonnull(end->device_mr);
}

void use(struct both *end, int device)
{
    end->side.buf = device ? end->device : end->host;
    end->side.mr = device ? end->device_mr : end->host_mr;
}

void both_close(struct both *end)
{
    use(end, 0);
    ck_assert_int_eq(ibv_dereg_mr(end->device_mr), 0);
    harness_side_close(&end->side);
    device_free(end->device);
}

void both_set(struct both *end, int device, size_t offset, const uint8_t *data, size_t bytes)
{
    if (device) {
        device_copy(end->device + offset, data, bytes);
    } else {
        memcpy(end->host + offset, data, bytes);
    }
}

void both_expect(struct both *end, int device, size_t offset, const uint8_t *data, size_t bytes)
{
    uint8_t *seen = malloc(bytes + 1);
    ck_assert_ptr_nonnull(seen);
    if (device) {
        device_copy(seen, end->device + offset, bytes);
    } else {
        memcpy(seen, end->host + offset, bytes);
    }
    ck_assert_mem_eq(seen, data, bytes);
    free(seen);
}

void loop_open(void)
{
    cuda_start();
    struct ibv_context *ctx = harness_open();
    both_open(&a, ctx);
    both_open(&b, ctx);
    struct address to_a = harness_address(&a.side), to_b = harness_address(&b.side);
    harness_connect(&a.side, &to_b, NULL);
    harness_connect(&b.side, &to_a, NULL);
}

void loop_close(void)
{
    struct ibv_context *ctx = a.side.ctx;
    both_close(&a);
    both_close(&b);
    ck_assert_int_eq(ibv_close_device(ctx), 0);
}
