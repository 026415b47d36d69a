// SPDX-License-Identifier: Apache-2.0
// libibverbs, found at run time.
#include "transport/ib_verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct symbol {
    const char *name;
    const char *version;
    size_t offset; /* of the member in struct gemmar_ib_verbs */
    bool optional;
};

#define NEED(name, version)                                                                        \
    {                                                                                              \
        "ibv_" #name, version, offsetof(struct gemmar_ib_verbs, name), false                       \
    }
#define MAY(name, version)                                                                         \
    {                                                                                              \
        "ibv_" #name, version, offsetof(struct gemmar_ib_verbs, name), true                        \
    }
#define MAY_AS(text, name, ver)                                                                    \
    {                                                                                              \
        text, ver, offsetof(struct gemmar_ib_verbs, name), true                                    \
    }

/* Versions: libibverbs.map of rdma-core; 1.1 entries have kept theirs since 2008. */
static const struct symbol symbols[] = {
    NEED(get_device_list, "IBVERBS_1.1"),
    NEED(free_device_list, "IBVERBS_1.1"),
    NEED(get_device_name, "IBVERBS_1.1"),
    NEED(open_device, "IBVERBS_1.1"),
    NEED(close_device, "IBVERBS_1.1"),
    NEED(query_device, "IBVERBS_1.1"),
    NEED(query_port, "IBVERBS_1.1"),
    NEED(query_gid, "IBVERBS_1.1"),
    NEED(alloc_pd, "IBVERBS_1.1"),
    NEED(dealloc_pd, "IBVERBS_1.1"),
    NEED(reg_mr, "IBVERBS_1.1"),
    NEED(dereg_mr, "IBVERBS_1.1"),
    NEED(create_cq, "IBVERBS_1.1"),
    NEED(destroy_cq, "IBVERBS_1.1"),
    NEED(create_qp, "IBVERBS_1.1"),
    NEED(modify_qp, "IBVERBS_1.1"),
    NEED(destroy_qp, "IBVERBS_1.1"),
    NEED(get_async_event, "IBVERBS_1.1"),
    NEED(ack_async_event, "IBVERBS_1.1"),
    NEED(fork_init, "IBVERBS_1.1"),
    NEED(event_type_str, "IBVERBS_1.1"),
    NEED(wc_status_str, "IBVERBS_1.1"),
    MAY(reg_mr_iova2, "IBVERBS_1.8"),
    MAY(reg_dmabuf_mr, "IBVERBS_1.12"),
    MAY_AS("_ibv_query_gid_ex", query_gid_ex, "IBVERBS_1.11"),
    MAY(query_ece, "IBVERBS_1.10"),
    MAY(set_ece, "IBVERBS_1.10"),
};

int gemmar_ib_verbs_load(const struct gemmar_knobs *knobs, const struct gemmar_logger *log,
                         struct gemmar_ib_verbs *out)
{
    const char *path = knobs->ibverbs[0] != '\0'       ? knobs->ibverbs
                       : knobs->ibverbs_lib[0] != '\0' ? knobs->ibverbs_lib
                                                       : "libibverbs.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct gemmar_ib_verbs table;
    int missing = 0;

    if (library == NULL) {
        gemmar_warn(log, "ib_verbs: cannot load %s: %s; install rdma-core (Debian: libibverbs1)",
                    path, dlerror());
        return -ENOENT;
    }
    memset(&table, 0, sizeof(table));
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlvsym(library, symbols[i].name, symbols[i].version);

        if (address != NULL) {
            memcpy((char *)&table + symbols[i].offset, &address, sizeof(address));
        } else if (!symbols[i].optional) {
            gemmar_warn(log, "ib_verbs: %s has no %s@%s", path, symbols[i].name,
                        symbols[i].version);
            missing++;
        } else {
            gemmar_info(log, "ib_verbs: %s has no %s, going on without it", path, symbols[i].name);
        }
    }
    if (missing != 0) {
        (void)dlclose(library); /* nothing of it was used */
        return -ENOENT;
    }
    *out = table;
    return 0;
}
