// SPDX-License-Identifier: Apache-2.0
// A connection of two ranks, private to plugin/: one end sends, the other one receives.
//
// A rail is one local port. A lane is one queue pair: lane i joins local rail i % (local rails) to
// the peer's rail i % (its rails); the first max(local, peer's) lanes are one per pair of rails
// (the paths), further ones repeat them (NCCL_IB_QPS_PER_CONNECTION).
#ifndef GEMMAR_NET_COMM_H
#define GEMMAR_NET_COMM_H

#include <stdbool.h>

#include "plugin/net.h"
#include "plugin/net_device.h"
#include "plugin/net_wire.h"
#include "transport/core.h"
#include "transport/ib_flush.h"
#include "transport/ib_mr.h"
#include "transport/ib_qp.h"
#include "transport/order.h"
#include "transport/socket.h"

#define NET_SEND_DEPTH   768 /* work requests: 256 messages of data, size and immediate */
#define NET_RECV_DEPTH   288 /* one per receive under way, a batch that is not posted again yet */
#define NET_RECV_BATCH   32
#define NET_INLINE_BYTES 64    /* a clear-to-send */
#define NET_STRIPE_ALIGN 128u  /* NCCL's LL128 lines must not be torn between two stripes */
#define NET_IDLE_TURNS   1024u /* fruitless calls between two looks at the clock */
#define NET_CTS_SIGNAL   16    /* every n-th is signalled */
#define NET_PIECES       16    /* writes of one stripe; bounds the longest message */

/* What init made. */
struct net_context {
    int version;
    int traffic_class;
    struct gemmar_logger log;
    gemmar_nccl_profiler profiler;
    bool counted; /* holds the device table until finalize */
};

/* What a work request was for; the low bits of wr_id. */
enum net_work {
    NET_WORK_DATA = 0, /* lane, work requests, request */
    NET_WORK_CTS = 1,  /* lane, work requests */
    NET_WORK_FLUSH = 2,
    NET_WORK_RECV = 3,  /* lane */
    NET_WORK_PIECE = 4, /* lane, request; before the last one of a stripe, never signalled */
    NET_WORK_DRAIN = 5, /* lane; the last one that a stopped queue flushes */
    NET_WORK_TRIAL = 6, /* lane; on a revived path */
    NET_WORK_LOOK = 7,  /* lane, work requests; reads what the receiver has */
};

static inline uint64_t net_wr_id(enum net_work work, uint32_t lane, uint32_t wrs, uint32_t request)
{
    return (uint64_t)request << 32 | (uint64_t)wrs << 16 | lane << 8 | (uint32_t)work;
}

struct net_rail {
    struct gemmar_ib_device *device;
    struct ibv_cq *cq;
    struct gemmar_ib_mr *words;
    struct gemmar_ib_flush *flush; /* receiving end, opened by the first iflush */
    bool flush_failed;             /* its queue pair is in ERR: to be opened anew */
    uint32_t flush_failures;       /* in a row */
};

struct net_lane {
    struct ibv_qp *qp;
    uint32_t index; /* of the lane */
    uint32_t rail, peer_rail;
    uint32_t words_lkey, peer_words_rkey; /* of this end's and the peer's words on its rails */
    uint32_t weight;                      /* share of a message, Mb/s */
    uint32_t inline_bytes;                /* that its queue pair takes */
    uint32_t room;                        /* work requests that its send queue still takes */
    uint32_t depth;                       /* of the send queue */
    uint32_t recv_depth;                  /* receives that are kept posted */
    bool stopped;                         /* its queue pair is in ERR */
    bool draining;                        /* and the mark behind its sends has not come back */
    uint32_t unsignalled;                 /* clear-to-sends posted since the last signalled one */
    uint32_t used;                        /* receives consumed since the last batch was posted */
    uint64_t longest;                     /* bytes of one work request, a multiple of 128 */
    struct gemmar_wire_qp own, peer;
    struct gemmar_ib_qp_watch watch;
    uint64_t messages, bytes; /* counters */
    uint64_t served;          /* work given to it over its weight, for spreading short messages */
};

enum net_request_state {
    NET_REQUEST_FREE = 0,
    NET_REQUEST_SEND,
    NET_REQUEST_RECV,
    NET_REQUEST_FLUSH,
};

struct net_comm;

struct net_request {
    struct net_comm *comm;
    uint16_t index; /* in its array */
    uint8_t state;  /* enum net_request_state */
    uint8_t parts;
    uint8_t part;                /* sends: of the receive that it goes to */
    bool lost;                   /* sends: a stripe of it went down with its path */
    uint8_t again;               /* flushes: rails to read again, as bits */
    uint16_t pending;            /* still to complete: stripes, rails; receives: parts, as bits */
    uint16_t arrived[NET_PARTS]; /* receives: stripes seen of each part */
    uint64_t sequence;
    /* Sends: where the data lies and goes, and the profiler's handle of the first attempt. Flushes:
     * what is read. */
    uint64_t data;
    const struct net_mr *mr;
    const struct net_cts *cts;
    void *phandle;
    uint64_t bytes[NET_PARTS]; /* receives: room, then what came; sends: the first */
    void *event[NET_PARTS];    /* of NCCL's profiler: per receive, or per stripe of a send */
};

