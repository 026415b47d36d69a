// SPDX-License-Identifier: Apache-2.0
// gemmar: a tensor-parallel matrix product fused with its all-reduce.
//
// Every rank r of a communicator holds A_r [M,K] and B_r [K,N]; a call gives every rank
//     C = alpha * (sum over r of A_r * B_r) + beta * C + bias
// with fp32 accumulation in a fixed order, so that all ranks hold the same bits.
//
// Manners are NCCL's: calls are collective, every rank makes the same calls in the same order, the
// stream comes last, results are codes and gemmarGetLastError() has the sentence. No function ends
// the process. A communicator serves one thread at a time, except gemmarCommAbort() and
// gemmarCommGetAsyncError(), which any thread may call at any time.
#ifndef GEMMAR_GEMMAR_H
#define GEMMAR_GEMMAR_H

#include <stddef.h>
#include <stdint.h>

#define GEMMAR_MAJOR   0
#define GEMMAR_MINOR   1
#define GEMMAR_PATCH   0
#define GEMMAR_VERSION (GEMMAR_MAJOR * 10000 + GEMMAR_MINOR * 100 + GEMMAR_PATCH)

#if defined(__GNUC__)
#define GEMMAR_API __attribute__((visibility("default")))
#else
#define GEMMAR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator of one rank. */
typedef struct gemmarComm *gemmarComm_t;

/* The same types as cudaStream_t and NCCL's own, without CUDA's and NCCL's headers. */
typedef struct CUstream_st *gemmarStream_t;
typedef struct ncclComm *ncclComm_t;

/* Result codes; the values are those of ncclResult_t. */
typedef enum {
    gemmarSuccess = 0,
    gemmarUnhandledCudaError = 1,
    gemmarSystemError = 2,   /* the operating system or the verbs provider refused something */
    gemmarInternalError = 3, /* a fault of this library */
    gemmarInvalidArgument = 4,
    gemmarInvalidUsage = 5, /* the call is wrong in this state, or differs between ranks */
    gemmarRemoteError = 6,  /* a peer failed, or did not answer within the timeout */
    gemmarInProgress = 7
} gemmarResult_t;

/* Element types; the values are those of ncclDataType_t. A, B, C and bias share one type. */
typedef enum {
    gemmarFloat16 = 6,
    gemmarFloat32 = 7, /* CPU communicators only */
    gemmarBfloat16 = 9
} gemmarDataType_t;

typedef enum {
    gemmarAlgoAuto = 0,    /* the plan chooses */
    gemmarAlgoDirect = 1,  /* between nodes: every node sends its sum to every other, one hop */
    gemmarAlgoTwoShot = 2, /* reduce-scatter, then all-gather: two hops, bytes flat in nodes */
    gemmarAlgoNone = 3     /* reported for a single node */
} gemmarAlgo_t;

/* How the products of a node's GPUs come together. */
typedef enum {
    gemmarStrategyAuto = 0, /* the plan chooses */
    gemmarStrategyPush = 1, /* each GPU sends its part to the owner, whose product adds it */
    gemmarStrategyPull = 2, /* the owner fetches the others' parts and adds them */
    /* two GPUs of one node alone: each sends its part of everything to the other, and both add */
    gemmarStrategyExchange = 3
} gemmarStrategy_t;

/* Settings of a communicator; begin with GEMMAR_CONFIG_INITIALIZER. All ranks pass equal values
 * unless a member says that it is local. Zero means the default, which the knob of the same name
 * may change (docs/tuning.md). */
