// SPDX-License-Identifier: Apache-2.0
// What takes the place of the CPU executor in libgemmar_emulated.so (by the linker, --wrap): calls
// of CPU communicators are the tensor-core kernel's, on an emulated GPU. Plans and memory are those
// of GPUs of one size; all else is the library's.
//
// One rank a process, because processes emulate beside each other. Peers never write into C.
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/fused_sm90.h"
#include "kernels/strides.h"
#include "transport/order.h"

gemmarResult_t __real_gemmar_settings_make(struct gemmar_settings *, const gemmarConfig_t *,
                                           const char *, struct gemmar_logger *,
                                           struct gemmar_error *);
gemmarResult_t __wrap_gemmar_settings_make(struct gemmar_settings *, const gemmarConfig_t *,
                                           const char *, struct gemmar_logger *,
                                           struct gemmar_error *);
gemmarResult_t __real_gemmar_local_peers_open(struct gemmarComm *, uint64_t,
                                              struct gemmar_local_peers *, struct gemmar_error *);
gemmarResult_t __wrap_gemmar_local_peers_open(struct gemmarComm *, uint64_t,
                                              struct gemmar_local_peers *, struct gemmar_error *);
int __wrap_gemmar_cpu_run(struct gemmar_cpu_executor *, const struct gemmar_call *);

static cudaStream_t stream;
static uint32_t most_ctas;

/* All plans are for GPUs. */
gemmarResult_t __wrap_gemmar_settings_make(struct gemmar_settings *out,
                                           const gemmarConfig_t *config, const char *node_text,
                                           struct gemmar_logger *log, struct gemmar_error *error)
{
    gemmarResult_t result = __real_gemmar_settings_make(out, config, node_text, log, error);

    if (stream == NULL && (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != 0 ||
                           gemmar_sm90_load(&most_ctas) != cudaSuccess)) {
        return gemmar_error_set(error, gemmarSystemError, "no emulated GPU");
    }
    out->sms = out->resident = most_ctas;
    return result;
}

/* Nothing has come in an exchange. */
gemmarResult_t __wrap_gemmar_local_peers_open(struct gemmarComm *comm, uint64_t bytes,
                                              struct gemmar_local_peers *peers,
                                              struct gemmar_error *error)
{
    gemmarResult_t result = __real_gemmar_local_peers_open(comm, bytes, peers, error);
    const struct gemmar_workspace *w =
        (const void *)((const char *)peers - offsetof(struct gemmar_workspace, peers));

    if (result == gemmarSuccess) {
        memset((char *)peers->segments[comm->place.local].base + w->layout.exchange, 0xff,
               2 * w->layout.capacity.exchange_bytes);
    }
    return result;
}

/* A copy of an operand that TMA cannot read, which it then means. NULL: as it lies. */
static void *pack(int64_t rows, int64_t cols, const void **base, int64_t *ld)
{
    int64_t packed_ld = gemmar_align_up(cols, GEMMAR_STRIDES_UNIT / 2);
    uint16_t *packed;

    if (rows == 0 || cols == 0 || gemmar_strides_aligned(*base, *ld, 2)) {
        return NULL;
    }
    packed = aligned_alloc(GEMMAR_STRIDES_UNIT, (size_t)(rows * packed_ld) * 2);
    if (packed == NULL) {
        abort();
    }
    for (int64_t r = 0; r < rows; r++) {
        memcpy(&packed[r * packed_ld], (const uint16_t *)*base + r * *ld, (size_t)cols * 2);
    }
    *base = packed;
    *ld = packed_ld;
    return packed;
}

/* Into C where it can be stored, into `out` of the peers. */
static void fill_targets(const struct gemmarComm *comm, struct gemmar_call *call,
                         struct gemmar_target *targets)
{
    const struct gemmar_workspace *w = comm->workspace;

    call->copies = GEMMAR_COPIES_ALL;
    for (uint32_t g = 0; g < comm->place.locals; g++) {
        targets[g] = (struct gemmar_target){w->bases[g] + w->layout.out, call->out_ld};
    }
    if (gemmar_strides_storable(call->operands.c, call->map.n, call->operands.ldc, 2)) {
        targets[comm->place.local] = (struct gemmar_target){call->operands.c, call->operands.ldc};
        call->copies = comm->place.locals > 1 ? GEMMAR_COPIES_FOREIGN : GEMMAR_COPIES_NOTHING;
    }
}

int __wrap_gemmar_cpu_run(struct gemmar_cpu_executor *executor, const struct gemmar_call *wanted)
{
    static const struct gemmar_told_c no_peer_writes;
    struct gemmar_target targets[GEMMAR_MAX_LOCAL_RANKS];
    struct gemmarComm *comm = wanted->watch.look_context;
    struct gemmar_operands o = wanted->operands;
    int64_t m = wanted->map.m, n = wanted->map.n;
    struct gemmar_call call;
    cudaError_t rc;
    void *a, *b;

    (void)executor;
    if (o.dtype == GEMMAR_DTYPE_FP32) {
        return -ENOTSUP;
    }
    gemmar_strides_of_one_row(&o, m, n, 2);
    a = pack(m, o.k, &o.a, &o.lda);
    b = pack(o.trans_b ? n : o.k, o.trans_b ? o.k : n, &o.b, &o.ldb);
    gemmar_launch_fill_tensor(comm, &comm->last_plan, &o, most_ctas, &no_peer_writes, &call);
    fill_targets(comm, &call, targets);
    rc = gemmar_sm90_launch(&call, targets, NULL, 0, stream);
    while (rc == cudaSuccess && cudaStreamQuery(stream) == cudaErrorNotReady) {
        if (wanted->watch.look(comm, UINT32_MAX) != 0) { /* the kernel itself cannot */
            gemmar_store_release(wanted->watch.abort_word, 1);
        }
    }
    free(a);
    free(b);
    if (rc != cudaSuccess) {
        return -EINVAL;
    }
    return gemmar_load_acquire(wanted->watch.abort_word) == 0 ? 0 : -EIO;
}