enum net_path_state {
    NET_PATH_LIVE = 0,
    NET_PATH_DOWN,    /* its queue pairs are stopped */
    NET_PATH_REVIVED, /* its queue pairs are connected anew; no data yet */
};

struct net_path {
    enum net_path_state state;
    uint64_t down_ns; /* since when */
    uint32_t trials;  /* revivals that failed since it last carried data */
    uint32_t answers; /* trial writes of this revival still to complete */
};

enum net_recovery {
    NET_RECOVERY_NONE = 0,
    NET_RECOVERY_QUIET,  /* sender: until nothing is under way on any path */
    NET_RECOVERY_ASKED,  /* sender: until the receiver has told what arrived */
    NET_RECOVERY_REPEAT, /* sender: sending again what did not */
};

/* A connection of several paths survives the loss of all but one: see net_failover.c. */
struct net_failover {
    bool possible; /* several paths, and the knob allows it */
    bool trouble;  /* a path is not live, or a recovery is under way */
    bool tell;     /* this end's state has changed since its last note */
    uint8_t healthy;
    enum net_recovery recovery;
    uint64_t round, heal;  /* as in struct net_note */
    uint32_t healing;      /* path of the revival under way, or NET_MAX_RAILS */
    uint64_t since_ns;     /* when the recovery began, or its wait for an answer */
    uint64_t looked_ns;    /* when the sender last read what the receiver has */
    bool looking;          /* and it is not here yet */
    uint64_t notes;        /* sent */
    uint64_t seen;         /* stamp of the last note read */
    struct net_note heard; /* it */
    struct net_note *inbox, *outbox;
    uint64_t peer_inbox; /* offset in the peer's words */
    /* Notes over the connection of the set-up. */
    struct net_note told, coming;
    struct gemmar_socket_io out, in;
    uint64_t listened_ns;
    struct net_path path[NET_MAX_RAILS];
    uint64_t lost, revived, repeated; /* counters: paths, and messages sent again */
};

/* What both ends have. */
struct net_comm {
    bool sends;
    struct gemmar_hold hold;
    gemmar_nccl_profiler profiler;
    int dev;
    uint32_t rails, lanes, paths, queue_pairs;
    struct net_rail rail[NET_MAX_RAILS];
    struct net_lane *lane;
    /* In use: lanes in order, and the numbers of their paths. */
    uint32_t live_lanes, live_paths;
    struct net_lane *live[NET_MAX_LANES];
    uint8_t live_path[NET_MAX_RAILS];
    struct net_lane nowhere; /* without room: the first one in use while no path is live */
    struct net_failover failover;
    int traffic_class; /* of its queue pairs */
    void *words;       /* struct net_send_words or net_recv_words, whole pages */
    size_t words_bytes;
    int fd; /* the set-up connection: closed by the kernel when the peer's process ends */
    uint64_t peer_words;
    uint32_t peer_rails;
    bool peer_fails_over;
    char peer_device[NET_MAX_RAILS][40];
    char peer_text[GEMMAR_SOCKET_TEXT_BYTES];
    uint32_t idle;       /* tests in a row that found nothing */
    uint64_t checked_ns; /* when the peer's process was looked at */
    bool gone;           /* it had closed then */
    /* A queue pair that the device reported in error: event type + 1, and its number in the upper
     * half. Writer: event thread, release. Reader: the thread of the data path, acquire. */
    uint64_t qp_event;
    uint64_t received;    /* bytes */
    int failed;           /* enum gemmar_nccl_result of the first error, 0 while there is none */
    uint64_t completions; /* taken */
    uint64_t flushed;     /* completions that only say that an error came before */
    uint64_t head;        /* sequence of the next receive, or of the one that sends go to */
};

struct net_send {
    struct net_comm base; /* first */
    struct net_send_words *words;
    uint32_t taken;    /* parts of the group at the head that sends have taken, as bits */
    bool split;        /* long messages go over all queue pairs of a path */
    uint64_t adaptive; /* bytes above which data and immediate go apart */
    uint64_t longest;  /* bytes of a message */
    uint32_t turn;     /* which queue pair of the paths the next long message takes */
    struct ibv_send_wr wr[NET_PIECES + 2];
    struct ibv_sge sge[NET_PIECES + 2];
    struct net_request request[NET_SLOTS * NET_PARTS];
};

struct net_recv {
    struct net_comm base; /* first */
    struct net_recv_words *words;
    uint32_t flushes;          /* requests taken, round robin */
    struct ibv_send_wr cts_wr; /* of a clear-to-send, what is the same in all filled in */
    struct ibv_sge cts_sge;
    struct ibv_recv_wr again[NET_RECV_BATCH];
    struct net_request request[NET_SLOTS];
    struct net_request flush[NET_SLOTS];
};

