// SPDX-License-Identifier: Apache-2.0
// The NCCL network over the transport, in the shape of the newest plugin API. The files net_v*.c
// give it to NCCL in each version's layout.
//
// Every function returns enum gemmar_nccl_result as an int and logs its own errors through the
// logger of the context that the object came from. Nothing blocks: what is not ready yet is success
// with a NULL object or request. Threads as NCCL has them: init, devices and make_vdevice may come
// from any thread; calls on one communicator come from one thread at a time, except registrations,
// which may come beside transfers.
#ifndef GEMMAR_NET_H
#define GEMMAR_NET_H

#include "plugin/net_abi.h"

/* `version` is that of the API NCCL took. `config` may be NULL. From v11 on a context lives until
 * finalize; those of older versions for ever, and hold no threads or descriptors. */
int gemmar_net_init(int version, const struct gemmar_net_config *config, gemmar_nccl_logger log,
                    gemmar_nccl_profiler profiler, void **out_context);
/* Another init with a context that is there for ever: NCCL has loaded the library anew. */
int gemmar_net_init_again(void *context);
/* NULL is legal. Communicators of the context must be closed before. */
int gemmar_net_finalize(void *context);

int gemmar_net_devices(int *out_count);
/* Writes nothing unless it succeeds. */
int gemmar_net_properties(int dev, struct gemmar_net_props_v12 *out);
/* A device of several ports; the same members give the same index. */
int gemmar_net_make_vdevice(int *out_dev, const struct gemmar_net_vprops_v12 *members);

/* `handle`: GEMMAR_NET_HANDLE_SIZE bytes. */
int gemmar_net_listen(void *context, int dev, void *handle, void **out_listen);
/* Called again with the same handle, or a copy of it, until *out_send is set. `traffic_class` -1:
 * that of the context. */
int gemmar_net_connect(void *context, int dev, int traffic_class, void *handle, void **out_send);
int gemmar_net_accept(void *listen, void **out_recv);
int gemmar_net_close_listen(void *listen);
int gemmar_net_close_send(void *send);
int gemmar_net_close_recv(void *recv);

/* `type`: enum gemmar_net_ptr. The handle serves every communicator of the device and outlives the
 * one it was made with. */
int gemmar_net_reg_mr(void *comm, void *data, size_t size, int type, void **out_mhandle);
int gemmar_net_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                             void **out_mhandle);
int gemmar_net_dereg_mr(void *comm, void *mhandle);

/* A NULL *out_request: no receive matches yet, or no room; call again. */
int gemmar_net_isend(void *send, void *data, size_t size, int tag, void *mhandle, void *phandle,
                     void **out_request);
/* Up to 8 receives as one request. What *out_request holds on entry is not looked at. */
int gemmar_net_irecv(void *recv, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                     void **phandles, void **out_request);
/* A NULL *out_request: nothing needs a flush. */
int gemmar_net_iflush(void *recv, int n, void **data, int *sizes, void **mhandles,
                      void **out_request);
/* Frees the request when *out_done is 1. `sizes` may be NULL; sizes above INT_MAX read INT_MAX. */
int gemmar_net_test(void *request, int *out_done, int *sizes);

#endif
