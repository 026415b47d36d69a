// SPDX-License-Identifier: Apache-2.0
// NCCL's variables that have no effect here, each with the reason.
#include "transport/env.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static const struct gemmar_ignored table[] = {
    {"NCCL_IB_ROUTABLE_FLID_GID_INDEX", "InfiniBand peers are addressed by LID"},
    {"NCCL_IB_DEVICE_PCI_ORDER", "devices keep the order of libibverbs, as in NCCL 2.28"},
    {"NCCL_IB_QUERY_PORT_SPEED", "the speed is that of the port's lanes"},
    {"NCCL_IB_OOO_RQ", "completions do not rely on the order of receives"},
    {"NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME", "messages are always matched by their number"},
    {"NCCL_IB_SUBNET_AWARE_ROUTING", "the device that NCCL chose is used"},
    {"NCCL_IB_SUBNET_PREFIX_LEN", "the device that NCCL chose is used"},
    {"NCCL_IB_CUDA_SUPPORT", "NCCL_NET_GDR_LEVEL has replaced it"},
    {"NCCL_IB_GDR_LEVEL", "NCCL_NET_GDR_LEVEL has replaced it"},
    {"NCCL_IB_USE_INLINE", "what is short is always sent inline where the device can"},
    {"NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS", "receives are always posted in advance"},
    {"NCCL_IB_WARN_RAIL_LOCAL", "the device that NCCL chose is used"},
    {"NCCL_IB_DATA_DIRECT", "mlx5's data-direct path is not used"},
    {"NCCL_IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS", "a message may see any number of failovers"},
    {"NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL", "one batch of trials decides"},
    {"NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE", "one batch of trials decides"},
    {"NCCL_IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT",
     "NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT bound a trial"},
    {"NCCL_IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT",
     "GEMMAR_TIMEOUT bounds what a peer does not answer"},
    {NULL, NULL},
};

const struct gemmar_ignored *gemmar_ignored_table(void)
{
    return table;
}

/* The first call with this name in the process? A full list says no. */
static bool is_first(const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char told[GEMMAR_KNOB_OTHERS][GEMMAR_KNOB_NAME_BYTES]; /* under the lock */
    static int count;                                             /* under the lock */
    bool first = true;

    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        first = first && strcmp(told[i], name) != 0;
    }
    first = first && count < GEMMAR_KNOB_OTHERS;
    if (first) {
        memcpy(told[count++], name, strlen(name) + 1);
    }
    (void)pthread_mutex_unlock(&lock);
    return first;
}

void gemmar_knobs_report_others(const struct gemmar_knobs *knobs, const struct gemmar_logger *log)
{
    for (int i = 0; i < knobs->others; i++) {
        const struct gemmar_ignored *row = table;
        enum gemmar_log_level level;

        while (row->variable != NULL && strcmp(row->variable, knobs->other[i]) != 0) {
            row++;
        }
        level = row->variable != NULL ? GEMMAR_LOG_INFO : GEMMAR_LOG_WARN;
        if (level > log->level || !is_first(knobs->other[i])) {
            continue;
        }
        if (row->variable != NULL) {
            gemmar_info(log, "env: %s is ignored: %s", row->variable, row->reason);
        } else {
            gemmar_warn(log, "env: %s is not known and has no effect", knobs->other[i]);
        }
    }
}