typedef struct {
    size_t size;        /* of this struct */
    uint32_t magic;     /* GEMMAR_CONFIG_MAGIC */
    uint32_t version;   /* GEMMAR_VERSION */
    gemmarAlgo_t algo;  /* default: gemmarAlgoAuto */
    uint32_t tile_m;    /* rows of a tile; default: the plan's */
    uint32_t tile_n;    /* columns of a tile; default: the plan's */
    uint32_t chunk;     /* tiles of a chunk; default: the plan's */
    uint32_t ctas;      /* local: threads (CPU) or CTAs (GPU) of a call; default: the plan's */
    uint32_t stages;    /* local: depth of the GPU's operand pipeline; default: the plan's. Without
                           effect on a CPU communicator */
    uint32_t timeoutMs; /* wait for a peer at most this long; default: GEMMAR_TIMEOUT */
    uint32_t check;     /* 1: compare every call's arguments between the ranks first (slow; not in
                           stream capture) */
    /* Called from the calling thread and from threads of the library with one line of text each,
     * level 1 (warning) or 2 (information). Local. NULL: standard error. */
    void (*log)(void *user, int level, const char *text);
    void *logUser;
    /* Members from here on may be missing: `size` says it. All are for GPUs. */
    gemmarStrategy_t strategy; /* default: gemmarStrategyAuto */
    uint32_t maxCtas;          /* local: CTAs of a call at most, so that other kernels have room;
                                  default: all that fit */
    uint32_t deterministic;    /* 1: a call's bits depend on its shape, the model of the GPUs, the
                                  rate of their NICs and the number of both, but not on the tuning
                                  table */
    uint32_t reserved;         /* 0 */
} gemmarConfig_t;

#define GEMMAR_CONFIG_MAGIC 0x67656d6du
#define GEMMAR_CONFIG_INITIALIZER                                                                  \
    {                                                                                              \
        sizeof(gemmarConfig_t), GEMMAR_CONFIG_MAGIC, GEMMAR_VERSION, gemmarAlgoAuto, 0, 0, 0, 0,   \
            0, 0, 0, NULL, NULL, gemmarStrategyAuto, 0, 0, 0                                       \
    }

/* How the ranks of a CPU communicator find each other: one blocking all-gather of the caller's. */
typedef struct {
    size_t size; /* of this struct */
    int rank;
    int nranks;
    /* Gather `bytes` bytes of every rank, in rank order, into `all` [nranks * bytes]. Returns 0, or
     * another value when it failed (the call that used it then fails with gemmarSystemError). It
     * must fail when a rank's process has ended, else the others wait for it here: the timeout of
     * the communicator does not reach into it. Called by creation, destruction, growth, and by
     * every call when `check` is set. */
    int (*allGather)(void *context, const void *mine, void *all, size_t bytes);
    void *context; /* must live as long as the communicator */
    /* Ranks with equal text are one node and share memory. NULL: NCCL_HOSTID, else host name and
     * boot id. */
    const char *node;
} gemmarHostBootstrap_t;

/* What a call would use, or did use. */
typedef struct {
    size_t size; /* of this struct, set by the caller */
    int rank, nranks;
    int node, nodes;           /* index of this rank's node, and how many */
    int localRank, localRanks; /* inside the node */
    gemmarAlgo_t algo;         /* of the last call; none on one node or without chunks */
    uint64_t epoch;            /* of the next call that runs the protocol */
    uint64_t wireBytes;        /* data bytes this rank put on the wire, all calls */
    uint64_t stampBytes;       /* bytes of arrival stamps this rank put on the wire, all calls */
    uint64_t wireBytesFormula; /* data bytes of the last call by formula: the exact sum over the
                                  chunks that this rank sends, on a CPU of their valid bytes, on a
                                  GPU with rows and columns filled up to what travels at once */
    uint64_t workspaceBytes;   /* memory of the current workspace of this rank */
    uint64_t chunks;           /* of the last call */
} gemmarCommInfo_t;

/* The library's version, GEMMAR_VERSION of its build. Errors: InvalidArgument. */
GEMMAR_API gemmarResult_t gemmarGetVersion(int *version);

/* Version and commit of this build, "0.1.0+0123456789ab": a constant. The transport library and the
 * libgemmar of all ranks must have the same one; a communicator is refused otherwise. */
