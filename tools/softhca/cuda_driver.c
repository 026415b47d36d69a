// SPDX-License-Identifier: Apache-2.0
// Finds the CUDA driver that the program uses.
#include "tools/softhca/cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "tools/softhca/config.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct softhca_cuda_driver driver; // under lock until state is 1
static int state;                         // 0 not loaded yet, 1 usable, -1 refused; under lock

// NULL or the first missing name.
static const char *look_up(void *lib)
{
#define LOOK(field, symbol, arguments)                                                             \
    void *field##_at = dlsym(lib, #symbol);                                                        \
    memcpy(&driver.field, &field##_at, sizeof driver.field);                                       \
    if (!driver.field) {                                                                           \
        return #symbol;                                                                            \
    }
    SOFTHCA_CUDA_CALLS(LOOK)
#undef LOOK
    int vmm = 1;
#define LOOK(field, symbol, arguments)                                                             \
    void *field##_vmm = dlsym(lib, #symbol);                                                       \
    memcpy(&driver.vmm.field, &field##_vmm, sizeof driver.vmm.field);                              \
    vmm &= field##_vmm != NULL;
    SOFTHCA_CUDA_VMM_CALLS(LOOK)
#undef LOOK
    if (!vmm) {
        memset(&driver.vmm, 0, sizeof driver.vmm);
    }
    void *batch = dlsym(lib, "cuMemcpyBatchAsync_v2");
    memcpy(&driver.copy_batch, &batch, sizeof driver.copy_batch);
    return NULL;
}

const struct softhca_cuda_driver *softhca_cuda_driver(void)
{
    (void)pthread_mutex_lock(&lock);
    if (state == 0) {
        // never load it: a program without CUDA has no CUDA memory
        void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); // kept, as its calls are
        const char *missing = lib ? look_up(lib) : NULL;
        if (missing) {
            softhca_log("softhca: cuda: libcuda.so.1 has no %s; device memory cannot be registered",
                        missing);
        }
        state = missing ? -1 : lib != NULL;
    }
    int usable = state == 1;
    (void)pthread_mutex_unlock(&lock);
    return usable ? &driver : NULL;
}