/* ---- net_context.c ---- */

/* NCCL's logger as one of ours; NULL: standard error. */
struct gemmar_logger net_logger(gemmar_nccl_logger nccl);

/* ---- net_comm.c ---- */

/* Open an end in *comm (zeroed, with hold.log, profiler and sends set): rails, words, completion
 * queues and `lanes` queue pairs in INIT. 0 or a negative errno, logged; net_comm_close undoes any
 * part of it. */
int net_comm_open(struct net_comm *comm, int dev, uint32_t peer_rails, uint32_t peer_queue_pairs);
void net_comm_close(struct net_comm *comm);
/* The same, and give the memory and the hold on the device table back. `comm` is the first member
 * of what was allocated; NULL is legal. */
void net_comm_free(struct net_comm *comm);
/* The same for NCCL's closing calls: what it carried is told. Always success. */
int net_comm_end(struct net_comm *comm);
/* This end's hello, and what the peer's says. */
void net_comm_describe(const struct net_comm *comm, struct net_wire_hello *out);
/* Queue pairs to ready-to-send. Logged. */
int net_comm_connect(struct net_comm *comm, const struct net_wire_hello *peer, int traffic_class);

/* Open ports of a device, and as the result queue pairs that this process wants per path, or
 * -EINVAL or -ENODEV. */
int net_comm_ends(struct gemmar_core *core, int dev, uint32_t *out_rails);

/* ---- net_report.c ---- */

/* At level info. */
void net_comm_report(const struct net_comm *comm);

/* ---- net_fault.c ---- */

/* Keep the first error of a communicator and log its sentence; returns `result`. */
int net_comm_fail(struct net_comm *comm, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A completion with a bad status. Returns the communicator's result. */
int net_comm_bad_completion(struct net_comm *comm, const struct ibv_wc *wc);
/* Nothing completed for a while: does the peer's process still live, and the devices? */
int net_comm_check(struct net_comm *comm);
/* enum gemmar_nccl_result for a negative errno. */
int net_result(int rc);

/* ---- net_poll.c ---- */

/* Take what has completed; the communicator's result. */
int net_comm_poll(struct net_comm *comm);
/* Keep `count` more receives posted on a lane. */
int net_recv_post(struct net_recv *recv, struct net_lane *lane, uint32_t count);

/* ---- net_send.c, net_recv.c ---- */

/* Send a request's message anew. 0, -EAGAIN, or the communicator's result. */
int net_send_again(struct net_send *send, struct net_request *request);
/* Announce a group. 0, -EAGAIN when its queue pair does not take it now, or the communicator's
 * result. */
int net_recv_announce(struct net_recv *recv, uint64_t slot, uint32_t parts);
/* Repeat the reads of a flush that failed with their paths. The communicator's result. */
int net_recv_flush_again(struct net_request *request);

/* ---- net_failover.c ---- */

/* Does this end want it? Both must. */
bool net_failover_wanted(const struct net_comm *comm);
void net_failover_open(struct net_comm *comm);
/* Is a status one of a path, as opposed to that of a mistake? */
bool net_failover_is_of_path(enum ibv_wc_status status);
/* A completion with a bad status: true when it is dealt with, because its path is given up and
 * another one is left. */
bool net_failover_takes(struct net_comm *comm, const struct ibv_wc *wc);
/* Carry on with what is under way; the communicator's result. */
int net_failover_step(struct net_comm *comm);
/* Is there a reason to? */
static inline bool net_failover_due(const struct net_comm *comm)
{
    return comm->failover.possible &&
           (comm->failover.trouble || comm->failover.tell ||
            gemmar_load_acquire(&comm->failover.inbox->stamp) > comm->failover.seen);
}

/* Does a recovery keep new sends back, or may it have to? */
static inline bool net_failover_blocks(const struct net_comm *comm)
{
    return comm->failover.possible &&
           (comm->failover.recovery != NET_RECOVERY_NONE ||
            gemmar_load_acquire(&comm->failover.inbox->stamp) > comm->failover.seen);
}

/* ---- net_note.c ---- */

/* Tell the peer this end's state. 0, -EAGAIN when that is not possible now, or the communicator's
 * result. */
int net_note_tell(struct net_comm *comm);
/* Take the newest note of the peer. */
void net_note_hear(struct net_comm *comm);

/* ---- net_mr.c ---- */

struct net_mr {
    struct gemmar_hold hold; /* devices outlive communicators while memory is registered */
    int dev, type;
    uint32_t rails;
    struct gemmar_ib_device *device[NET_MAX_RAILS];
    struct gemmar_ib_mr *mr[NET_MAX_RAILS];
    uint32_t lkey[NET_MAX_RAILS], rkey[NET_MAX_RAILS];
};

#endif