GEMMAR_API const char *gemmarGetBuildId(void);

/* A constant text for a result code. */
GEMMAR_API const char *gemmarGetErrorString(gemmarResult_t result);

/* The sentence of the last error of `comm`, or with NULL of this thread's last call without a
 * communicator. "" when there is none. Valid until the next call on `comm` or from this thread. */
GEMMAR_API const char *gemmarGetLastError(gemmarComm_t comm);

/* Create a communicator whose calls run on the CPU, over shared memory inside a node and over RDMA
 * verbs between nodes. Collective over bootstrap->nranks ranks; every node must hold the same
 * number of ranks. `config` may be NULL. *comm is NULL after an error. Errors: InvalidArgument,
 * InvalidUsage (ranks disagree), SystemError (no verbs device, no memory), RemoteError. */
GEMMAR_API gemmarResult_t gemmarCommCreateHost(gemmarComm_t *comm,
                                               const gemmarHostBootstrap_t *bootstrap,
                                               const gemmarConfig_t *config);

/*
 * Create a communicator whose calls run on the GPU that `nccl` was made on, which must be the
 * calling thread's current device. Collective over all ranks of `nccl`, host-synchronous, not in
 * stream capture nor inside a group of NCCL's; NCCL carries everything that the ranks tell each
 * other here, so this comes in the same order as other calls on `nccl` on all ranks, and no other
 * thread uses `nccl` meanwhile. `nccl` stays the caller's and is split, not kept: ncclCommAbort
 * does not reach this communicator. Destroy it before `nccl`. The ranks of a node reach each other
 * over NVLink or PCIe peer access, through windows of NCCL's. `config` may be NULL. Where ranks are
 * threads of one process, none allocates or frees device memory while a call of another's waits for
 * it, as with NCCL's calls: that can wait for the GPUs of all of them, for ever.
 *
 * `nccl` is a blocking communicator, as ncclCommInitRank() makes it: with NCCL 2.28.9 the first
 * all-gather on a non-blocking one failed, and this function with it. *comm is NULL after an error.
 *
 * Needs a GPU of compute capability 9.0, and in the process NCCL 2.28 or newer with its symmetric
 * memory on (NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE not 0). No multicast object is made by this
 * library; NCCL makes its own unless NCCL_NVLS_ENABLE=0. Nodes are told apart by NCCL_HOSTID, else
 * host name and boot id, and reach each other over verbs devices that can register GPU memory, each
 * rank over those nearest to its GPU, and for set-up over TCP (NCCL_SOCKET_IFNAME).
 *
 * Errors: InvalidArgument, InvalidUsage (ranks disagree; NCCL is missing, too old or without what
 * is needed; a library built without CUDA), UnhandledCudaError, SystemError (no memory),
 * RemoteError (NCCL failed).
 */
GEMMAR_API gemmarResult_t gemmarCommCreate(gemmarComm_t *comm, ncclComm_t nccl,
                                           const gemmarConfig_t *config);

/* Device memory that can be registered, on the current device: ncclMemAlloc and ncclMemFree of the
 * NCCL in the process. `bytes` > 0; the memory begins at a multiple of 2 MiB and is not zeroed.
 * Neither may be called in stream capture; free only what no call uses any more and what is not
 * registered. NULL is legal to free. Any thread. Errors, in gemmarGetLastError(NULL):
 * InvalidArgument, InvalidUsage (no NCCL, built without CUDA), UnhandledCudaError. */
GEMMAR_API gemmarResult_t gemmarMemAlloc(void **ptr, size_t bytes);
GEMMAR_API gemmarResult_t gemmarMemFree(void *ptr);

