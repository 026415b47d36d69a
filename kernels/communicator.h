// SPDX-License-Identifier: Apache-2.0
// The communicator: what one rank knows from its creation to its end.
#ifndef GEMMAR_KERNELS_COMMUNICATOR_H
#define GEMMAR_KERNELS_COMMUNICATOR_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include <gemmar/gemmar.h>
#include <gemmar/transport.h>

#include "kernels/agree.h"
#include "kernels/call.h"
#include "kernels/cpu/executor.h"
#include "kernels/error.h"
#include "kernels/local_peers.h"
#include "kernels/settings.h"
#include "kernels/transport_loader.h"
#include "transport/log.h"
#include "transport/pci.h"

#define GEMMAR_COMM_MAGIC 0x636f6d6d67656d6dULL
#define GEMMAR_MAX_RAILS  8

struct gemmar_backend;
struct gemmar_gpu;
struct gemmar_workspace;

/* Words that other threads write while a call runs; a line of its own each. */
struct gemmar_comm_words {
    /* Not 0: leave. Writer: proxy, executor, gemmarCommAbort, gemmar_comm_break of any local
     * rank (release). Reader: every wait (acquire, .sys). Host memory. */
    uint64_t abort;
    char pad0[56];
    /* Local rank + 1 that was found gone or broken, or GEMMAR_MAX_LOCAL_RANKS + 1 + rank of another
     * node. Writer: the first waiter (acq_rel). Reader: the calling thread after the call. */
    uint64_t lost;
    char pad1[56];
    uint64_t next_look_ns; /* when the local peers are looked at again; relaxed */
    char pad2[56];
};

struct gemmarComm {
    uint64_t magic;
    pid_t pid; /* the child of a fork has no threads of ours: it may not use the communicator */
    gemmarHostBootstrap_t bootstrap;
    struct gemmar_settings settings;
    struct gemmar_logger log;      /* lets all warnings through, for the sentences */
    enum gemmar_log_level showing; /* GEMMAR_DEBUG: lines above it reach nobody */
    void (*user_log)(void *user, int level, const char *text);
    void *user_log_context;

    struct gemmar_place place;
    uint32_t *rank_of; /* [nodes * locals] */

    struct gemmar_transport_library library;
    struct gemmar_transport *transport; /* NULL on one node */
    uint32_t devices[GEMMAR_MAX_RAILS]; /* [rails] */
    uint32_t rails;
    struct gemmar_pci_place near; /* GPU: where it sits; CPU: unknown */
    int32_t numa_node;            /* where the proxy prefers to run, or -1 */

    const struct gemmar_backend *backend;
    struct gemmar_cpu_executor *executor; /* NULL on a GPU */
    struct gemmar_gpu *gpu;               /* NULL on the CPU */
    /* Of the running call. On a GPU they lie where its kernels see them. */
    struct gemmar_comm_words *words;
    struct gemmar_trouble *trouble;
    struct gemmar_comm_words *host_words;
    struct gemmar_trouble host_trouble;

    /* `lock` guards `error` and the pointers `workspace` and `peers`, which gemmarCommAbort and
     * gemmarCommGetAsyncError read from any thread. */
    pthread_mutex_t lock;
    struct gemmar_error error; /* the first one; set: broken for good */
    struct gemmar_workspace *workspace;
    const struct gemmar_local_peers *peers; /* of the workspace, or of the communicator */

    /* 1: a thread is in a function that serves one at a time. Writer, reader: every thread that
     * enters (exchange acq_rel), and the one inside when it leaves (release). Host memory. */
    uint64_t inside;
    struct gemmar_error last; /* of the serving thread's last call */

    uint64_t wire_bytes, stamp_bytes; /* of closed generations */
    struct gemmar_plan last_plan;     /* of the last call that was not refused */
    bool tuned;                       /* GPU: rank 0 was given a tuning table */
    struct gemmar_tuning *tuning;     /* it; NULL before it is read */
    bool ended;                       /* all ranks came to the end, and none failed */
};

/* Is this a live communicator that the calling process made? The result; the thread's sentence says
 * no. */
gemmarResult_t gemmar_comm_usable(const struct gemmarComm *comm);

/* Entry of every function that serves one thread at a time: gemmarSuccess, or the first error
 * again. A second thread breaks the communicator: it would find the workspace pulled from under it.
 */
gemmarResult_t gemmar_comm_enter(struct gemmarComm *comm);

/* The end of what gemmar_comm_enter let in. Gives back `result`. */
gemmarResult_t gemmar_comm_leave(struct gemmarComm *comm, gemmarResult_t result);

/* Mark broken with this sentence, unless it is already: the first error stays. Any thread. Gives
 * back the first error's result. */
gemmarResult_t gemmar_comm_break(struct gemmarComm *comm, gemmarResult_t result, const char *format,
                                 ...) __attribute__((format(printf, 3, 4)));

/* Say in `comm->last` and in the log what is wrong with a call; the communicator stays whole. */
gemmarResult_t gemmar_comm_refuse(struct gemmarComm *comm, gemmarResult_t result,
                                  const char *format, ...) __attribute__((format(printf, 3, 4)));

/* struct gemmar_watch.look: 1 when a local peer, or one of another node that can be looked at, is
 * broken or gone. */
int gemmar_comm_look(void *context, uint32_t waited_for);

/* After a call was left before its end: find the cause and mark the communicator broken with it.
 * Any thread. */
gemmarResult_t gemmar_comm_explain(struct gemmarComm *comm);

/* First steps of creation: who is on which node, and do all settings agree. Fills place, rank_of.
 */
gemmarResult_t gemmar_comm_meet(struct gemmarComm *comm, struct gemmar_error *error);

/* Rank 0 reads its tuning table, all ranks get it; on failure all keep the one they had.
 * Collective.
 */
gemmarResult_t gemmar_comm_tune(struct gemmarComm *comm, struct gemmar_error *error);

/* Load and acquire the transport on every rank; agree on the rails, by where comm->near of the
 * local ranks lie. Two nodes and more. */
gemmarResult_t gemmar_comm_attach(struct gemmarComm *comm, struct gemmar_error *error);

#endif
