// SPDX-License-Identifier: Apache-2.0
// The objects of softhca and the one instance of a process. Locks, outermost first:
//   hca.lock       control calls, and the progress thread while it works
//   srq/qp locks   posters among themselves
//   cq.lock        pollers of one completion queue among themselves
//   context.lock, channel.lock   event queues
#ifndef GEMMAR_SOFTHCA_HCA_H
#define GEMMAR_SOFTHCA_HCA_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>

#include "tools/softhca/config.h"
#include "tools/softhca/cuda.h"
#include "tools/softhca/fabric.h"
#include "tools/softhca/fault.h"
#include "tools/softhca/ring.h"

// Marks a function that the library exports; tools/softhca/symbols looks for it.
#define SOFTHCA_EXPORT __attribute__((visibility("default")))

#define SOFTHCA_MAX_SGE     32u
#define SOFTHCA_MAX_INLINE  1024u
#define SOFTHCA_MAX_RD_ATOM 16u
#define SOFTHCA_MAX_MSG     (1u << 30)
#define SOFTHCA_MR_SLOTS    65536u

// Exported, but in no header for programs: libraries of providers and NCCL look them up.
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
                       unsigned int *type);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

struct softhca_qp;
struct softhca_cq;

struct softhca_pd {
    struct ibv_pd pd;
    uint32_t refs; // under hca.lock
};

struct softhca_mr {
    struct ibv_mr mr;
    uint64_t iova;
    struct softhca_place base; // where iova is in this process
    uint32_t export;           // of the allocation, or SOFTHCA_NO_EXPORT
    uint32_t export_gen;
    uint64_t export_base;
    unsigned access;
    uint64_t charged; // bytes against RLIMIT_MEMLOCK
    void *map;        // our own mapping of a dma-buf
};

// An undelivered asynchronous event, newest at the tail of its context's list.
struct softhca_event {
    struct softhca_event *next;
    struct ibv_async_event event;
};

struct softhca_context {
    struct verbs_context v;
    uint32_t device; // index in the node
    struct softhca_context *next;
    pthread_mutex_t lock; // events
    struct softhca_event *events;
    uint32_t port_seq[SOFTHCA_MAX_PORTS]; // as last reported; under hca.lock
};

struct softhca_channel {
    struct ibv_comp_channel ch; // fd: an eventfd semaphore, one count for each queued event
    pthread_mutex_t lock;
    struct softhca_cq *first, *last; // queues with undelivered events
};

struct softhca_cqe {
    uint64_t wr_id;
    uint32_t status;
    uint32_t opcode;
    uint32_t vendor_err;
    uint32_t byte_len;
    uint32_t imm;
    uint32_t wc_flags;
    uint32_t qp_num;
    uint32_t src_qp;
    struct softhca_qp *qp; // whose slots polling gives back; NULL: none, or destroyed
    uint64_t release;      // the queue's slots below this number are free once it is polled
    uint32_t is_recv;
    uint32_t solicited;
};

struct softhca_cq {
    union {
        struct ibv_cq cq;
        struct ibv_cq_ex ex;
    };
    struct softhca_cqe *ring; // entries: hca.lock to write, cq.lock to read
    uint64_t size;            // entries that fit, as the program asked
    uint64_t head;            // next to poll. Writer: poller under lock; reader: progress. Acquire
    uint64_t tail;            // next to fill. Writer: progress thread; reader: pollers. SC
    uint32_t armed;           // 0 no, 1 solicited, 2 any. Writer: program (set), progress (clear)
    uint32_t overrun;         // under hca.lock
    pthread_mutex_t lock;
    struct softhca_cqe current; // of ibv_start_poll .. ibv_end_poll, which hold lock
    uint64_t timestamp;
    uint64_t wc_flags; // of ibv_create_cq_ex
    uint32_t refs;     // queue pairs; under hca.lock
    uint32_t comp_reported;
    uint32_t async_reported; // both: events handed out, under cq.mutex
    struct softhca_cq *next_event;
    uint32_t pending_events; // under channel.lock
};

// A posted receive. Slots are numbered for ever; slot n lives at n % depth.
struct softhca_rwqe {
    uint64_t wr_id;
    uint32_t num_sge;
    uint32_t pad;
    struct ibv_sge sge[];
};

