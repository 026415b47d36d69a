// SPDX-License-Identifier: Apache-2.0
// A verbs provider inside the test: objects are counted, calls fail on demand, and a work request
// moves its bytes only when the test says so. One thread at a time, except posting and polling by a
// proxy while the test only looks.
#ifndef GEMMAR_TEST_FAKE_VERBS_H
#define GEMMAR_TEST_FAKE_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/ib_device.h"
#include "transport/ib_verbs.h"

#define FAKE_DEVICES 24
#define FAKE_GIDS    8
#define FAKE_RECORDS 64
#define FAKE_INLINE  64 /* most inline bytes of a queue pair */

struct fake_port {
    struct ibv_port_attr attr;
    struct ibv_gid_entry gid[FAKE_GIDS];
};

struct fake_device {
    struct ibv_device device;
    char name[64];
    int ports;
    struct fake_port port[2];
};

/* What a registration was asked for. */
struct fake_registration {
    uint64_t address, length;
    int access;
    int fd; /* -1: host or peer memory */
};

struct fake_verbs {
    struct fake_device device[FAKE_DEVICES];
    int devices;

    int live;                  /* objects that exist */
    int calls;                 /* that may fail, so far */
    int fail_call;             /* the one that fails, counted from 1; 0: none */
    int fail_last;             /* calls behind it up to this one fail too; 0: none */
    int fail_errno;            /* [EIO] */
    uint64_t dmabuf_offset;    /* of the last reg_dmabuf_mr */
    int dmabuf_errno;          /* of reg_dmabuf_mr with a descriptor; 0: works */
    int host_errno;            /* of reg_mr and reg_mr_iova2; 0: works */
    int post_fail;             /* the work request, counted from 1, that is refused once; 0: none */
    int post_errno;            /* [ENOMEM] */
    int posted;                /* work requests accepted */
    int reads;                 /* RDMA READs among them */
    uint32_t deepest;          /* most work requests in one send queue */
    uint32_t most_completions; /* in one completion queue */

    struct fake_registration registered[FAKE_RECORDS];
    int registrations;
    struct {
        struct ibv_qp_attr attr;
        int mask;
    } modified[FAKE_RECORDS];
    int modifications;
};

extern struct fake_verbs fake;

/* One InfiniBand device "fake0" with an active port. */
void fake_reset(void);
/* One more device with `ports` active ports; its number. */
int fake_add_device(const char *name, int ports, bool ethernet);
const struct gemmar_ib_verbs *fake_table(void);

/* A logger that keeps what it is told. */
const struct gemmar_logger *fake_logger(void);
int fake_warnings(void);         /* since fake_log_clear */
const char *fake_log_text(void); /* all lines since then, each with a line feed */
void fake_log_clear(void);

/* Defaults of all knobs, in static storage. */
struct gemmar_knobs *fake_knobs(void);

/* Work requests that wait in the send queue of this queue pair. */
uint32_t fake_queued(uint32_t qp_number);
/* Execute up to `count` of them; those that move no byte because of `status` complete with it.
 * Returns how many. */
uint32_t fake_execute(uint32_t qp_number, uint32_t count, enum ibv_wc_status status);
/* Let the device report an event. */
void fake_event(enum ibv_event_type type, int port);
/* The same of a queue pair; nothing when there is none of this number. Any thread. */
void fake_qp_event(enum ibv_event_type type, uint32_t qp_number);
/* The device goes: its event descriptor hangs up, as the kernel's does. */
void fake_take_away(void);

#endif
