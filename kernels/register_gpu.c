// SPDX-License-Identifier: Apache-2.0
// Memory that peers write directly: allocation, registration, and which calls use it.
#include "kernels/gpu.h"

#include <inttypes.h>
#include <stdlib.h>

gemmarResult_t gemmarMemAlloc(void **ptr, size_t bytes)
{
    struct gemmar_error *error = gemmar_error_thread();
    const struct gemmar_nccl_api *api;
    void *memory = NULL;
    ncclResult_t rc;

    gemmar_error_clear(error);
    if (ptr == NULL || bytes == 0) {
        return gemmar_error_set(error, gemmarInvalidArgument, "ptr is %s, bytes %zu",
                                ptr == NULL ? "NULL" : "given", bytes);
    }
    api = gemmar_nccl_api(error);
    if (api == NULL) {
        return error->result;
    }
    rc = api->mem_alloc(&memory, bytes);
    if (rc != ncclSuccess) {
        return gemmar_nccl_failed(api, NULL, rc, "ncclMemAlloc", error);
    }
    *ptr = memory;
    return gemmarSuccess;
}

gemmarResult_t gemmarMemFree(void *ptr)
{
    struct gemmar_error *error = gemmar_error_thread();
    const struct gemmar_nccl_api *api;
    ncclResult_t rc;

    gemmar_error_clear(error);
    if (ptr == NULL) {
        return gemmarSuccess;
    }
    api = gemmar_nccl_api(error);
    if (api == NULL) {
        return error->result;
    }
    rc = api->mem_free(ptr);
    return rc == ncclSuccess ? gemmarSuccess
                             : gemmar_nccl_failed(api, NULL, rc, "ncclMemFree", error);
}

static gemmarResult_t refuse(struct gemmarComm *comm, const struct gemmar_error *error)
{
    return error->fatal ? gemmar_comm_break(comm, error->result, "rank %u: %s", comm->place.rank,
                                            error->text)
                        : gemmar_comm_refuse(comm, error->result, "%s", error->text);
}

/* Entry of both: a live communicator of GPUs. */
static gemmarResult_t enter(struct gemmarComm *comm)
{
    gemmarResult_t result = gemmar_comm_enter(comm);

    if (result == gemmarSuccess && comm->gpu == NULL) {
        result =
            gemmar_comm_refuse(comm, gemmarInvalidUsage, "a CPU communicator registers no buffers");
        return gemmar_comm_leave(comm, result);
    }
    return result;
}

gemmarResult_t gemmarCommRegister(gemmarComm_t comm, void *buff, size_t bytes, void **handle)
{
    struct gemmar_error error = {.result = gemmarSuccess};
    struct gemmar_registration *r;
    gemmarResult_t result = enter(comm);
    int before;

    if (result != gemmarSuccess) {
        return result;
    }
    r = calloc(1, sizeof(*r));
    if (r == NULL) { /* takes part, so that all ranks refuse */
        (void)gemmar_error_set(&error, gemmarSystemError, "out of memory");
    } else if (buff == NULL || bytes == 0 || handle == NULL) {
        (void)gemmar_error_set(&error, gemmarInvalidArgument, "buff %p, %zu bytes, handle %s", buff,
                               bytes, handle == NULL ? "NULL" : "given");
    }
    before = gemmar_gpu_enter(comm->gpu->device);
    (void)gemmar_gpu_settle(comm, &error);
    result = gemmar_fabric_window(comm, buff, bytes, r != NULL ? &r->window : NULL,
                                  r != NULL ? r->peers : NULL, &error);
    gemmar_gpu_leave(comm->gpu->device, before);
    if (result != gemmarSuccess) {
        free(r);
        return gemmar_comm_leave(comm, refuse(comm, &error));
    }
    r->buff = buff;
    r->bytes = bytes;
    r->number = ++comm->gpu->registered;
    r->next = comm->gpu->registrations;
    comm->gpu->registrations = r;
    *handle = r;
    return gemmar_comm_leave(comm, gemmarSuccess);
}

/* The link that leads to `handle`, or to NULL. */
static struct gemmar_registration **find(struct gemmar_gpu *gpu, const void *handle)
{
    struct gemmar_registration **link = &gpu->registrations;

    while (*link != NULL && *link != handle) {
        link = &(*link)->next;
    }
    return link;
}

/* All ranks end the same registration, and have ended the calls that used it: mine write into the
 * peers' memory no more when it is unmapped here. */
static gemmarResult_t agree_on_end(struct gemmarComm *comm, const struct gemmar_registration *r,
                                   struct gemmar_error *error)
{
    uint64_t mine = r != NULL ? r->number : 0, *all = calloc(comm->place.ranks, sizeof(*all));
    gemmarResult_t result;

    if (all == NULL) {
        (void)gemmar_error_set(error, gemmarSystemError, "out of memory");
    } else if (r == NULL) {
        (void)gemmar_error_set(error, gemmarInvalidArgument, "handle is not a registration");
    } else {
        (void)gemmar_gpu_settle(comm, error);
    }
    result =
        gemmar_agree(&comm->bootstrap, GEMMAR_AGREE_DEREGISTER, error, &mine, sizeof(mine), all);
    for (uint32_t i = 1; result == gemmarSuccess && i < comm->place.ranks; i++) {
        if (all[i] != all[0]) {
            result = gemmar_error_set(error, gemmarInvalidUsage,
                                      "rank %u ends registration %" PRIu64 ", rank 0 %" PRIu64, i,
                                      all[i], all[0]);
        }
    }
    free(all);
    return result;
}

gemmarResult_t gemmarCommDeregister(gemmarComm_t comm, void *handle)
{
    struct gemmar_error error = {.result = gemmarSuccess};
    struct gemmar_registration **link, *r;
    gemmarResult_t result = enter(comm);
    int before;

    if (result != gemmarSuccess) {
        return result;
    }
    link = find(comm->gpu, handle);
    r = *link;
    result = agree_on_end(comm, r, &error);
    if (result != gemmarSuccess) {
        return gemmar_comm_leave(comm, refuse(comm, &error));
    }
    before = gemmar_gpu_enter(comm->gpu->device);
    (void)comm->gpu->api->window_deregister(comm->gpu->node, r->window); /* local; no way back */
    gemmar_gpu_leave(comm->gpu->device, before);
    *link = r->next;
    free(r);
    return gemmar_comm_leave(comm, gemmarSuccess);
}

void gemmar_gpu_forget_registrations(struct gemmar_gpu *gpu)
{
    struct gemmar_registration *r;

    while ((r = gpu->registrations) != NULL) {
        gpu->registrations = r->next;
        if (!gpu->left_behind) {
            (void)gpu->api->window_deregister(gpu->node, r->window);
        }
        free(r);
    }
}

const struct gemmar_registration *gemmar_gpu_registration(const struct gemmar_gpu *gpu,
                                                          const void *c, uint64_t bytes)
{
    const struct gemmar_registration *r = gpu->registrations;

    while (r != NULL) {
        uint64_t offset = (uint64_t)((const char *)c - r->buff); /* huge when c lies before */

        if (offset <= r->bytes && bytes <= r->bytes - offset) {
            break;
        }
        r = r->next;
    }
    return r;
}