/*
 * Make `bytes` bytes at `buff` an output that peers write directly: a call whose C lies wholly
 * inside, on 16 bytes and with N and ldc multiples of 8, gets its result there, any other one
 * through the workspace and a copy.
 * Collective, host-synchronous, not in stream capture; every rank registers as many bytes, at the
 * same offset into an allocation of the same size, made by gemmarMemAlloc or ncclMemAlloc (memory
 * of cudaMalloc cannot be registered). The order of registrations is the same on all ranks, and
 * two lie in one allocation on all ranks or on none.
 *
 * As with NCCL's symmetric windows, a C inside a registered buffer is, in one call, at the same
 * offset of the same registration and with the same ldc on all ranks of a node, or on none of them;
 * a call that breaks this gives InvalidUsage on all ranks that see it, and the communicator is
 * broken.
 *
 * Deregister with the returned handle, collectively too, before the memory is freed; finished calls
 * and captured graphs that use it are not used again. What is still registered is deregistered by
 * gemmarCommDestroy().
 *
 * Errors: InvalidArgument, InvalidUsage (ranks disagree, the memory cannot be registered, a CPU
 * communicator), UnhandledCudaError, SystemError, RemoteError (NCCL failed).
 */
GEMMAR_API gemmarResult_t gemmarCommRegister(gemmarComm_t comm, void *buff, size_t bytes,
                                             void **handle);
GEMMAR_API gemmarResult_t gemmarCommDeregister(gemmarComm_t comm, void *handle);

/* Finish all calls and sends (bounded by the timeout) and release everything. Collective when the
 * communicator is healthy; never waits for a peer when it is broken. A broken rank does not take
 * part: a healthy one on another node, or that came before the rank broke, waits in the bootstrap's
 * allGather until that gives up. NULL is legal. A process must destroy its communicators before it
 * exits: a finished call does not mean finished sends. Graphs that hold calls have ended and are
 * not launched again. The handle is gone whatever the result.
 * Errors, in gemmarGetLastError(NULL): RemoteError (sends or calls did not finish, on any rank),
 * SystemError (the all-gather failed), InvalidUsage (the child of a fork calls: nothing is
 * touched). */
GEMMAR_API gemmarResult_t gemmarCommDestroy(gemmarComm_t comm);

/* Make a running call return and mark the communicator broken: that call and all later ones give
 * InvalidUsage. Local ranks notice at once, other nodes by their timeout. Does not interrupt the
 * caller's all-gather. On a GPU the kernel leaves its stream, which goes on; what was to be in C is
 * undefined. Any thread. */
GEMMAR_API gemmarResult_t gemmarCommAbort(gemmarComm_t comm);

/* The first error of the communicator, gemmarSuccess if there is none, without waiting. On a GPU
 * this, or the next call, is how a call's failure becomes known: the kernel leaves its stream. Any
 * thread. Errors: InvalidArgument. */
GEMMAR_API gemmarResult_t gemmarCommGetAsyncError(gemmarComm_t comm, gemmarResult_t *asyncError);

/* Bytes of workspace per rank that calls of this shape need on a CPU communicator (one on a GPU
 * says by gemmarCommGetInfo() what gemmarCommReserve() came to): M, N, K >= 0 elements, on `nodes`
 * nodes of `ranksPerNode` ranks; `config` as for the communicator, NULL: defaults. At most
 * 2 * (output + 3 * slice) + 8 MiB for two nodes, where output is M*N elements and slice is output
 * / ranksPerNode, unless config forces tiles, chunks or two-shot. Not collective. Errors:
 * InvalidArgument. */
GEMMAR_API gemmarResult_t gemmarWorkspaceBytes(int64_t M, int64_t N, int64_t K,
                                               gemmarDataType_t datatype, int nodes,
                                               int ranksPerNode, const gemmarConfig_t *config,
                                               size_t *bytes);

/* Grow the workspace so that later calls of this shape (M, N, K >= 0 elements) need not; on a
 * GPU neither those of fewer rows or columns, whatever K.
 * Collective, host-synchronous; running calls are over. On a GPU it waits for the calls enqueued so
 * far, is refused in stream capture, and keeps the memory of smaller workspaces until
 * gemmarCommDestroy(), because graphs may hold it; what grows doubles at least, so that shapes that
 * creep up leave few behind. With GEMMAR_TUNING rank 0 reads its table again first. Errors:
 * InvalidArgument (also a malformed table), InvalidUsage (ranks
 * disagree, stream capture), SystemError (no memory on some rank; the communicator goes on with
 * what it has). */
