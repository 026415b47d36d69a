// SPDX-License-Identifier: Apache-2.0
// A channel: one rank's ring, proxy thread and queue pairs to all of its peers. Private to
// transport/; users reach it through include/gemmar/transport.h.
#ifndef GEMMAR_CHANNEL_H
#define GEMMAR_CHANNEL_H

#include <pthread.h>
#include <stdbool.h>

#include "transport/fifo.h"
#include "transport/ib_device.h"
#include "transport/ib_flush.h"
#include "transport/ib_mr.h"
#include "transport/ib_qp.h"
#include "transport/wire.h"

#define GEMMAR_BATCH      32  /* commands drained at once */
#define GEMMAR_SEND_DEPTH 256 /* work requests of a send queue; a command takes two */
#define GEMMAR_RECV_DEPTH 256 /* imm mode: receives kept posted per queue pair */
#define GEMMAR_ASIDE      256 /* commands that others may pass, of all queue pairs together */
#define GEMMAR_FLUSHES    8   /* imm mode: flushes on the way per rail */

/* A command whose work requests are in a send queue. */
struct gemmar_sent {
    uint64_t position; /* in the ring */
    uint64_t sequence; /* of its last work request in the queue pair */
};

/* A command taken from the ring whose queue pair has no room: commands of other queue pairs pass
 * it, later ones of its own wait behind it. */
struct gemmar_aside {
    struct gemmar_fifo_request request;
    uint64_t position; /* in the ring */
    uint32_t next;     /* place + 1 of the next one of the queue pair, or of the next free one; 0 */
};

/* One queue pair. All counters belong to the proxy thread. */
struct gemmar_channel_qp {
    struct ibv_qp *qp;
    uint32_t peer;    /* index */
    uint32_t rail;    /* index into channel->rails */
    uint32_t longest; /* bytes of one message on its port */
    /* Most work requests on the way: GEMMAR_SEND_DEPTH, or 0 while commands are set aside, which
     * sends later ones to the end of that queue without a test of their own. */
    uint32_t limit;
    uint32_t aside_first, aside_last; /* place + 1 in channel->aside; 0: none */
    struct gemmar_wire_qp own, other;
    /* Work requests are numbered 1, 2, ... as they are built; the number travels as wr_id. */
    uint64_t built;
    uint64_t completed;       /* everything up to here has completed */
    uint64_t progress_ns;     /* last time something completed, or the queue became busy */
    struct gemmar_sent *sent; /* ring of GEMMAR_SEND_DEPTH, in order */
    uint64_t sent_head, sent_tail;
    /* Built and not yet accepted by ibv_post_send: the chain stays until it is. */
    struct ibv_send_wr *chain, *chain_last;
};

/* An immediate whose stamp waits until the data before it is flushed. */
struct gemmar_arrival {
    uint64_t *stamp;
    uint64_t epoch;
    struct gemmar_channel_qp *qp; /* that it came on; its receive is not posted again yet */
};

/* One device that the channel uses. */
struct gemmar_channel_rail {
    struct gemmar_ib_device *device;
    struct ibv_cq *cq;
    struct gemmar_ib_mr *data, *stamps;
    /* Imm mode with data in GPU memory, else NULL. Proxy only, as all below. */
    struct gemmar_ib_flush *flush;
    struct gemmar_arrival *arrivals; /* ring of arrival_entries, in order */
    uint32_t arrival_entries;        /* as many as there are receives */
    uint64_t head, asked, tail;      /* head .. asked: a READ is on the way; asked .. tail: none */
    uint64_t flush_address;          /* in the sink of the latest of them that brought data */
    uint64_t flush_ns; /* when the oldest of them came, or a READ was posted or completed */
};

/* Where a route leads, after the connect. */
struct gemmar_channel_route {
    struct gemmar_route_settings local;
    uint32_t lane;     /* ordinal among the routes with its peer, for the immediate */
    uint64_t sink[2];  /* remote addresses by parity */
    uint64_t stamp[2]; /* remote addresses by parity */
    bool known;        /* the peer has told */
};