struct softhca_rq {
    uint8_t *slots;
    uint32_t stride;
    uint32_t depth;
    uint32_t max_sge;
    pthread_mutex_t lock; // posters
    uint64_t tail;        // posted. Writer: poster under lock; reader: progress. Release
    uint64_t head;        // taken by a message. Progress thread under hca.lock; release
    uint64_t freed;       // slots that may be posted again. Writer: poller, or progress for an SRQ
};

struct softhca_srq {
    struct ibv_srq srq;
    struct softhca_rq rq;
    uint32_t limit; // armed when not 0; under hca.lock
    uint32_t refs;
    uint32_t async_reported;
};

// A posted send. The scatter list or the inline bytes follow.
struct softhca_wqe {
    uint64_t wr_id;
    uint64_t remote_addr;
    uint64_t operand; // compare or add
    uint64_t swap;
    uint32_t opcode; // ibv_wr_opcode
    uint32_t flags;  // ibv_send_flags
    uint32_t imm;
    uint32_t rkey;
    uint32_t length;
    uint32_t num_sge;
    uint32_t is_inline;
    uint32_t received; // bytes of a READ that have come; progress thread
    uint32_t done;     // READ or atomic whose answer has come; progress thread
    uint32_t failed;   // ibv_wc_status found before sending; progress thread
};

// What the responder owes: the answers of READs and atomics, in order. Acknowledges come last.
struct softhca_answer {
    uint64_t addr; // or the atomic's result
    uint32_t rkey;
    uint32_t total;
    uint32_t offset;
    uint32_t psn;
    uint32_t is_read;
    uint32_t is_repeat; // the peer has asked before; it may have got the first answer by now
};

struct softhca_qp {
    struct ibv_qp_ex ex; // first: an ibv_qp is one of these
    struct softhca_context *ctx;
    struct ibv_qp_attr attr; // under hca.lock
    struct ibv_qp_cap cap;
    int sig_all;
    uint32_t state; // ibv_qp_state. Writer: under hca.lock, release; readers: posters
    uint32_t lid, dlid;
    uint32_t async_reported;
    uint32_t ece_options;

    // send queue: slot n lives at n % cap.max_send_wr
    uint8_t *sq;
    uint32_t sq_stride;
    pthread_mutex_t sq_lock; // posters; held from wr_start to wr_complete
    uint64_t sq_tail;        // posted. Writer: poster under lock; reader: progress. Release
    uint64_t sq_freed;       // may be posted again. Writer: poller; reader: poster. Acquire
    uint64_t wr_next;        // ibv_wr_*: slot being built, under sq_lock
    int wr_err;

    // requester: progress thread, under hca.lock
    uint64_t una;     // oldest not completed
    uint64_t next;    // next to send
    uint32_t tx_off;  // sent bytes of next
    uint64_t highest; // one more than the newest message that was ever begun
    uint32_t rd_outstanding;
    uint32_t retries, rnr_retries;
    uint64_t timer_ns;   // when the oldest was last sent or acknowledged; 0 not running
    uint64_t starved_ns; // since when timeouts were put off; 0 when not
    uint64_t rnr_ns;     // no sending before
    uint64_t hold_ns;    // no sending before (fault rule)
    uint64_t held;       // slot + 1 for which hold_ns was already decided
    uint32_t first_psn;  // slot n has the PSN first_psn + n

    // responder: progress thread, under hca.lock
    uint32_t expected; // PSN
    uint32_t in_off;   // bytes of the expected message that have come
    uint32_t ignoring; // 1 after "go back", until the peer did
    uint32_t has_recv; // recv was taken by the expected message
    struct {
        uint64_t wr_id;
        uint32_t num_sge;
    } recv;
    struct ibv_sge recv_list[SOFTHCA_MAX_SGE];
    uint64_t recv_slot;
    uint32_t ack_pending;
    uint32_t nak; // softhca_syndrome to send
    uint32_t nak_psn;
    struct softhca_answer answers[2 * SOFTHCA_MAX_RD_ATOM];
    uint32_t answer_head, answer_tail;
    struct {
        uint32_t psn;
        uint32_t valid;
        uint64_t result;
    } atomics[SOFTHCA_MAX_RD_ATOM]; // replayed when an atomic is repeated
    uint32_t atomic_next;
    uint32_t comm_est;
    uint32_t unfinished;            // newest messages whose copies are still under way
    struct softhca_gpu *pull_gpu;   // of a copy or word for the expected message, or NULL
    uint64_t pull_first, pull_last; // batches that its copies are in; 0: none
    uint32_t pull_word;             // it is a word
    struct softhca_gpu *copied_by;  // of the newest message with copies or a word
    uint64_t copied_in;             // newest batch of its messages
    uint64_t worded_in;             // what tells that its newest word is written

