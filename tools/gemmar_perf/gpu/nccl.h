// SPDX-License-Identifier: Apache-2.0
// The communicators of NCCL: the one beside gemmar's, and where nodes are compared with a baseline
// another one over NCCL's own network transport.
#ifndef GEMMAR_PERF_GPU_NCCL_H
#define GEMMAR_PERF_GPU_NCCL_H

#include "tools/gemmar_perf/gpu/gpu.h"

/* Fill g->nccl, g->builtin and g->log. Collective. 0, or 1 after a sentence. */
int gemmar_perf_nccl_open(struct gemmar_perf_session *s);

/* With a status other than 0 the peers may be gone: NCCL's warnings are shown, and nothing that
 * waits for a peer is done. */
void gemmar_perf_nccl_close(struct gemmar_perf_gpu *g, int status);

/* A first all-reduce over each network, so that NCCL connects and its log says how. Collective. 0,
 * or 1 after a sentence. */
int gemmar_perf_nccl_connect(struct gemmar_perf_session *s);

/* Read the logs of all ranks into g->networks: connections since the start. Collective. 0, or 1
 * after a sentence; a connection without GPU Direct RDMA makes the session failed, as the baseline
 * would not be a fair one. */
int gemmar_perf_nccl_look(struct gemmar_perf_session *s);

#endif