struct gemmar_channel_peer {
    uint32_t rank;
    bool connected;
    uint64_t epoch;                            /* imm mode: last epoch seen from it */
    uint32_t route_of[GEMMAR_WIRE_MAX_ROUTES]; /* lane -> route */
    uint32_t routes;
    uint32_t data_rkey[GEMMAR_WIRE_MAX_RAILS]; /* by the peer's rail */
    uint32_t stamp_rkey[GEMMAR_WIRE_MAX_RAILS];
};

/* Work requests of the commands of one batch; they live here until the send queues took them. */
struct gemmar_batch {
    struct ibv_send_wr wr[2 * GEMMAR_BATCH]; /* each points to the entry of sge with its index */
    struct ibv_sge sge[2 * GEMMAR_BATCH];
    uint64_t stamp[GEMMAR_BATCH]; /* inline payloads */
    uint32_t used;                /* of wr and sge */
    uint32_t stamps;
    uint32_t pending;  /* queue pairs whose chain is not posted yet */
    uint64_t began_ns; /* of the batch; 0: nobody has asked */
};

struct gemmar_channel {
    const struct gemmar_ib_verbs *verbs;
    const struct gemmar_knobs *knobs;
    struct gemmar_logger log;
    uint32_t rank;
    uint32_t signal; /* enum gemmar_signal_mode */
    uint64_t timeout_ns;
    int numa_node;
    uint64_t *abort_word;
    uint64_t *posted_word;
    struct gemmar_memory data, stamps;
    struct gemmar_fifo fifo;
    uint64_t epoch; /* last epoch of a command, 64 bits; proxy only */

    uint32_t rail_count;
    struct gemmar_channel_rail *rails;
    uint32_t peer_count;
    struct gemmar_channel_peer *peers;
    uint32_t route_count;
    struct gemmar_channel_route *routes;
    uint32_t qps_per_peer;
    uint32_t qp_count;
    struct gemmar_channel_qp *qps;      /* [peer * qps_per_peer + i] */
    struct gemmar_ib_qp_watch *watches; /* [qp_count], for the event threads */
    struct gemmar_batch batch;
    struct gemmar_aside aside[GEMMAR_ASIDE];
    uint32_t aside_count;
    uint32_t aside_free; /* place + 1 of one that was used before; 0: none */
    uint32_t aside_used; /* places from here on were never used */

    pthread_t proxy;
    bool started;
    uint64_t broken; /* Writer: who breaks it (release). Reader: proxy (acquire). Host memory. */
    uint64_t stop;   /* Writer: channel_close (release). Reader: proxy (acquire). Host memory. */

    /* The first error. Writer: whoever claims `broken` first. Readers: any thread, under the lock.
     */
    pthread_mutex_t error_lock;
    struct gemmar_transport_error error;

    /* Counted by the proxy alone (relaxed stores), read by any thread (relaxed loads). */
    struct gemmar_channel_counters counters;
};

/* Life cycle and connect: channel.c. The functions of the table with the same names. */
int gemmar_channel_open(struct gemmar_ib_device *devices, uint32_t device_count,
                        const struct gemmar_logger *log,
                        const struct gemmar_channel_settings *settings,
                        struct gemmar_channel **out);
int gemmar_channel_blob(struct gemmar_channel *channel, uint32_t peer, void *out_blob);
int gemmar_channel_connect(struct gemmar_channel *channel, uint32_t peer, const void *blob);
int gemmar_channel_start(struct gemmar_channel *channel);
int gemmar_channel_drain(struct gemmar_channel *channel, uint64_t pushed, uint64_t timeout_ns);
void gemmar_channel_close(struct gemmar_channel *channel);

/* Break the channel: keep the first error, log it once, set the abort word. Any thread. `qp` may be
 * NULL, `peer` is an index or UINT32_MAX. */
void gemmar_channel_break(struct gemmar_channel *channel, int code, uint32_t peer,
                          const struct gemmar_channel_qp *qp, const char *stage, const char *format,
                          ...) __attribute__((format(printf, 6, 7)));
