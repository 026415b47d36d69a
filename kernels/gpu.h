// SPDX-License-Identifier: Apache-2.0
// A communicator on a GPU: what it has beside the members that all communicators have.
#ifndef GEMMAR_KERNELS_GPU_H
#define GEMMAR_KERNELS_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "kernels/backend.h"
#include "kernels/fused_sm90.h"
#include "kernels/local_gather.h"
#include "kernels/local_peers.h"
#include "kernels/nccl_api.h"
#include "kernels/nccl_gather.h"
#include "kernels/nodes_gather.h"
#include "kernels/told.h"
#include "kernels/trace.h"

#define GEMMAR_GPU_SEEN 64 /* pointers of earlier calls that were found good */

/* In the second page of a rank's segment: pinned, mapped into the GPU, and its local peers may set
 * the abort word. */
struct gemmar_gpu_words {
    struct gemmar_comm_words comm;
    struct gemmar_trouble trouble;
};

/* A buffer that peers write directly. */
struct gemmar_registration {
    struct gemmar_registration *next;
    uint64_t number; /* counts registrations: equal on all ranks */
    char *buff;
    uint64_t bytes;
    ncclWindow_t window;
    char *peers[GEMMAR_MAX_LOCAL_RANKS]; /* `buff` of every local rank, as this GPU maps it */
};

/* Calls of a communicator run one after the other, whatever their streams. */
struct gemmar_gpu_order {
    cudaEvent_t last;           /* end of the last call outside capture */
    bool any;                   /* there was one */
    cudaEvent_t captured;       /* end of the last captured call, within its capture */
    unsigned long long capture; /* whose number this is */
    unsigned long long now;     /* number of the capture that the call at hand is in; 0: none */
};

#define GEMMAR_GPU_TRACE_ITEMS 256u /* of a CTA that fit: 2 MiB in all */
#define GEMMAR_GPU_TRACE_TAIL  sizeof(uint64_t)

/* GEMMAR_TRACE. Calls run one after the other, so the buffer is of one call. */
struct gemmar_gpu_trace {
    /* Device memory: [ctas][GEMMAR_GPU_TRACE_ITEMS][GEMMAR_TRACE_EVENTS], behind it a word whose
     * first byte says which of `calls` it is. NULL: there is no trace. */
    uint64_t *events;
    uint32_t ctas;
    int fd;
    struct gemmar_traced *calls; /* 0: the last one outside capture; others: captured */
    uint32_t captured;           /* of them that are captured */
};

struct gemmar_gpu {
    const struct gemmar_nccl_api *api;
    int device; /* -1: not known yet */
    uint32_t sms;
    uint32_t most_ctas;                      /* of the kernel that can be resident at once */
    ncclComm_t parent;                       /* the caller's; not used after creation */
    ncclComm_t node;                         /* ours: the ranks of this node, in local order */
    struct gemmar_gather gather;             /* until the segments are there */
    struct gemmar_local_gather local_gather; /* from then on, on one node */
    struct gemmar_nodes_gather nodes_gather; /* and on several */

    struct gemmar_local_peers peers;
    struct gemmar_gpu_words *words;  /* in my segment */
    struct gemmar_gpu_words *mapped; /* the same, as the GPU sees it */
    uint32_t *rank_of;               /* communicator's, in device memory */
    uint64_t *answers;               /* pinned: what small kernels and copies give back */
    cudaStream_t stream;             /* for set-up; calls run on the caller's */
    cudaMemPool_t pool;              /* operands that had to be packed */

    struct gemmar_gpu_order order;
    uint64_t calls; /* outside capture */
    const void *seen[GEMMAR_GPU_SEEN];
    cudaStream_t seen_stream; /* the last one whose device was asked for; NULL: none */
    struct gemmar_registration *registrations;
    uint64_t registered; /* so far */
    struct gemmar_gpu_trace trace;
    bool left_behind; /* a call did not end: its memory is not given back, it may still run */
};

/* An allocation that memory lies in. */
struct gemmar_gpu_memory {
    char *base;
    uint64_t bytes;
    bool shareable; /* a window can be laid over it */
};

extern const struct gemmar_backend gemmar_backend_gpu;

/* kernels/comm_gpu.c. NULL is legal. Never waits for a peer. */
void gemmar_gpu_close(struct gemmar_gpu *gpu, bool ended);

/* kernels/fabric_nccl.c: the communicator of the node's ranks (collective, `gpu->node` is set on
 * success), and the workspace's memory. */
gemmarResult_t gemmar_fabric_attach(struct gemmarComm *comm, struct gemmar_error *error);
gemmarResult_t gemmar_fabric_open_memory(struct gemmarComm *comm, struct gemmar_workspace *w,
                                         uint64_t epoch, struct gemmar_error *error);
