// SPDX-License-Identifier: Apache-2.0
// What all users of the transport in one process share.
#include "transport/core.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gemmar_core *the_core; /* under the lock */
/* Guards the list of holds alone, so that a device may log while the core opens or closes. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

/* Lines of the devices and their threads: no context owns them, any living one may show them. */
static void forward(void *user, enum gemmar_log_level level, const char *text)
{
    struct gemmar_core *core = user;

    (void)pthread_mutex_lock(&list_lock);
    if (core->holds != NULL) {
        gemmar_log(&core->holds->log, level, "%s", text);
    }
    (void)pthread_mutex_unlock(&list_lock);
}

static void list_add(struct gemmar_core *core, struct gemmar_hold *hold)
{
    (void)pthread_mutex_lock(&list_lock);
    hold->next = core->holds;
    core->holds = hold;
    (void)pthread_mutex_unlock(&list_lock);
}

static void list_remove(struct gemmar_core *core, struct gemmar_hold *hold)
{
    struct gemmar_hold **at = &core->holds;

    (void)pthread_mutex_lock(&list_lock);
    while (*at != NULL && *at != hold) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = hold->next;
    }
    (void)pthread_mutex_unlock(&list_lock);
}

/* Before the first registration of the process; it cannot be taken back, so once is enough. */
static void fork_init(const struct gemmar_ib_verbs *verbs, const struct gemmar_logger *log)
{
    static bool done; /* under the lock */
    int rc;

    if (done) {
        return;
    }
    done = true;
    rc = verbs->fork_init();
    if (rc != 0) {
        gemmar_info(log, "ib_verbs: ibv_fork_init: %s; a child must not touch registered memory",
                    strerror(rc > 0 ? rc : -rc));
    }
}

/* The knob asks for lines; it takes none from a user that wants them. */
static void raise_level(struct gemmar_hold *hold, const struct gemmar_core *core)
{
    if (hold->log.level < core->log.level) {
        hold->log.level = core->log.level;
    }
}

/* Under the lock; `core` has its first hold. */
static int core_open(struct gemmar_core *core)
{
    int rc = gemmar_knobs_read(&core->knobs, &core->log);

    if (core->log.level < GEMMAR_LOG_WARN) {
        core->log.level = GEMMAR_LOG_WARN; /* the hold's own level says who sees it */
    }
    raise_level(core->holds, core);
    gemmar_knobs_report_others(&core->knobs, &core->log);
    if (rc == 0 && core->knobs.ib_disable) {
        gemmar_warn(&core->log, "ib_device: NCCL_IB_DISABLE is 1, no verbs device is used");
        rc = -ENODEV;
    }
    if (rc == 0) {
        rc = gemmar_ib_verbs_load(&core->knobs, &core->log, &core->verbs);
    }
    if (rc == 0) {
        fork_init(&core->verbs, &core->log);
        rc = gemmar_ib_devices_open(&core->verbs, &core->knobs, &core->log, core->devices,
                                    &core->device_count);
    }
    return rc;
}

/* Under the lock. */
static int first_hold(struct gemmar_hold *hold)
{
    struct gemmar_core *core = calloc(1, sizeof(*core));
    int rc;

    if (core == NULL) {
        return -ENOMEM;
    }
    core->process = getpid();
    core->log = (struct gemmar_logger){forward, core, GEMMAR_LOG_WARN};
    list_add(core, hold);
    rc = core_open(core);
    if (rc != 0) {
        free(core);
        return rc;
    }
    hold->core = core;
    the_core = core;
    return 0;
}

int gemmar_core_hold(struct gemmar_hold *hold)
{
    int rc = 0;

    hold->core = NULL;
    (void)pthread_mutex_lock(&lock);
    if (the_core == NULL) {
        rc = first_hold(hold);
    } else if (the_core->process != getpid()) {
        gemmar_warn(&hold->log, "transport: not usable in a child of the process that opened it");
        rc = -EPERM;
    } else {
        hold->core = the_core;
        raise_level(hold, the_core);
        list_add(the_core, hold);
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

bool gemmar_core_is_ours(const struct gemmar_hold *hold)
{
    return hold->core != NULL && hold->core->process == getpid();
}

void gemmar_core_release(struct gemmar_hold *hold)
{
    struct gemmar_core *core = hold->core;

    if (!gemmar_core_is_ours(hold)) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    if (core->holds == hold && hold->next == NULL) {
        gemmar_ib_devices_close(core->devices, core->device_count);
        the_core = NULL;
        free(core);
    } else {
        list_remove(core, hold);
    }
    (void)pthread_mutex_unlock(&lock);
    hold->core = NULL;
}