    struct softhca_rq rq;

    struct softhca_qp *next_active; // stack of queue pairs with news
    uint32_t active;                // 1 while on it. Writers: posters (set), progress (clear). SC
    struct softhca_qp *live_prev, *live_next; // queue pairs with work; under hca.lock
    uint32_t live;
    uint64_t empty_sges; // posted and of length 0, under sq_lock
    uint64_t tx_bytes, tx_msgs;

    uint32_t late_count; // requests to it that a fault rule holds back; under hca.lock
    uint64_t late_ns;    // until when
};

struct softhca_peer {
    struct softhca_ring out;
    struct softhca_ring in;
    uint64_t ahead;    // position in it up to which copies were begun
    uint64_t retry_ns; // no new attempt to make out before
};

// A message of which only the effects that a program can see are left to do, once its copies have
// ended.
struct softhca_pull {
    struct softhca_qp *qp;
    struct softhca_gpu *gpu; // NULL: had no copies of its own
    uint64_t number;         // passed when they have ended
    uint64_t first, last;    // their batches
    uint64_t ready_ns;       // not before
    struct softhca_cqe cqe;
    int has_cqe;
};

// Another process's allocation in this one, or one of our own. Writer: who maps, under hca.lock
struct softhca_import {
    uint32_t gen; // 0: not mapped
    int is_own;
    uint32_t kind; // softhca_export_kind
    uint64_t device;
    uint64_t addr, bytes;
};

struct softhca_hca {
    struct softhca_config config;
    struct softhca_member member;
    pthread_mutex_t lock;
    uint32_t waiting; // control calls that want lock: progress steps aside. SC
    struct softhca_context *contexts;
    struct softhca_mr *mrs[SOFTHCA_MR_SLOTS]; // by key >> 8
    uint8_t mr_tag[SOFTHCA_MR_SLOTS];
    uint32_t mr_next, mr_count;
    uint32_t pd_count, cq_count, channel_count;
    uint64_t locked_bytes;
    struct softhca_qp *qps[SOFTHCA_MAX_QPS]; // by QP index

    pthread_t thread;
    int running;
    uint32_t stop;             // Writer: closer; reader: progress thread. Release
    uint32_t left;             // the process ends. Reader: the thread that maps. Release
    struct softhca_qp *active; // stack, pushed by posters. SC
    struct softhca_qp *live;   // ring of queue pairs with work
    uint32_t live_count;
    uint32_t had_live; // at the end of the last pass; progress thread
    struct softhca_peer peers[SOFTHCA_MAX_PROCS];
    uint32_t in_list[SOFTHCA_MAX_PROCS]; // slots with an open inbound ring
    uint32_t in_count;
    uint32_t inbound_seq;
    uint32_t epoch;
    uint32_t silent;  // this node neither sends nor receives
    uint64_t now_ns;  // of this pass
    uint64_t wake_ns; // earliest timer seen in this pass
    uint64_t sweep_ns;
    struct softhca_fault_set faults;
    uint64_t port_free_ns[SOFTHCA_PORTS_PER_NODE]; // NIC model: when the port can send again
    struct softhca_pull pulls[SOFTHCA_CUDA_MARKS]; // oldest at pull_head; all under lock
    uint64_t pull_head, pull_tail;
    struct softhca_late *late, *late_last; // requests that a fault rule holds back, oldest first
    uint64_t late_bytes;
    struct softhca_import imports[SOFTHCA_MAX_EXPORTS];
};

// The instance, or NULL before the first ibv_get_device_list of this process.
extern struct softhca_hca *softhca_hca;

// 0 with softhca_hca set, or a negative errno.
int softhca_attach(void);
void softhca_lock(void);
void softhca_unlock(void);
// The progress thread runs while a context is open. Called under hca.lock.
int softhca_progress_start(void);
void softhca_progress_stop(void);

// Any thread: the queue pair has news for the progress thread.
void softhca_qp_activate(struct softhca_qp *qp);
// Under hca.lock: step it in every pass until nothing is left to do.
void softhca_qp_make_live(struct softhca_qp *qp);
void softhca_qp_drop_live(struct softhca_qp *qp);

