// SPDX-License-Identifier: Apache-2.0
// The thread that reads a device's asynchronous events.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transport/advice.h"
#include "transport/ib_device.h"
#include "transport/order.h"
#include "transport/signals.h"

void gemmar_ib_qp_watch(struct gemmar_ib_device *d, struct gemmar_ib_qp_watch *watch)
{
    (void)pthread_mutex_lock(&d->watch_lock);
    watch->next = d->watches;
    d->watches = watch;
    (void)pthread_mutex_unlock(&d->watch_lock);
}

void gemmar_ib_qp_unwatch(struct gemmar_ib_device *d, struct gemmar_ib_qp_watch *watch)
{
    if (watch->qp == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&d->watch_lock);
    for (struct gemmar_ib_qp_watch **at = &d->watches; *at != NULL; at = &(*at)->next) {
        if (*at == watch) {
            *at = watch->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&d->watch_lock);
    watch->qp = NULL;
}

/* The queue pair lives until the event is acknowledged: ibv_destroy_qp waits for that. Its owner
 * lives while its watch is in the list. */
static void handle_qp(struct gemmar_ib_device *d, const struct ibv_async_event *event)
{
    struct ibv_qp *qp = event->element.qp;
    struct gemmar_ib_qp_watch *w;

    (void)pthread_mutex_lock(&d->watch_lock);
    for (w = d->watches; w != NULL && w->qp != qp; w = w->next) {
    }
    if (w != NULL) {
        w->fn(w->user, qp, event->event_type);
    }
    (void)pthread_mutex_unlock(&d->watch_lock);
    if (w == NULL) {
        gemmar_warn(d->log, "ib_event: device %s qp 0x%x: %s", d->name, qp->qp_num,
                    d->verbs->event_type_str(event->event_type));
    }
}

static void handle(struct gemmar_ib_device *d, const struct ibv_async_event *event)
{
    const char *name = d->verbs->event_type_str(event->event_type);

    switch (event->event_type) {
    case IBV_EVENT_PORT_ERR:
        if (event->element.port_num == d->port) {
            gemmar_warn(d->log, "ib_event: device %s port %d is down", d->name, d->port);
            gemmar_store_release(&d->port_down, 1);
        }
        break;
    case IBV_EVENT_PORT_ACTIVE:
        if (event->element.port_num == d->port) {
            gemmar_info(d->log, "ib_event: device %s port %d is active", d->name, d->port);
            gemmar_store_release(&d->port_down, 0);
        }
        break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_CQ_ERR:
        gemmar_warn(d->log, "ib_event: device %s: %s", d->name, name);
        gemmar_store_release(&d->fatal, (uint64_t)event->event_type + 1);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: handle_qp(d, event); break;
    default: gemmar_info(d->log, "ib_event: device %s: %s", d->name, name); break;
    }
}

/* A device that is taken away, or reset, hangs its descriptor up behind the last event: poll then
 * finds it ready for ever. */
static void gone(struct gemmar_ib_device *d, struct pollfd *fd)
{
    gemmar_warn(d->log, "ib_event: device %s has been taken away", d->name);
    gemmar_store_release(&d->fatal, (uint64_t)IBV_EVENT_DEVICE_FATAL + 1);
    fd->fd = -1;
}

static void *event_loop(void *argument)
{
    struct gemmar_ib_device *d = argument;
    struct pollfd fds[2] = {{.fd = d->context->async_fd, .events = POLLIN},
                            {.fd = d->stop_fd, .events = POLLIN}};

    for (;;) {
        struct ibv_async_event event;

        if (poll(fds, 2, -1) < 0 && errno != EINTR) {
            gemmar_warn(d->log, "ib_event: device %s: poll failed: %s", d->name, strerror(errno));
            return NULL;
        }
        if (fds[1].revents != 0) {
            return NULL;
        }
        if (fds[0].revents != 0 && d->verbs->get_async_event(d->context, &event) == 0) {
            handle(d, &event);
            d->verbs->ack_async_event(&event);
        } else if (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)) {
            gone(d, &fds[0]);
        }
    }
}

int gemmar_ib_event_start(struct gemmar_ib_device *d)
{
    int flags = fcntl(d->context->async_fd, F_GETFL);
    char advice[GEMMAR_ADVICE_BYTES];
    int rc;

    if (flags < 0 || fcntl(d->context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        rc = -errno;
        gemmar_warn(d->log, "ib_event: device %s: async descriptor: %s", d->name, strerror(-rc));
        return rc;
    }
    d->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (d->stop_fd < 0) {
        rc = -errno;
        gemmar_warn(d->log, "ib_event: eventfd: %s%s", strerror(-rc),
                    gemmar_advice_limit(-rc, 0, advice, sizeof(advice)));
        return rc;
    }
    rc = gemmar_thread_start(&d->event_thread, event_loop, d);
    if (rc != 0) {
        gemmar_warn(d->log, "ib_event: cannot start a thread: %s%s", strerror(-rc),
                    gemmar_advice_limit(-rc, 0, advice, sizeof(advice)));
        (void)close(d->stop_fd);
        d->stop_fd = -1;
    }
    return rc;
}

void gemmar_ib_event_stop(struct gemmar_ib_device *d)
{
    uint64_t one = 1;

    if (d->stop_fd < 0 || d->context == NULL) {
        return;
    }
    (void)!write(d->stop_fd, &one, sizeof(one)); /* an eventfd at 0 takes a 1 */
    (void)pthread_join(d->event_thread, NULL);
    (void)close(d->stop_fd);
    d->stop_fd = -1;
}
