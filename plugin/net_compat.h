// SPDX-License-Identifier: Apache-2.0
// What several versions of NCCL's network API share. The functions of net.h have the shape of the
// newest version; net_v12.c to net_v6.c name them in a table each, and these helpers bridge what
// differs. Arguments are checked here only where a conversion needs it; no context is at hand
// there, so that the sentence about a bad one goes to standard error.
#ifndef GEMMAR_NET_COMPAT_H
#define GEMMAR_NET_COMPAT_H

#include <pthread.h>

#include "plugin/net.h"
#include "plugin/net_abi.h"

/* NCCL_NET chooses a network by this name; it must differ from NCCL's own "IB" and "Socket". */
#define GEMMAR_NET_NAME "Gemmar"

#define GEMMAR_NET_EXPORT __attribute__((visibility("default")))

/* Members that every version fills alike. */
#define GEMMAR_NET_TABLE_ALWAYS                                                                    \
    .name = GEMMAR_NET_NAME, .devices = gemmar_net_devices,                                        \
    .reg_mr_dmabuf = gemmar_net_reg_mr_dmabuf, .dereg_mr = gemmar_net_dereg_mr,                    \
    .iflush = gemmar_net_iflush, .test = gemmar_net_test, .close_send = gemmar_net_close_send,     \
    .close_recv = gemmar_net_close_recv, .close_listen = gemmar_net_close_listen

/* Members that v11 and v12 fill alike: a context per communicator. NCCL works out the values for
 * set_net_attr only where it is there. */
#define GEMMAR_NET_TABLE_SINCE_V11                                                                 \
    GEMMAR_NET_TABLE_ALWAYS, .listen = gemmar_net_listen, .connect = gemmar_net_compat_connect,    \
                             .accept = gemmar_net_compat_accept, .reg_mr = gemmar_net_reg_mr,      \
                             .isend = gemmar_net_isend, .irecv = gemmar_net_irecv,                 \
                             .finalize = gemmar_net_finalize, .set_net_attr = NULL

/* init of v11 and v12. comm_id is no key: it may come twice, with other settings. */
#define GEMMAR_NET_INIT_SINCE_V11(version)                                                         \
    static int init(void **out_ctx, uint64_t comm_id, const struct gemmar_net_config *config,      \
                    gemmar_nccl_logger logger, gemmar_nccl_profiler profiler)                      \
    {                                                                                              \
        (void)comm_id;                                                                             \
        return gemmar_net_init((version), config, logger, profiler, out_ctx);                      \
    }

/* Members that v6 to v8 fill alike: int for the sizes of transfers. */
#define GEMMAR_NET_TABLE_INT_TRANSFERS                                                             \
    .isend = gemmar_net_compat_isend_int, .irecv = gemmar_net_compat_irecv_int

/* From v7 on: we have no device code, so *out_device_comm becomes NULL, where it is given. */
int gemmar_net_compat_connect_class(void *ctx, int dev, int traffic_class, void *handle,
                                    void **out_send_comm,
                                    struct gemmar_net_device_handle **out_device_comm);
/* Same, with the context's traffic class. */
int gemmar_net_compat_connect(void *ctx, int dev, void *handle, void **out_send_comm,
                              struct gemmar_net_device_handle **out_device_comm);
int gemmar_net_compat_accept(void *listen_comm, void **out_recv_comm,
                             struct gemmar_net_device_handle **out_device_comm);

/* *out stays untouched on failure. */
int gemmar_net_compat_props_v7(int dev, struct gemmar_net_props_v7 *out);
int gemmar_net_compat_props_v8(int dev, struct gemmar_net_props_v8 *out);
int gemmar_net_compat_props_v9(int dev, struct gemmar_net_props_v9 *out);
int gemmar_net_compat_props_v11(int dev, struct gemmar_net_props_v11 *out);

/* v9 to v11. */
int gemmar_net_compat_make_vdevice(int *out_dev, const struct gemmar_net_vprops_v9 *members);

/* Sizes below 0 are refused. */
int gemmar_net_compat_reg_mr_int(void *comm, void *data, int size, int type, void **out_mhandle);
int gemmar_net_compat_isend_int(void *send_comm, void *data, int size, int tag, void *mhandle,
                                void **out_request);
int gemmar_net_compat_irecv_int(void *recv_comm, int n, void **data, int *sizes, int *tags,
                                void **mhandles, void **request);

/* v6 to v10 have no contexts and no finalize: the communicators of a version share one, made by
 * the first init that succeeds and kept for good. */
struct gemmar_net_shared {
    int api_version;
    pthread_mutex_t lock; /* one init at a time */
    /* Written under lock, once. Read without it by calls that NCCL makes after an init, whose
     * lock and unlock order the write before them. */
    void *ctx;
};

/* Any thread. The logger and the profiler of later calls are not used. */
int gemmar_net_shared_init(struct gemmar_net_shared *shared, gemmar_nccl_logger logger,
                           gemmar_nccl_profiler profiler);

/* Defines the context of a version and the calls that it binds. */
#define GEMMAR_NET_SHARED_CONTEXT(version)                                                         \
    static struct gemmar_net_shared shared = {.api_version = (version),                            \
                                              .lock = PTHREAD_MUTEX_INITIALIZER};                  \
    static int shared_listen(int dev, void *handle, void **out_listen_comm)                        \
    {                                                                                              \
        return gemmar_net_listen(shared.ctx, dev, handle, out_listen_comm);                        \
    }

/* Same, for v7 to v9. */
#define GEMMAR_NET_SHARED_CONTEXT_V7(version)                                                      \
    GEMMAR_NET_SHARED_CONTEXT(version)                                                             \
    static int shared_init(gemmar_nccl_logger logger)                                              \
    {                                                                                              \
        return gemmar_net_shared_init(&shared, logger, NULL);                                      \
    }                                                                                              \
    static int shared_connect(int dev, void *handle, void **out_send_comm,                         \
                              struct gemmar_net_device_handle **out_device_comm)                   \
    {                                                                                              \
        return gemmar_net_compat_connect(shared.ctx, dev, handle, out_send_comm, out_device_comm); \
    }

#define GEMMAR_NET_TABLE_SHARED_V7                                                                 \
    GEMMAR_NET_TABLE_ALWAYS, .init = shared_init, .listen = shared_listen,                         \
                             .connect = shared_connect, .accept = gemmar_net_compat_accept

#endif