static inline struct softhca_wqe *softhca_wqe_at(const struct softhca_qp *qp, uint64_t n)
{
    return (struct softhca_wqe *)(void *)(qp->sq + n % qp->cap.max_send_wr * qp->sq_stride);
}

static inline struct softhca_rwqe *softhca_rwqe_at(const struct softhca_rq *rq, uint64_t n)
{
    return (struct softhca_rwqe *)(void *)(rq->slots + n % rq->depth * rq->stride);
}

// Memory. need: access flags that all must be there. -EACCES when the key, the protection domain,
// the bounds or the rights do not fit; else 0 and the place of [addr, addr + len) here.
enum softhca_key { SOFTHCA_LKEY, SOFTHCA_RKEY };
int softhca_mr_reach(const struct ibv_pd *pd, enum softhca_key kind, uint32_t key, uint64_t addr,
                     uint64_t len, unsigned need, struct softhca_place *out_place);

// Exports and imports of device memory (export.c); any thread, without hca.lock.
void softhca_export_add(struct softhca_mr *mr);
void softhca_export_remove(struct softhca_mr *mr);
// The process ends, and left is set: wait a little for the thread that maps.
void softhca_export_stop(struct softhca_hca *h);
// Descriptors of exports (handoff.c); any thread. The name to ask at, into out->handle: 0 or a
// negative errno, logged. An offered descriptor is closed by end. fetch: the owner's, or -1.
int softhca_handoff_name(struct softhca_export *out);
void softhca_handoff_offer(uint32_t e, uint32_t gen, int fd);
void softhca_handoff_end(uint32_t e);
int softhca_handoff_fetch(const struct softhca_export *x, uint32_t e, uint32_t gen);
void softhca_handoff_stop(void);
// Under hca.lock: the address of [offset, offset + len) of an export here, or 0.
uint64_t softhca_import_at(uint32_t e, uint32_t gen, uint64_t offset, uint64_t len);
uint64_t softhca_import_device(uint32_t e); // of a mapped export

// Copies that the receiver makes (pull.c); under hca.lock.
int softhca_pulls_full(void);
// How the bytes of a WRITE to device memory get there. SMALL keeps its place among all messages of
// its queue pair, a WORD its place behind them and among words. BULK is there before later messages
// that are SMALL or a WORD: nobody may look for it by itself.
enum softhca_way { SOFTHCA_BULK, SOFTHCA_SMALL, SOFTHCA_WORD };
enum softhca_way softhca_pull_way(const struct softhca_packet *p, const struct softhca_place *to);
// 1 when that may not be begun yet.
int softhca_pull_waits(const struct softhca_qp *qp, const struct softhca_place *to, uint64_t len,
                       enum softhca_way way);
// For the expected message: a copy from device memory (of export e) or staged bytes (e UINT32_MAX)
// to a place in device memory; a copy that was begun before; the word that a packet brings.
int softhca_pull_from(struct softhca_qp *qp, const struct softhca_place *to, uint64_t from,
                      uint32_t len, uint32_t e, enum softhca_way way);
void softhca_pull_begun(struct softhca_qp *qp, struct softhca_gpu *gpu, uint64_t batch);
void softhca_pull_word(struct softhca_qp *qp, const struct softhca_place *to,
                       const struct softhca_packet *p);
// Begin copies of messages that the model lets arrive later (ahead.c), up to a full batch.
void softhca_ahead(struct softhca_hca *h, struct softhca_peer *peer);
// The first byte of the queue pair's memory for a WRITE, if it may be written: 0, or a syndrome.
int softhca_write_reach(const struct softhca_qp *qp, const struct softhca_packet *p,
                        uint32_t offset, uint32_t len, struct softhca_place *out_place);
// The queue pair that a packet is for, or NULL.
struct softhca_qp *softhca_addressee(const struct softhca_hca *h, const struct softhca_packet *p);
// The expected message is executed but for its copies: complete and acknowledge it after them, and
// not before ready_ns.
void softhca_pull_defer(struct softhca_qp *qp, const struct softhca_cqe *cqe, uint64_t ready_ns);
// 1 when something was completed.
int softhca_pull_poll(void);
// Wait for all copies, and complete what waited for them.
void softhca_pull_finish(void);

// Requests that a fault rule holds back (late.c); under hca.lock.
// 1 when the packet is kept, or lost, and so is not to be delivered now.
int softhca_late_takes(struct softhca_hca *h, struct softhca_qp *qp,
                       const struct softhca_packet *p);