GEMMAR_API gemmarResult_t gemmarCommReserve(gemmarComm_t comm, int64_t M, int64_t N, int64_t K,
                                            gemmarDataType_t datatype);

/* Facts and counters of this rank. Waits until this rank's sends have completed (at most the
 * timeout), so that the bytes of a finished call are all counted. Errors: InvalidArgument,
 * RemoteError (the communicator is broken). */
GEMMAR_API gemmarResult_t gemmarCommGetInfo(gemmarComm_t comm, gemmarCommInfo_t *info);

/* C = sum over ranks of A_r * B_r. A [M,K], B [K,N] and C [M,N] are row-major and dense, elements
 * of `datatype`, M, N, K >= 0 and equal on all ranks. C may not overlap A or B: the ranges from the
 * first to the last element are compared. M or N of 0 does nothing; K of 0 gives zeros. Source of
 * the error bound: docs/design.md, section 6.
 *
 * CPU communicator: host memory, `stream` is NULL, the call returns when C is complete.
 *
 * GPU communicator: fp16 and bf16; M, N and K at most 2^31 - 1; memory of the communicator's
 * device, whichever allocator it is from (gemmarCommRegister() makes C cheaper); `stream` is of
 * that device, NULL is the legacy default stream. The call returns when it is enqueued and does not
 * synchronise, unless it has to grow the workspace (gemmarCommReserve()); C is complete in stream
 * order, and a failure shows in gemmarCommGetAsyncError() or in the next call. Calls of one
 * communicator run one after the other: a call waits for the one before it also on another stream.
 * Legal in stream capture, where a call that would have to grow the workspace is refused; the order
 * between a captured call's replays and other calls is the caller's, and the same on all ranks. The
 * kernel needs all its thread blocks resident at once, and waits for its peers: what else may run
 * on the GPU at that time, other communicators' kernels too, must leave them room or come in the
 * same order on all ranks.
 *
 * Errors: InvalidArgument (nothing was started), InvalidUsage (the same; or an aborted
 * communicator), UnhandledCudaError, RemoteError, SystemError (the communicator is broken and every
 * later call returns the same error). */
GEMMAR_API gemmarResult_t gemmar_fused(const void *A, const void *B, void *C, int64_t M, int64_t N,
                                       int64_t K, gemmarDataType_t datatype, gemmarComm_t comm,
                                       gemmarStream_t stream);

/* Arguments of the extended form. Begin with zeros, set `size`. */
typedef struct {
    size_t size; /* of this struct */
    const void *A;
    const void *B;
    void *C;
    const void *bias; /* [N], added once to every row; NULL: none. Equal on all ranks */
    int64_t M, N, K;
    int64_t lda, ldb, ldc; /* elements from row to row; 0: dense. GPU: at most 2^39 - 8, and 2^30 -
                              8 for an A or B whose base or rows are not multiples of 16 bytes */
    gemmarDataType_t datatype;
    int transB;  /* 1: B is [N,K] row-major, the usual layout of weights */
    float alpha; /* zero is zero: say 1 for the plain product */
    float beta;  /* with beta != 0, C must be equal on all ranks on entry */
} gemmarFusedArgs_t;

/* C = alpha * (sum over ranks of A_r * B_r) + beta * C + bias; alpha, beta and bias are applied
 * once, in fp32, after the sum over all ranks. lda, ldb, ldc and transB may differ between ranks.
 * Else as gemmar_fused(). */
GEMMAR_API gemmarResult_t gemmar_fused_ex(const gemmarFusedArgs_t *args, gemmarComm_t comm,
                                          gemmarStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
