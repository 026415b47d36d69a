// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that this library calls.
#include "kernels/nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* POSIX gives functions as object pointers. */
static int look_up(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);

    memcpy(out_function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

const char *gemmar_nccl_api_load(void *library, struct gemmar_nccl_api *out)
{
    struct gemmar_nccl_api api;

    memset(&api, 0, sizeof(api));
#define LOOK_UP(member, name, ...)                                                                 \
    if (!look_up(library, #name, &api.member)) {                                                   \
        return #name;                                                                              \
    }
    GEMMAR_NCCL_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    (void)look_up(library, "ncclCommQueryProperties", &api.query_properties);
    *out = api;
    return NULL;
}

/* The library that the process uses: in the global scope when the program is linked against it,
 * else one that was loaded beside it, as Python does. */
static void *find_library(struct gemmar_error *error)
{
    void *library = RTLD_DEFAULT;
    ncclResult_t (*get_version)(int *);

    if (!look_up(RTLD_DEFAULT, "ncclGetVersion", &get_version)) {
        library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD); /* kept: it may not go away */
        if (library == NULL) {
            (void)gemmar_error_set(error, gemmarInvalidUsage,
                                   "no NCCL in this process: neither linked nor loaded as "
                                   "libnccl.so.2");
        }
    }
    return library;
}

static gemmarResult_t load(struct gemmar_nccl_api *out, struct gemmar_error *error)
{
    ncclResult_t (*get_version)(int *) = NULL;
    void *library = find_library(error);
    const char *missing;
    int version = 0;

    if (error->result != gemmarSuccess) {
        return error->result;
    }
    if (!look_up(library, "ncclGetVersion", &get_version) || get_version(&version) != ncclSuccess ||
        version < GEMMAR_NCCL_OLDEST) {
        return gemmar_error_set(error, gemmarInvalidUsage,
                                "the process's NCCL is version %d.%d.%d: 2.28.0 or newer is needed",
                                version / 10000, version / 100 % 100, version % 100);
    }
    missing = gemmar_nccl_api_load(library, out);
    if (missing != NULL) {
        return gemmar_error_set(error, gemmarInvalidUsage, "the process's NCCL %d.%d.%d lacks %s",
                                version / 10000, version / 100 % 100, version % 100, missing);
    }
    out->version = version;
    return gemmarSuccess;
}

const struct gemmar_nccl_api *gemmar_nccl_api(struct gemmar_error *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct gemmar_nccl_api api;
    gemmarResult_t result = gemmarSuccess;

    (void)pthread_mutex_lock(&lock);
    if (api.version == 0) { /* a failure is not kept: NCCL may be loaded later */
        result = load(&api, error);
    }
    (void)pthread_mutex_unlock(&lock);
    return result == gemmarSuccess ? &api : NULL;
}

gemmarResult_t gemmar_nccl_failed(const struct gemmar_nccl_api *api, ncclComm_t nccl,
                                  ncclResult_t result, const char *what, struct gemmar_error *error)
{
    const char *words = api->last_error(nccl);

    return gemmar_error_set(
        error, result == ncclInProgress ? gemmarInternalError : (gemmarResult_t)result,
        "%s: NCCL says %s%s%s", what, api->error_string(result),
        words != NULL && words[0] != '\0' ? ": " : "", words != NULL ? words : "");
}