// Deliver what is due. 1 when there was something.
int softhca_late_step(struct softhca_hca *h);
void softhca_late_forget(struct softhca_hca *h);
// A packet that is here now, to its queue pair if that still takes it. -EAGAIN as below.
int softhca_deliver(struct softhca_hca *h, const struct softhca_packet *p);

// Completions and events; progress thread or control call, under hca.lock.
void softhca_cq_push(struct softhca_cq *cq, const struct softhca_cqe *e);
void softhca_cq_forget(struct softhca_cq *cq, const struct softhca_qp *qp);
void softhca_event_raise(struct softhca_context *ctx, const struct ibv_async_event *event);
void softhca_event_forget(struct softhca_context *ctx, const void *element);
void softhca_qp_event(struct softhca_qp *qp, enum ibv_event_type type);
void softhca_ports_report(void);

// A completion event on the queue's channel, if it has one; and the undelivered ones of a queue
// that goes away.
void softhca_channel_raise(struct softhca_cq *cq);
void softhca_channel_forget(struct softhca_cq *cq);
// Semaphores that a program can poll: one count for each queued event.
void softhca_count_up(int fd);
void softhca_count_down(int fd); // without blocking

// Receive queues.
int softhca_rq_init(struct softhca_rq *rq, uint32_t depth, uint32_t max_sge);
void softhca_rq_release(struct softhca_rq *rq);
int softhca_rq_post(struct softhca_rq *rq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

// Send side of the API.
int softhca_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int softhca_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int softhca_post_srq_recv(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int softhca_poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc);
int softhca_req_notify_cq(struct ibv_cq *base, int solicited_only);
struct ibv_cq_ex *softhca_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *softhca_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *attr);
int softhca_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr,
                       size_t size);
void softhca_wr_api_init(struct softhca_qp *qp);

// The port that a GID names, or 0.
uint32_t softhca_gid_lid(const union ibv_gid *gid);
// Under hca.lock: take it from the fabric and from the progress thread.
void softhca_qp_abandon(struct softhca_qp *qp);
// Under hca.lock: move what posters marked to the live list. 1 when there was something.
int softhca_take_active(void);

// Queue pair states; under hca.lock.
void softhca_qp_to_error(struct softhca_qp *qp);
void softhca_qp_to_reset(struct softhca_qp *qp);
int softhca_qp_modify(struct softhca_qp *qp, const struct ibv_qp_attr *attr, int mask);

// Protocol; progress thread, under hca.lock.
void softhca_requester_step(struct softhca_qp *qp);
void softhca_requester_receive(struct softhca_qp *qp, const struct softhca_packet *p);
void softhca_responder_step(struct softhca_qp *qp);
// -EAGAIN: cannot be executed before copies have ended; bring it again.
int softhca_responder_receive(struct softhca_qp *qp, const struct softhca_packet *p);
void softhca_responder_flush(struct softhca_qp *qp);
// Copy len bytes to offset of a scatter list. -1 when an entry does not fit its region, or the copy
// failed.
int softhca_scatter(const struct softhca_qp *qp, const struct ibv_sge *list, uint32_t n,
                    uint32_t offset, const uint8_t *from, uint32_t len);
int softhca_qp_has_work(const struct softhca_qp *qp);
// A packet to the queue pair's peer, or NULL when there is no room now. *out_lost is set when the
// packet would go nowhere (no such queue pair, port down): then it counts as sent.
struct softhca_packet *softhca_packet_begin(struct softhca_qp *qp, uint32_t payload, int *out_lost);
void softhca_packet_end(struct softhca_qp *qp, struct softhca_packet *p);
// 1 when the peer can copy from that export.
int softhca_peer_has_mapped(const struct softhca_qp *qp, uint32_t e, uint32_t gen);
// 1 when the peer has not yet taken packets of ours although its process lives and is not stopped:
// the machine gave its progress thread no time. A NIC has no such state; its timers must not run.
int softhca_peer_is_starved(const struct softhca_qp *qp);
// NIC model: 1 when the port may send now; else wake_ns says when.
int softhca_model_may_send(const struct softhca_qp *qp);
void softhca_model_charge(const struct softhca_qp *qp, struct softhca_packet *p);
void softhca_wake_at(uint64_t ns);

static inline int softhca_psn_diff(uint32_t a, uint32_t b)
{
    return (int)((a - b) << 8) >> 8; // signed, modulo 2^24
}

#endif