void gemmar_fabric_close_memory(struct gemmarComm *comm, struct gemmar_workspace *w);
/* Have all calls ended? If one does not, `gpu->left_behind` is set for good. */
bool gemmar_fabric_quiet(struct gemmarComm *comm);

/* Collective: a window over the allocation that [buff, buff + bytes) lies in; out_peers[g] is
 * `buff` of local rank g. All ranks refuse memory that differs between them or cannot be shared. */
gemmarResult_t gemmar_fabric_window(struct gemmarComm *comm, void *buff, uint64_t bytes,
                                    ncclWindow_t *out_window, char **out_peers,
                                    struct gemmar_error *error);

/* kernels/network_gpu.c: where the GPU sits, for the choice of rails, and struct gemmar_backend's
 * members for the network. */
void gemmar_gpu_find_place(struct gemmarComm *comm);
int gemmar_gpu_net_memory(struct gemmarComm *comm, struct gemmar_workspace *w,
                          struct gemmar_memory *out);
int gemmar_gpu_map(struct gemmarComm *comm, void *host, uint64_t bytes, void **out_seen);
void gemmar_gpu_unmap(struct gemmarComm *comm, void *host);
int gemmar_gpu_upload(struct gemmarComm *comm, const void *table, uint64_t bytes, void **out_seen);
void gemmar_gpu_discard(struct gemmarComm *comm, void *seen);
int gemmar_gpu_pushed(struct gemmarComm *comm, const struct gemmar_workspace *w, uint64_t *out);

/* kernels/comm_gpu.c: a word of device memory, after the calls that write it have ended. */
cudaError_t gemmar_gpu_read_word(struct gemmarComm *comm, const uint64_t *word, uint64_t *out);

/* kernels/fabric_nccl.c: a function of the driver, without linking against it. */
bool gemmar_gpu_driver_function(const char *name, unsigned version, void *out_function);

/* kernels/register_gpu.c: the registration that [c, c + bytes) lies in, or NULL. */
const struct gemmar_registration *gemmar_gpu_registration(const struct gemmar_gpu *gpu,
                                                          const void *c, uint64_t bytes);
void gemmar_gpu_forget_registrations(struct gemmar_gpu *gpu);

/* kernels/operands_gpu.c: where the results go, [locals], what of it is equal on ranks that keep
 * the rule of gemmarCommRegister, and what the kernel has to copy to C afterwards. */
enum gemmar_copies gemmar_gpu_targets(const struct gemmarComm *comm,
                                      const struct gemmar_tile_map *map,
                                      const struct gemmar_operands *operands,
                                      struct gemmar_target *out_targets,
                                      struct gemmar_told_c *out_told);

/* Operands that the kernel cannot read as they lie: copies of them, which `operands` then means. To
 * be freed after the launch, also when packing failed. All of it in stream order. */
struct gemmar_gpu_packed {
    void *a, *b;
};
cudaError_t gemmar_gpu_pack(const struct gemmar_gpu *gpu, const struct gemmar_tile_map *map,
                            struct gemmar_operands *operands, struct gemmar_gpu_packed *out,
                            cudaStream_t stream);
cudaError_t gemmar_gpu_free_packed(const struct gemmar_gpu_packed *packed, cudaStream_t stream);

/* kernels/trace_gpu.c. What fails is a warning, and there is no trace. Closing writes the file; it
 * needs the calls to have ended, unless they were left behind. */
void gemmar_gpu_trace_open(struct gemmarComm *comm);
void gemmar_gpu_trace_close(struct gemmarComm *comm);
/* Before the launch of a call: enqueues that the buffer is empty, and of this call. The buffer, or
 * NULL: the call is not traced. */
uint64_t *gemmar_gpu_trace_call(struct gemmar_gpu *gpu, const struct gemmar_call *call,
                                cudaStream_t stream);

/* kernels/launch_gpu.c: struct gemmar_backend's members. */
gemmarResult_t gemmar_gpu_check(struct gemmarComm *comm, const gemmarFusedArgs_t *args,
                                gemmarStream_t stream, struct gemmar_error *error);
bool gemmar_gpu_capturing(struct gemmarComm *comm, gemmarStream_t stream);
gemmarResult_t gemmar_gpu_run(struct gemmarComm *comm, const struct gemmar_plan *plan,
                              const struct gemmar_operands *operands, gemmarStream_t stream);
gemmarResult_t gemmar_gpu_settle(struct gemmarComm *comm, struct gemmar_error *error);

#endif