void gemmar_channel_error(struct gemmar_channel *channel, struct gemmar_transport_error *out);
/* Code of the first error, 0 while there is none. */
int gemmar_channel_code(struct gemmar_channel *channel);

/* One turn of the proxy: take commands, post, poll. True when there was something to do. False and
 * a broken channel after an error. Proxy thread, or a test that has not started one. */
bool gemmar_proxy_turn(struct gemmar_channel *channel);
/* The thread: turns until `stop`, sleeping when idle. */
int gemmar_proxy_start(struct gemmar_channel *channel);
void gemmar_proxy_stop(struct gemmar_channel *channel);

/* rdma_write.c: build the work requests of one command into the batch; -EAGAIN when its queue pair
 * has no room, -ENOSPC when the batch has none, -EINVAL and a broken channel when it leaves its
 * windows. */
int gemmar_rdma_write_build(struct gemmar_channel *channel,
                            const struct gemmar_fifo_request *request, uint64_t position);
/* aside.c: keep a command that gemmar_rdma_write_build had no room for; false when there is no
 * place for it either. */
bool gemmar_aside_put(struct gemmar_channel *channel, const struct gemmar_fifo_request *request,
                      uint64_t position);
/* Build what was set aside and has room now, at most `most` commands, each queue pair's in order;
 * how many, or a negative errno and a broken channel. */
int gemmar_aside_take(struct gemmar_channel *channel, uint32_t most);
/* `frontier`, or the position of the oldest command that is set aside. */
uint64_t gemmar_aside_frontier(const struct gemmar_channel *channel, uint64_t frontier);
/* Post all chains; what a send queue refuses for want of room stays. False: broken. */
bool gemmar_rdma_write_post(struct gemmar_channel *channel);
/* Account for one good completion of `qp`, seen at now_ns, and everything before it; then, once for
 * all that one turn finds, tell the producers how far the ring has left. */
void gemmar_rdma_write_done(struct gemmar_channel_qp *qp, uint64_t sequence, uint64_t now_ns);
void gemmar_rdma_write_retire(struct gemmar_channel *channel);
/* The queue pair that a slot of a peer uses. */
struct gemmar_channel_qp *gemmar_rdma_write_qp(struct gemmar_channel *channel, uint32_t peer,
                                               uint32_t slot);

/* arrival.c, imm mode: keep receives posted; write the stamp that an immediate stands for, after a
 * flush where the rail has one. False: broken. */
int gemmar_arrival_open(struct gemmar_channel_rail *rail, uint32_t receives);
void gemmar_arrival_close(struct gemmar_channel_rail *rail);
int gemmar_arrival_post(struct gemmar_channel *channel, struct gemmar_channel_qp *qp,
                        uint32_t count);
bool gemmar_arrival_take(struct gemmar_channel *channel, struct gemmar_channel_qp *qp,
                         uint32_t immediate, uint32_t bytes);
/* Ask for a flush of all that came since the last one; what cannot be posted now waits. */
bool gemmar_arrival_flush(struct gemmar_channel *channel, struct gemmar_channel_rail *rail);
/* Break the channel when a flush does not complete. */
void gemmar_arrival_check(struct gemmar_channel *channel, const struct gemmar_channel_rail *rail,
                          uint64_t now_ns);
/* A flush has completed: write the stamps that waited for it. */
bool gemmar_arrival_flushed(struct gemmar_channel *channel, struct gemmar_channel_rail *rail,
                            const struct ibv_wc *wc);
/* imm: slot, lane of the route, low bits of the epoch. */
#define GEMMAR_IMM_LANE_BITS  2
#define GEMMAR_IMM_EPOCH_BITS (32 - GEMMAR_FIFO_SLOT_BITS - GEMMAR_IMM_LANE_BITS)
uint32_t gemmar_arrival_immediate(uint32_t slot, uint32_t lane, uint64_t epoch);

#endif
